//! A B+-tree of keys in the owner's own memory: what ranges are read by.
//!
//! Leaves hold keys with the offsets of their records and are linked in both directions; inner nodes hold separators. Nodes lie
//! in two arenas and name each other by number, so the tree needs neither pointers nor `unsafe`. The arenas get all their room when a
//! second leaf is needed, for as many keys as the tree is said to get ([`Tree::with_room`]), half of it in each leaf: pages that no node comes to are
//! address space and no memory. It is for one thread at a time: [`super::NodeStore`] keeps each tree behind a latch that is held for one
//! descent.
//!
//! **Versions.** Every leaf has one, and gets a new one whenever a key comes to it or goes from it, and when it is split or
//! freed; numbers of freed leaves are used again, their versions go on. So if the leaves that a scan has looked at have the versions
//! that it saw, no key in its range has come or gone: a key that belongs between the ends of the range belongs into one of
//! them (Silo §4.6).
//!
//! **Deleting.** A leaf is taken out when it has become empty, and not before (free-at-empty: Johnson and Shasha 1993 find that
//! merging half-empty nodes gains little where inserts outnumber deletes, and it would give versions to leaves whose
//! keys have not changed). So a queue, filled at one end and emptied at the other, keeps its size.
//!
//! **Splitting.** A full leaf that gets a key right behind the one it got last is split there, any other in the middle: keys that
//! come in ascending order, at the end of all or of a block of them, fill their leaves.
//!
//! **Neighbours.** Keys of one transaction often are, as the lines of an order. So an insert remembers which keys belong to the leaf
//! that it has found, and one of those needs no descent.

use std::ops::RangeInclusive;

/// Keys of a leaf: few, so that inserts and scans that are not about the same keys seldom meet in one.
const LEAF_KEYS: usize = 16;
/// Children of an inner node.
const FAN_OUT: usize = 32;
/// Levels of inner nodes: more than 10¹⁸ leaves.
const MAX_HEIGHT: usize = 16;
const NONE: u32 = u32::MAX;

/// The tree has such a key already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tree has key {0} already")]
pub struct Duplicate(pub u64);

/// What an insert did to the leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grown {
    /// The leaf that the key belonged to.
    pub leaf: u32,
    /// Its version before …
    pub before: u64,
    /// … and after.
    pub after: u64,
    /// The leaf that has taken some of its keys, and that one's version, if it was split.
    pub split: Option<(u32, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Leaf {
    len: usize,
    keys: [u64; LEAF_KEYS],
    values: [u64; LEAF_KEYS],
    version: u64,
    prev: u32,
    next: u32,
    /// Behind the key that came last.
    run: usize,
    /// Where versions are times: no key of its range may come at this time or before, for somebody has seen that there is none.
    read_at: u64,
    /// The latest time at which a key of its range was removed.
    removed_at: u64,
}

const EMPTY_LEAF: Leaf = Leaf {
    len: 0,
    keys: [0; LEAF_KEYS],
    values: [0; LEAF_KEYS],
    version: 0,
    prev: NONE,
    next: NONE,
    run: 0,
    read_at: 0,
    removed_at: 0,
};

impl Leaf {
    fn keys(&self) -> &[u64] {
        &self.keys[..self.len]
    }

    /// The place of a key, or the one that it belongs to. Most that are looked for to be added are later than all others.
    fn place_of(&self, key: u64) -> Result<usize, usize> {
        match self.keys().last() {
            Some(&last) if key <= last => self.keys().binary_search(&key),
            _ => Err(self.len),
        }
    }

    fn put(&mut self, at: usize, key: u64, value: u64) {
        if at < self.len {
            self.keys.copy_within(at..self.len, at + 1);
            self.values.copy_within(at..self.len, at + 1);
        }
        (self.keys[at], self.values[at]) = (key, value);
        (self.len, self.run) = (self.len + 1, at + 1);
    }

    fn take(&mut self, at: usize) -> u64 {
        let value = self.values[at];
        self.keys.copy_within(at + 1..self.len, at);
        self.values.copy_within(at + 1..self.len, at);
        (self.len, self.run) = (self.len - 1, 0);
        value
    }
}

/// `children[i]` has the keys below `seps[i]`, and not below `seps[i - 1]`.
#[derive(Clone, Copy, Debug)]
struct Inner {
    len: usize,
    seps: [u64; FAN_OUT],
    children: [u32; FAN_OUT],
}

impl Inner {
    fn child_of(&self, key: u64) -> usize {
        self.seps[..self.len - 1].partition_point(|&sep| sep <= key)
    }

    /// Puts a child behind the one at `at`; its keys begin at `sep`.
    fn put(&mut self, at: usize, sep: u64, child: u32) {
        self.seps.copy_within(at..self.len - 1, at + 1);
        self.children.copy_within(at + 1..self.len, at + 2);
        (self.seps[at], self.children[at + 1]) = (sep, child);
        self.len += 1;
    }

    /// Takes a child out; its range goes to the one before it, or after it if it was the first.
    fn take(&mut self, at: usize) {
        self.children.copy_within(at + 1..self.len, at);
        let sep = at.saturating_sub(1);
        if self.len > 1 {
            self.seps.copy_within(sep + 1..self.len - 1, sep);
        }
        self.len -= 1;
    }
}

/// The way from the root to a leaf: inner nodes, and which child was taken in each.
#[derive(Clone, Copy)]
struct Path {
    steps: [(u32, usize); MAX_HEIGHT],
    leaf: u32,
}

/// A leaf, and keys that belong to it, whether it has them or not.
#[derive(Clone, Copy, Debug)]
struct Finger {
    leaf: u32,
    first: u64,
    last: u64,
}

impl Finger {
    /// No key is there.
    const NOWHERE: Finger = Finger { leaf: NONE, first: 1, last: 0 };
}

/// A map from keys to offsets, in order of keys.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Leaves that get their room at once.
    room: usize,
    leaves: Vec<Leaf>,
    inners: Vec<Inner>,
    free_leaves: Vec<u32>,
    free_inners: Vec<u32>,
    /// A leaf if there are no levels of inner nodes.
    root: u32,
    height: usize,
    len: usize,
    /// Where the last key was put.
    finger: Finger,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree {
            room: 0,
            leaves: vec![EMPTY_LEAF],
            inners: Vec::new(),
            free_leaves: Vec::new(),
            free_inners: Vec::new(),
            root: 0,
            height: 0,
            len: 0,
            finger: Finger::NOWHERE,
        }
    }
}

impl Tree {
    /// A tree that will have so many keys. It may get more, for which its arenas grow.
    pub fn with_room(keys: u64) -> Tree {
        Tree { room: usize::try_from(keys).unwrap_or(0).div_ceil(LEAF_KEYS / 2), ..Tree::default() }
    }

    /// Gets the room for all nodes, before there is more than one.
    fn make_room(&mut self) {
        let inners = self.room.div_ceil(FAN_OUT / 2) + MAX_HEIGHT;
        self.leaves.reserve_exact(self.room);
        self.free_leaves.reserve_exact(self.room);
        self.inners.reserve_exact(inners);
        self.free_inners.reserve_exact(inners);
    }

    /// Keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn descend(&self, key: u64) -> Path {
        let mut path = Path { steps: [(NONE, 0); MAX_HEIGHT], leaf: self.root };
        for level in 0..self.height {
            let inner = &self.inners[path.leaf as usize];
            let child = inner.child_of(key);
            path.steps[level] = (path.leaf, child);
            path.leaf = inner.children[child];
        }
        path
    }

    /// The leaf that a key belongs to, for who need not come back up.
    fn leaf_of(&self, key: u64) -> u32 {
        (0..self.height).fold(self.root, |node, _| {
            let inner = &self.inners[node as usize];
            inner.children[inner.child_of(key)]
        })
    }

    /// The same, with all keys that belong to it.
    fn finger_of(&self, key: u64) -> Finger {
        let mut finger = Finger { leaf: self.root, first: 0, last: u64::MAX };
        for _ in 0..self.height {
            let inner = &self.inners[finger.leaf as usize];
            let child = inner.child_of(key);
            if child > 0 {
                finger.first = inner.seps[child - 1];
            }
            if child + 1 < inner.len {
                finger.last = inner.seps[child] - 1;
            }
            finger.leaf = inner.children[child];
        }
        finger
    }

    /// The key's value.
    pub fn get(&self, key: u64) -> Option<u64> {
        let leaf = &self.leaves[self.leaf_of(key) as usize];
        leaf.keys().binary_search(&key).ok().map(|at| leaf.values[at])
    }

    /// A leaf's version; 0, which none has after its first key, if there is no such leaf.
    pub fn version(&self, leaf: u32) -> u64 {
        self.leaves.get(leaf as usize).map_or(0, |leaf| leaf.version)
    }

    /// Adds a key.
    ///
    /// # Errors
    /// If it is there.
    pub fn insert(&mut self, key: u64, value: u64) -> Result<Grown, Duplicate> {
        if key < self.finger.first || key > self.finger.last {
            self.finger = self.finger_of(key);
        }
        let number = self.finger.leaf;
        let leaf = &mut self.leaves[number as usize];
        let Err(at) = leaf.place_of(key) else { return Err(Duplicate(key)) };
        let before = leaf.version;
        leaf.version += 1;
        self.len += 1;
        let after = leaf.version;
        if leaf.len < LEAF_KEYS {
            leaf.put(at, key, value);
            return Ok(Grown { leaf: number, before, after, split: None });
        }
        let runs = at == leaf.run && at > LEAF_KEYS / 2;
        let kept = if at == LEAF_KEYS || runs { at } else { LEAF_KEYS / 2 };
        // Who has seen the one has seen the other.
        let mut right = Leaf { read_at: leaf.read_at, removed_at: leaf.removed_at, ..EMPTY_LEAF };
        right.len = LEAF_KEYS - kept;
        right.keys[..right.len].copy_from_slice(&leaf.keys[kept..]);
        right.values[..right.len].copy_from_slice(&leaf.values[kept..]);
        (right.prev, right.next) = (number, leaf.next);
        leaf.len = kept;
        if at > kept || kept == LEAF_KEYS {
            right.put(at - kept, key, value);
        } else {
            leaf.put(at, key, value);
        }
        let (sep, next) = (right.keys[0], right.next);
        let (new, version) = self.new_leaf(right);
        self.leaves[number as usize].next = new;
        if next != NONE {
            self.leaves[next as usize].prev = new;
        }
        self.finger = if key < sep {
            Finger { last: sep - 1, ..self.finger }
        } else {
            Finger { leaf: new, first: sep, ..self.finger }
        };
        // The leaf's range still is what it was: nothing has been put above it.
        let path = self.descend(key);
        self.add_child(&path, sep, new);
        Ok(Grown { leaf: number, before, after, split: Some((new, version)) })
    }

    /// Gives a leaf a number and a version that the number never had.
    fn new_leaf(&mut self, leaf: Leaf) -> (u32, u64) {
        let number = self.free_leaves.pop().unwrap_or_else(|| {
            if self.leaves.len() == 1 {
                self.make_room();
            }
            self.leaves.push(EMPTY_LEAF);
            self.leaves.len() as u32 - 1
        });
        let version = self.leaves[number as usize].version + 1;
        self.leaves[number as usize] = Leaf { version, ..leaf };
        (number, version)
    }

    fn new_inner(&mut self, inner: Inner) -> u32 {
        match self.free_inners.pop() {
            Some(number) => {
                self.inners[number as usize] = inner;
                number
            }
            None => {
                self.inners.push(inner);
                self.inners.len() as u32 - 1
            }
        }
    }

    /// Puts a node, whose keys begin at `sep`, behind the one that the path leads to.
    fn add_child(&mut self, path: &Path, mut sep: u64, mut child: u32) {
        for level in (0..self.height).rev() {
            let (number, at) = path.steps[level];
            let inner = &mut self.inners[number as usize];
            if inner.len < FAN_OUT {
                return inner.put(at, sep, child);
            }
            // Children that are added at the end leave a full node behind, as leaves do.
            let kept = if at == FAN_OUT - 1 { FAN_OUT - 1 } else { FAN_OUT / 2 };
            let mut right = Inner { len: FAN_OUT - kept, ..*inner };
            right.children.copy_within(kept.., 0);
            right.seps.copy_within(kept.., 0);
            let up = inner.seps[kept - 1];
            inner.len = kept;
            if at >= kept {
                right.put(at - kept, sep, child);
            } else {
                inner.put(at, sep, child);
            }
            (sep, child) = (up, self.new_inner(right));
        }
        let mut root = Inner { len: 2, seps: [0; FAN_OUT], children: [NONE; FAN_OUT] };
        (root.seps[0], root.children[0], root.children[1]) = (sep, self.root, child);
        self.root = self.new_inner(root);
        self.height += 1;
    }

    /// Removes a key; its value, if it was there.
    pub fn remove(&mut self, key: u64) -> Option<u64> {
        let path = self.descend(key);
        let leaf = &mut self.leaves[path.leaf as usize];
        let at = leaf.keys().binary_search(&key).ok()?;
        let value = leaf.take(at);
        leaf.version += 1;
        self.len -= 1;
        if leaf.len == 0 && self.height > 0 {
            let (prev, next, read_at, removed_at) = (leaf.prev, leaf.next, leaf.read_at, leaf.removed_at);
            // Its range becomes part of a neighbour's.
            for heir in [prev, next].into_iter().filter(|&heir| heir != NONE) {
                let heir = &mut self.leaves[heir as usize];
                (heir.read_at, heir.removed_at) =
                    (heir.read_at.max(read_at), heir.removed_at.max(removed_at));
            }
            if prev != NONE {
                self.leaves[prev as usize].next = next;
            }
            if next != NONE {
                self.leaves[next as usize].prev = prev;
            }
            self.free_leaves.push(path.leaf);
            self.finger = Finger::NOWHERE;
            self.take_child(&path);
        }
        Some(value)
    }

    /// Removes a key at a time, which its leaf keeps.
    pub fn remove_at(&mut self, key: u64, time: u64) -> Option<u64> {
        let leaf = self.leaf_of(key);
        let leaf = &mut self.leaves[leaf as usize];
        leaf.removed_at = leaf.removed_at.max(time);
        self.remove(key)
    }

    /// The latest time at which somebody has seen which keys there are where `key` belongs.
    pub fn read_at(&self, key: u64) -> u64 {
        self.leaves[self.leaf_of(key) as usize].read_at
    }

    /// Somebody has seen at `time` which keys a leaf has; the latest time at which one was removed.
    pub fn see(&mut self, leaf: u32, time: u64) -> u64 {
        let Some(leaf) = self.leaves.get_mut(leaf as usize) else { return 0 };
        leaf.read_at = leaf.read_at.max(time);
        leaf.removed_at
    }

    /// Takes out the node that the path leads to, and the inner nodes that have no child without it.
    fn take_child(&mut self, path: &Path) {
        for level in (0..self.height).rev() {
            let (number, at) = path.steps[level];
            let inner = &mut self.inners[number as usize];
            inner.take(at);
            if inner.len > 0 {
                break;
            }
            self.free_inners.push(number);
        }
        while self.height > 0 && self.inners[self.root as usize].len == 1 {
            self.free_inners.push(self.root);
            self.root = self.inners[self.root as usize].children[0];
            self.height -= 1;
        }
    }

    /// Shows the keys of a range to `row`, the smallest first or, if `backwards`, the largest, until that says no; and to
    /// `leaf` every leaf looked at, with its version, before its keys, until that says no. Whether the range was gone through.
    pub fn scan(
        &self,
        range: RangeInclusive<u64>,
        backwards: bool,
        mut leaf: impl FnMut(u32, u64) -> bool,
        mut row: impl FnMut(u64, u64) -> bool,
    ) -> bool {
        let (from, to) = (*range.start(), *range.end());
        if from > to {
            return true;
        }
        let mut number = self.leaf_of(if backwards { to } else { from });
        while number != NONE {
            let here = &self.leaves[number as usize];
            if !leaf(number, here.version) {
                return false;
            }
            let keys = here.keys();
            let (first, last) = (keys.partition_point(|&k| k < from), keys.partition_point(|&k| k <= to));
            let mut show = |at: usize| row(here.keys[at], here.values[at]);
            let on =
                if backwards { (first..last).rev().all(&mut show) } else { (first..last).all(&mut show) };
            if !on {
                return false;
            }
            // A leaf with a key beyond the range is the last one.
            if if backwards { first > 0 } else { last < here.len } {
                return true;
            }
            number = if backwards { here.prev } else { here.next };
        }
        true
    }

    /// Bytes of its nodes.
    pub fn bytes(&self) -> usize {
        self.leaves.len() * size_of::<Leaf>() + self.inners.len() * size_of::<Inner>()
    }
}

#[cfg(test)]
mod tests;
