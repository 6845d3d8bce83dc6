//! Finding a record in a transaction's set: what every touch begins with.

use crate::store::layout::TableId;

/// Where a transaction's records are by their names: for each of 256 groups of names the place of the last one that was added, from 1
/// on; 0 says that there is none of the group, [`Places::MANY`] that places have become too large to be told. One look answers most
/// questions; the others are for who has all names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places([u8; 256]);

impl Default for Places {
    fn default() -> Places {
        Places([0; 256])
    }
}

impl Places {
    const MANY: u8 = u8::MAX;

    #[inline]
    fn group((key, table): (u64, TableId)) -> usize {
        // The uppermost bits of the product depend on all bits of the key.
        ((key ^ u64::from(table.0) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
    }

    /// `name` is the last of `len` names.
    #[inline]
    pub(super) fn add(&mut self, name: (u64, TableId), len: usize) {
        self.0[Places::group(name)] = u8::try_from(len).unwrap_or(Places::MANY);
    }

    /// The place of `wanted` in `names`, some of the last of which may have been taken away since they were added.
    #[inline]
    pub(super) fn find(&self, wanted: (u64, TableId), names: &[(u64, TableId)]) -> Option<usize> {
        let last = usize::from(self.0[Places::group(wanted)]).checked_sub(1)?;
        if names.get(last) == Some(&wanted) {
            return Some(last);
        }
        names.iter().position(|&name| name == wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_where_they_are_and_no_others() {
        // More than places that can be told, and several to each group.
        let name = |n: usize| (n as u64 * 7, TableId((n % 5) as u16));
        let (mut places, mut names) = (Places::default(), Vec::new());
        for n in 0..700 {
            assert_eq!(places.find(name(n), &names), None);
            names.push(name(n));
            places.add(name(n), names.len());
        }
        assert!((0..700).all(|n| places.find(name(n), &names) == Some(n)));
        assert_eq!(places.find((7, TableId(0)), &names), None, "the key of another table");
        // The last ones are taken away, as the rows of a scan that has to be made again.
        names.truncate(100);
        assert!((0..700).all(|n| places.find(name(n), &names) == (n < 100).then_some(n)));
    }
}
