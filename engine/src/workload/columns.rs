//! Columns of a record: which words of a payload they are.
//!
//! A number is one word (money in cents, shares in ten-thousandths, dates in nanoseconds with 0 for null), a text is as
//! many whole words as its longest value needs, padded with zero bytes. Columns are constants, laid out one after the
//! other when compiling, so reading one is reading a word at a known place.

/// A number: one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Num(usize);

impl Num {
    /// The number at word `at`.
    pub const fn at(at: usize) -> Num {
        Num(at)
    }

    /// Its word in the payload.
    #[inline]
    pub const fn word(self) -> usize {
        self.0
    }

    /// The first word behind it.
    pub const fn end(self) -> usize {
        self.0 + 1
    }
}

/// A text of at most so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    first: usize,
    bytes: usize,
}

impl Text {
    /// A text of at most `bytes` bytes whose first word is `at`.
    pub const fn at(at: usize, bytes: usize) -> Text {
        Text { first: at, bytes }
    }

    /// Its first word in the payload.
    #[inline]
    pub const fn word(self) -> usize {
        self.first
    }

    /// Its words.
    #[inline]
    pub const fn words(self) -> usize {
        self.bytes.div_ceil(8)
    }

    /// Most bytes it may have.
    pub const fn bytes(self) -> usize {
        self.bytes
    }

    /// The first word behind it.
    pub const fn end(self) -> usize {
        self.first + self.words()
    }

    /// Writes a value into a payload, cut to the column's length.
    pub fn put(self, payload: &mut [u64], value: &[u8]) {
        let value = &value[..value.len().min(self.bytes)];
        for (word, n) in payload[self.first..self.end()].iter_mut().zip(0..) {
            *word = word_of(value, n);
        }
    }

    /// The value in a payload, without its padding.
    pub fn get(self, payload: &[u64]) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            payload[self.first..self.end()].iter().flat_map(|word| word.to_le_bytes()).collect();
        let len = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
        bytes.truncate(len);
        bytes
    }
}

/// Word `n` of a text, zero behind its end.
#[inline]
pub fn word_of(text: &[u8], n: usize) -> u64 {
    let mut bytes = [0; 8];
    let rest = text.get(8 * n..).unwrap_or(&[]);
    let here = rest.len().min(8);
    bytes[..here].copy_from_slice(&rest[..here]);
    u64::from_le_bytes(bytes)
}

/// Declares a record's columns, in order: a module with a constant for each and `WORDS`, the payload's length.
macro_rules! columns {
    ($(#[$doc:meta])* $table:ident { $($columns:tt)* }) => {
        $(#[$doc])*
        pub mod $table {
            #[allow(unused_imports)] // a record may have no text, or no number
            use $crate::workload::columns::{Num, Text, columns};
            columns!(@ 0; $($columns)*);
        }
    };
    (@ $at:expr;) => {
        /// Words of payload.
        pub const WORDS: usize = $at;
    };
    (@ $at:expr; $name:ident: num, $($rest:tt)*) => {
        #[doc = concat!("Column `", stringify!($name), "`.")]
        pub const $name: Num = Num::at($at);
        columns!(@ $name.end(); $($rest)*);
    };
    (@ $at:expr; $name:ident: text($bytes:literal), $($rest:tt)*) => {
        #[doc = concat!("Column `", stringify!($name), "`, of at most ", stringify!($bytes), " bytes.")]
        pub const $name: Text = Text::at($at, $bytes);
        columns!(@ $name.end(); $($rest)*);
    };
}
pub(crate) use columns;

#[cfg(test)]
mod tests {
    columns! {
        /// For the test.
        sample { NAME: text(10), AGE: num, CODE: text(8), SUM: num, }
    }

    #[test]
    fn columns_follow_each_other() {
        assert_eq!((sample::NAME.word(), sample::NAME.words(), sample::AGE.word()), (0, 2, 2));
        assert_eq!((sample::CODE.word(), sample::SUM.word(), sample::WORDS), (3, 4, 5));
    }

    #[test]
    fn texts_come_back_without_padding_and_are_cut_to_their_column() {
        let mut payload = [7; sample::WORDS];
        sample::NAME.put(&mut payload, b"abc");
        assert_eq!((sample::NAME.get(&payload), payload[2]), (b"abc".to_vec(), 7));
        sample::NAME.put(&mut payload, b"0123456789xyz");
        assert_eq!(sample::NAME.get(&payload), b"0123456789");
        sample::CODE.put(&mut payload, b"");
        assert_eq!((sample::CODE.get(&payload), payload[4]), (Vec::new(), 7));
    }
}
