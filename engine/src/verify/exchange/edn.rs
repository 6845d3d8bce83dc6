//! As much of EDN as histories use: nil, booleans, integers, keywords, strings, symbols, sequences, maps, tags, comments.
//!
//! After the format's own description (edn-format/edn `README.md`). One form is read at a time, so a file is never
//! a tree in memory as a whole.

/// How deep forms may be nested.
const DEPTH: usize = 32;

/// A form and the byte it begins at.
#[derive(Debug)]
pub(super) struct Node<'b> {
    pub at: usize,
    pub value: Value<'b>,
}

/// A form.
#[derive(Debug)]
pub(super) enum Value<'b> {
    Nil,
    Int(i64),
    /// Without its colon.
    Keyword(&'b str),
    Text(String),
    /// A vector, list or set.
    Seq(Vec<Node<'b>>),
    Map(Vec<(Node<'b>, Node<'b>)>),
    /// A symbol, boolean, character or number that is no 64-bit integer.
    Other(&'b str),
}

impl Value<'_> {
    /// What it is, for messages.
    pub fn name(&self) -> String {
        match self {
            Value::Nil => "nil".into(),
            Value::Int(n) => n.to_string(),
            Value::Keyword(name) => format!(":{name}"),
            Value::Text(text) => format!("{text:?}"),
            Value::Seq(_) => "a sequence".into(),
            Value::Map(_) => "a map".into(),
            Value::Other(text) => format!("`{text}`"),
        }
    }
}

/// Why a form could not be read.
#[derive(Debug)]
pub(super) enum Fault {
    /// The bytes end within it.
    End,
    /// It is no EDN, from this byte on.
    Bad(usize, String),
}

/// The place of the first byte from `at` on that is neither space, comma nor comment.
pub(super) fn skip_blank(bytes: &[u8], mut at: usize) -> usize {
    while let Some(&b) = bytes.get(at) {
        match b {
            b',' => at += 1,
            b';' => at += bytes[at..].iter().take_while(|&&b| b != b'\n').count(),
            b if b.is_ascii_whitespace() => at += 1,
            _ => break,
        }
    }
    at
}

/// Reads forms one by one.
pub(super) struct Reader<'b> {
    bytes: &'b [u8],
    pub at: usize,
}

impl<'b> Reader<'b> {
    pub fn new(bytes: &'b [u8]) -> Reader<'b> {
        Reader { bytes, at: skip_blank(bytes, 0) }
    }

    /// The byte the next form, or the end of what surrounds it, begins with.
    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Passes over one byte and the blank behind it.
    pub fn step(&mut self) {
        self.at = skip_blank(self.bytes, self.at + 1);
    }

    /// The next form and the blank behind it.
    pub fn form(&mut self) -> Result<Node<'b>, Fault> {
        self.nested(0)
    }

    fn nested(&mut self, depth: usize) -> Result<Node<'b>, Fault> {
        if depth > DEPTH {
            return Err(Fault::Bad(self.at, format!("nested deeper than {DEPTH}")));
        }
        let at = self.at;
        let value = match self.peek().ok_or(Fault::End)? {
            b'[' => Value::Seq(self.until(b']', depth)?),
            b'(' => Value::Seq(self.until(b')', depth)?),
            b'{' => {
                let forms = self.until(b'}', depth)?;
                if forms.len() % 2 == 1 {
                    return Err(Fault::Bad(at, "a map with a key that has no value".into()));
                }
                let mut forms = forms.into_iter();
                Value::Map(std::iter::from_fn(|| forms.next().zip(forms.next())).collect())
            }
            b'"' => self.text()?,
            b'#' => return self.tagged(depth),
            b @ (b']' | b')' | b'}') => {
                return Err(Fault::Bad(at, format!("`{}` closes nothing", b as char)));
            }
            _ => self.atom()?,
        };
        self.at = skip_blank(self.bytes, self.at);
        Ok(Node { at, value })
    }

    fn until(&mut self, close: u8, depth: usize) -> Result<Vec<Node<'b>>, Fault> {
        self.step();
        let mut forms = Vec::new();
        while self.peek().ok_or(Fault::End)? != close {
            forms.push(self.nested(depth + 1)?);
        }
        self.at += 1;
        Ok(forms)
    }

    /// `#{set}`, `#_dropped form`, or `#tag form`, of which the form counts.
    fn tagged(&mut self, depth: usize) -> Result<Node<'b>, Fault> {
        let at = self.at;
        self.at += 1;
        match self.peek().ok_or(Fault::End)? {
            b'{' => {
                let value = Value::Seq(self.until(b'}', depth)?);
                self.at = skip_blank(self.bytes, self.at);
                return Ok(Node { at, value });
            }
            b'_' => {
                self.step();
                self.nested(depth + 1)?;
            }
            _ => {
                self.atom()?;
                self.at = skip_blank(self.bytes, self.at);
            }
        }
        self.nested(depth + 1)
    }

    fn text(&mut self) -> Result<Value<'b>, Fault> {
        let at = self.at;
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let byte = self.peek().ok_or(Fault::End)?;
            self.at += 1;
            match byte {
                b'"' => break,
                b'\\' => {
                    let escaped = self.peek().ok_or(Fault::End)?;
                    self.at += 1;
                    text.push(match escaped {
                        b'n' => b'\n',
                        b't' => b'\t',
                        b'r' => b'\r',
                        b'"' | b'\\' => escaped,
                        _ => return Err(Fault::Bad(self.at - 1, "an unknown escape in a string".into())),
                    });
                }
                byte => text.push(byte),
            }
        }
        let text =
            String::from_utf8(text).map_err(|_| Fault::Bad(at, "a string that is not UTF-8".into()))?;
        Ok(Value::Text(text))
    }

    fn atom(&mut self) -> Result<Value<'b>, Fault> {
        let at = self.at;
        let ends = |b: &u8| b.is_ascii_whitespace() || b",;\"()[]{}".contains(b);
        let len = self.bytes[at..].iter().take_while(|b| !ends(b)).count();
        if len == 0 {
            return Err(Fault::Bad(at, "no form".into()));
        }
        self.at += len;
        let text = std::str::from_utf8(&self.bytes[at..at + len])
            .map_err(|_| Fault::Bad(at, "a name that is not UTF-8".into()))?;
        // What the bytes end with may go on.
        if self.at == self.bytes.len() {
            return Err(Fault::End);
        }
        Ok(match text.strip_prefix(':') {
            Some("") => return Err(Fault::Bad(at, "a colon without a name".into())),
            Some(name) => Value::Keyword(name),
            None if text == "nil" => Value::Nil,
            None => text.parse().map_or(Value::Other(text), Value::Int),
        })
    }
}
