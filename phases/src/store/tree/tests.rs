use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A key and its value.
type Row = (u64, u64);
/// A leaf and its version.
type Seen = (u32, u64);

impl Tree {
    /// Holds everything that must hold, and returns the leaves with the keys they answer for.
    fn check(&self) -> Vec<(u32, RangeInclusive<u64>)> {
        let mut leaves = Vec::new();
        self.check_below(self.root, 0, 0, u64::MAX, &mut leaves);
        let numbers: Vec<u32> = leaves.iter().map(|l| l.0).collect();
        for (n, &number) in numbers.iter().enumerate() {
            let leaf = &self.leaves[number as usize];
            assert_eq!(
                leaf.prev,
                n.checked_sub(1).map_or(NONE, |p| numbers[p]),
                "left link of leaf {number}"
            );
            assert_eq!(leaf.next, numbers.get(n + 1).copied().unwrap_or(NONE), "right link of leaf {number}");
            assert!(leaf.len > 0 || numbers.len() == 1, "an empty leaf");
        }
        let used: BTreeSet<u32> = numbers.iter().chain(&self.free_leaves).copied().collect();
        assert_eq!(used.len(), self.leaves.len(), "every leaf is in the tree or free, and once");
        let Finger { leaf: touched, first, last } = self.finger;
        let belong = |keys: &RangeInclusive<u64>| keys.contains(&first) && keys.contains(&last);
        let right = leaves.iter().any(|(leaf, keys)| *leaf == touched && belong(keys));
        assert!(first > last || right, "{first}..={last} belong to leaf {touched}");
        leaves
    }

    fn check_below(
        &self,
        node: u32,
        level: usize,
        from: u64,
        to: u64,
        leaves: &mut Vec<(u32, RangeInclusive<u64>)>,
    ) {
        if level == self.height {
            let keys = self.leaves[node as usize].keys();
            assert!(keys.windows(2).all(|w| w[0] < w[1]), "keys in order");
            assert!(keys.iter().all(|k| (from..=to).contains(k)), "{keys:?} in {from}..={to}");
            leaves.push((node, from..=to));
            return;
        }
        let inner = &self.inners[node as usize];
        assert!(inner.len > 0 && (level > 0 || inner.len > 1));
        let mut low = from;
        for i in 0..inner.len {
            let high = if i + 1 < inner.len { inner.seps[i] - 1 } else { to };
            assert!(low <= high, "child {i} of {inner:?}");
            self.check_below(inner.children[i], level + 1, low, high, leaves);
            low = high.wrapping_add(1);
        }
    }

    fn collect(&self, range: RangeInclusive<u64>, backwards: bool, limit: usize) -> (Vec<Row>, Vec<Seen>) {
        let (mut rows, mut leaves) = (Vec::new(), Vec::new());
        let leaf = |number, version| {
            leaves.push((number, version));
            true
        };
        let row = |key, value| {
            rows.push((key, value));
            rows.len() < limit
        };
        self.scan(range, backwards, leaf, row);
        (rows, leaves)
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64),
    Remove(u64),
    Scan(u64, u64, bool, usize),
    /// Many keys in a row, as a queue grows.
    Append(u8),
    /// The smallest ones go, as a queue shrinks.
    Shift(u8),
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0u64..600;
    prop_oneof![
        4 => key.clone().prop_map(Op::Insert),
        3 => key.clone().prop_map(Op::Remove),
        2 => (key.clone(), key, any::<bool>(), 1usize..40).prop_map(|(a, b, c, d)| Op::Scan(a, b, c, d)),
        1 => any::<u8>().prop_map(Op::Append),
        1 => any::<u8>().prop_map(Op::Shift),
    ]
}

proptest! {
    #[test]
    fn agrees_with_a_map(ops in proptest::collection::vec(op(), 1..400)) {
        let mut tree = Tree::default();
        let mut model = BTreeMap::new();
        for (n, op) in ops.into_iter().enumerate() {
            let n = n as u64;
            match op {
                Op::Insert(key) => {
                    prop_assert_eq!(tree.insert(key, n).is_ok(), !model.contains_key(&key));
                    model.entry(key).or_insert(n);
                }
                Op::Remove(key) => prop_assert_eq!(tree.remove(key), model.remove(&key)),
                Op::Scan(a, b, backwards, limit) => {
                    let (rows, _) = tree.collect(a..=b, backwards, limit);
                    let all = model.iter().filter(|(k, _)| (a..=b).contains(*k)).map(|(&k, &v)| (k, v));
                    let mut all: Vec<_> = all.collect();
                    if backwards {
                        all.reverse();
                    }
                    all.truncate(limit);
                    prop_assert_eq!(rows, all);
                }
                Op::Append(count) => {
                    let next = model.keys().last().map_or(0, |k| k + 1);
                    for key in next..next + u64::from(count) {
                        prop_assert!(tree.insert(key, n).is_ok());
                        model.insert(key, n);
                    }
                }
                Op::Shift(count) => {
                    for _ in 0..count {
                        let Some((key, value)) = model.pop_first() else { break };
                        prop_assert_eq!(tree.remove(key), Some(value));
                    }
                }
            }
            tree.check();
            prop_assert_eq!(tree.len(), model.len());
        }
        for key in 0..600 {
            prop_assert_eq!(tree.get(key), model.get(&key).copied());
        }
    }

    /// What validation rests on: if a key comes or goes between the ends of what a scan has gone through, one of the leaves it
    /// looked at gets another version, whatever else happens to the tree; and an insert tells which, so that its own
    /// transaction can tell it from others'.
    #[test]
    fn no_key_comes_or_goes_unnoticed(
        before in proptest::collection::btree_set(0u64..300, 0..200),
        range in (0u64..300, 0u64..300),
        backwards: bool,
        limit in 1usize..30,
        ops in proptest::collection::vec((0u64..300, any::<bool>()), 1..60),
    ) {
        let mut tree = Tree::default();
        for &key in &before {
            tree.insert(key, key).unwrap();
        }
        let (from, to) = (range.0.min(range.1), range.0.max(range.1));
        let (rows, mut seen) = tree.collect(from..=to, backwards, limit);
        let covered = match rows.last() {
            Some(last) if rows.len() == limit && backwards => last.0..=to,
            Some(last) if rows.len() == limit => from..=last.0,
            _ => from..=to,
        };
        let (mut touched, mut own) = (false, true);
        for (key, insert) in ops {
            let grown = if insert { tree.insert(key, key).ok() } else { None };
            let changed = grown.is_some() || !insert && tree.remove(key).is_some();
            touched |= changed && covered.contains(&key);
            own &= !changed || insert;
            let stands = seen.iter().all(|&(leaf, version)| tree.version(leaf) == version);
            prop_assert!(!(touched && stands), "key {} in {:?} unnoticed", key, covered);
            if let (true, Some(grown)) = (own, grown) {
                let mut expected = false;
                for leaf in seen.iter_mut().filter(|leaf| **leaf == (grown.leaf, grown.before)) {
                    leaf.1 = grown.after;
                    expected = true;
                }
                seen.extend(grown.split.filter(|_| expected));
                prop_assert!(seen.iter().all(|&(leaf, version)| tree.version(leaf) == version));
                touched = false;
            }
        }
    }
}

#[test]
fn keys_in_ascending_order_fill_their_leaves() {
    let mut tree = Tree::default();
    for key in 0..10_000 {
        tree.insert(key, key).unwrap();
    }
    assert_eq!(tree.check().len(), 10_000 / LEAF_KEYS);
    // Also in the middle of others.
    let mut tree = Tree::default();
    tree.insert(u64::MAX, 0).unwrap();
    for key in 0..10_000 {
        tree.insert(key, key).unwrap();
    }
    assert!(tree.check().len() < 10_000 / LEAF_KEYS + 10, "{} leaves", tree.check().len());
}

#[test]
fn a_queue_keeps_its_size() {
    let mut tree = Tree::default();
    for key in 0..100_000u64 {
        tree.insert(key, key).unwrap();
        if key >= 200 {
            assert_eq!(tree.remove(key - 200), Some(key - 200));
        }
    }
    tree.check();
    assert!(tree.leaves.len() < 20 && tree.bytes() < 20_000, "{} leaves", tree.leaves.len());
}

#[test]
fn a_leaf_that_is_used_again_is_not_taken_for_what_it_was() {
    let mut tree = Tree::default();
    for key in 0..64 {
        tree.insert(key, key).unwrap();
    }
    let (_, seen) = tree.collect(32..=40, false, 100);
    for key in 0..64 {
        tree.remove(key);
    }
    for key in 0..64 {
        tree.insert(key, key).unwrap();
    }
    assert!(seen.iter().any(|&(leaf, version)| tree.version(leaf) != version));
    assert_eq!(tree.version(1_000_000), 0, "no such leaf");
}
