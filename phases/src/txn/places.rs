//! Finding a record in a transaction's set: what every touch begins with.

use crate::store::layout::TableId;

/// A record's name, and which one of its group was added before it: its place from 1 on, or 0.
#[derive(Clone, Copy, Debug)]
struct Name {
    key: u64,
    table: TableId,
    before: u32,
}

/// The names of a transaction's records in the order of their places, apart from the records so that those that are looked at lie close
/// together: each belongs to one of 256 groups and leads to the one of its group before it. Most groups have one name or none, and of
/// several hundred records, as a stock-level has (TPC-C, clause 2.8), each look goes through two or three.
#[derive(Debug)]
pub(super) struct Places {
    /// Of each group the place of the last one, from 1 on; 0 if it has none.
    last: [u32; Places::GROUPS],
    names: Vec<Name>,
}

impl Default for Places {
    fn default() -> Places {
        Places { last: [0; Places::GROUPS], names: Vec::new() }
    }
}

impl Places {
    const GROUPS: usize = 256;

    #[inline]
    fn group(table: TableId, key: u64) -> usize {
        // The uppermost bits of the product depend on all bits of the key.
        ((key ^ u64::from(table.0) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
    }

    /// Gives a record that has none the next place.
    #[inline]
    pub(super) fn add(&mut self, table: TableId, key: u64) {
        let last = &mut self.last[Places::group(table, key)];
        self.names.push(Name { key, table, before: *last });
        *last = self.names.len() as u32;
    }

    /// The place of a record, from 0 on.
    #[inline]
    pub(super) fn find(&self, table: TableId, key: u64) -> Option<usize> {
        let mut next = self.last[Places::group(table, key)];
        while let Some(place) = (next as usize).checked_sub(1) {
            let name = &self.names[place];
            if (name.key, name.table) == (key, table) {
                return Some(place);
            }
            next = name.before;
        }
        None
    }

    /// Takes away all places from `len` on.
    pub(super) fn truncate(&mut self, len: usize) {
        while self.names.len() > len
            && let Some(name) = self.names.pop()
        {
            self.last[Places::group(name.table, name.key)] = name.before;
        }
    }

    /// Takes away all places; what there is no more is not looked at.
    #[inline]
    pub(super) fn clear(&mut self) {
        for name in self.names.drain(..) {
            self.last[Places::group(name.table, name.key)] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_where_they_are_and_no_others() {
        // Several to each group.
        let name = |n: usize| (TableId((n % 5) as u16), n as u64 * 7);
        let mut places = Places::default();
        let find = |places: &Places, n| {
            let (table, key) = name(n);
            places.find(table, key)
        };
        let add = |places: &mut Places, n| {
            let (table, key) = name(n);
            places.add(table, key);
        };
        for n in 0..700 {
            assert_eq!(find(&places, n), None);
            add(&mut places, n);
        }
        assert!((0..700).all(|n| find(&places, n) == Some(n)));
        assert_eq!(places.find(TableId(0), 7), None, "the key of another table");
        // The last ones are taken away, as the rows of a scan that has to be made again, and others come in their places.
        places.truncate(100);
        assert!((0..700).all(|n| find(&places, n) == (n < 100).then_some(n)));
        for n in 650..700 {
            add(&mut places, n);
        }
        let place = |n| if n < 100 { Some(n) } else { (650..700).contains(&n).then(|| n - 550) };
        assert!((0..700).all(|n| find(&places, n) == place(n)));
        places.clear();
        assert!((0..700).all(|n| find(&places, n).is_none()) && places.last == [0; Places::GROUPS]);
    }
}
