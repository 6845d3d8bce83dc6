//! Adya's direct serialization graph in compressed rows, and one depth-first pass over it.
//!
//! Nodes are transactions by position in the history. Edges follow the version order: *ww* from the writer of a
//! version to the writer of the next, *wr* from the writer to each reader, *rw* from each reader to the writer of the
//! next version. Each read or write adds at most two edges, so the graph is linear in the history. What a scan read of a stretch of absent
//! keys goes through auxiliary nodes, numbered after the transactions ([`super::ranges`]): at most twice the logarithm of the
//! number of records in edges.
//!
//! **Real time without edges.** Strict serializability adds an edge from *a* to *b* whenever *a* returned before *b*
//! was invoked: quadratically many, or linearly many through barrier nodes. Neither is needed. If the dependencies
//! alone are acyclic, a cycle through real time exists iff one with a *single* real-time edge does: of two such edges
//! a→b ⇝ c→d ⇝ a, either *a* also returned before *d* was invoked, and a→d shortens the cycle, or
//! `invoke(d) ≤ return(a) < invoke(b)`, so *c* returned before *b* was invoked and c→b shortens it (intervals have no
//! 2+2 suborder). So it is enough to know for each *b* the earliest return among the transactions that must come
//! after it: a minimum that the depth-first pass collects on its way back, compared with *b*'s own invocation.

use super::history::Txn;
use super::index::{Index, Item};
use super::verdict::Dependency;

/// A set of dependencies, as a bit mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mask(u8);

impl Mask {
    pub const WW: Mask = Mask(1);
    pub const RW: Mask = Mask(4);
    pub const WW_WR: Mask = Mask(3);
    pub const ALL: Mask = Mask(7);

    pub fn has(self, label: Label) -> bool {
        self.0 >> (label.0 >> 30) & 1 == 1
    }
}

/// What an edge says: its kind, and the item of the index where its target touched the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Label(u32);

const WW: u32 = 0;
const WR: u32 = 1;
const RW: u32 = 2;

impl Label {
    fn new(kind: u32, item: usize) -> Label {
        Label(kind << 30 | item as u32)
    }

    /// An anti-dependency on the writer of `item`.
    pub fn rw(item: usize) -> Label {
        Label::new(RW, item)
    }

    /// A read of `item`, which is a write: the read has no item of its own.
    pub fn wr(item: usize) -> Label {
        Label::new(WR, item)
    }

    pub fn kind(self) -> Dependency {
        match self.0 >> 30 {
            WW => Dependency::Ww,
            WR => Dependency::Wr,
            _ => Dependency::Rw,
        }
    }

    pub fn item(self) -> usize {
        (self.0 & ((1 << 30) - 1)) as usize
    }
}

/// The dependencies of all transactions in effect.
pub(super) struct Graph {
    /// Edges of node `n` are `first[n]..first[n + 1]`.
    first: Vec<u32>,
    edges: Vec<(u32, Label)>,
    /// Nodes that are transactions; those beyond are auxiliary.
    txns: usize,
    /// Edges by kind: ww, wr, rw. What goes through auxiliary nodes counts once for each stretch that was read.
    pub counts: [u64; 3],
}

impl Graph {
    pub fn build(index: &Index) -> Graph {
        let txns = index.fates.len();
        let nodes = txns + index.ranges.nodes();
        let [initial, last] = index.ranges.counts();
        let mut counts = [0, last, initial];
        // One walk to size the rows, one to fill them: no list of edges in between.
        let mut first = vec![0u32; nodes + 1];
        for_each_edge(index, |from, _, label| {
            first[from as usize] += 1;
            counts[(label.0 >> 30) as usize] += 1;
        });
        index.ranges.for_each_edge(index, txns, |from, _, _| first[from as usize] += 1);
        let mut total = 0u32;
        for row in &mut first {
            total = total.checked_add(*row).expect("a history of less than 2³² dependencies");
            *row = total;
        }
        let mut edges = vec![(0, Label(0)); total as usize];
        // `first` holds the ends of the rows; filling from the back turns them into starts.
        let mut fill = |from, to, label| {
            let slot: &mut u32 = &mut first[from as usize];
            *slot -= 1;
            edges[*slot as usize] = (to, label);
        };
        for_each_edge(index, &mut fill);
        index.ranges.for_each_edge(index, txns, &mut fill);
        Graph { first, edges, txns, counts }
    }

    /// A graph of `nodes` nodes, auxiliary from `txns` on, whose edges from node `n` are what `row(n, emit)` emits.
    pub fn from_rows(txns: usize, nodes: usize, row: impl Fn(usize, &mut dyn FnMut(u32, Label))) -> Graph {
        let mut first = vec![0u32];
        let mut edges = Vec::new();
        for node in 0..nodes {
            row(node, &mut |to, label| edges.push((to, label)));
            first.push(edges.len() as u32);
        }
        Graph { first, edges, txns, counts: [0; 3] }
    }

    /// Transactions, or what stands for them.
    pub fn txns(&self) -> usize {
        self.txns
    }

    /// Whether a node stands between transactions, and for none.
    pub fn auxiliary(&self, node: u32) -> bool {
        node as usize >= self.txns
    }

    /// Edges, auxiliary ones too.
    #[cfg(test)]
    pub fn edge_count(&self) -> usize {
        self.edges.len()
    }

    pub fn nodes(&self) -> usize {
        self.first.len() - 1
    }

    pub fn edges(&self, node: u32) -> &[(u32, Label)] {
        &self.edges[self.first[node as usize] as usize..self.first[node as usize + 1] as usize]
    }
}

/// Calls `emit(from, to, label)` for each dependency, in the order of the index.
fn for_each_edge(index: &Index, mut emit: impl FnMut(u32, u32, Label)) {
    let mut record: Option<Item> = None;
    let mut writer: Option<u32> = None;
    // Readers of versions after which no writer has come yet.
    let mut waiting: Vec<u32> = Vec::new();
    let mut at = 0;
    while at < index.items.len() {
        let version = index.version_at(at);
        let head = index.items[at];
        at = version.end;
        if !record.is_some_and(|r| r.same_record(head)) {
            record = Some(head);
            writer = None;
            waiting.clear();
        }
        // A version may have no writer: the initial state, or a choice of two in doubt. Its place in the order stands.
        let wrote = index.writers(version.clone()).next();
        if let Some((item, this)) = wrote {
            for reader in waiting.drain(..).filter(|&reader| reader != this) {
                emit(reader, this, Label::new(RW, item));
            }
            if let Some(before) = writer.filter(|&before| before != this) {
                emit(before, this, Label::new(WW, item));
            }
            writer = Some(this);
        }
        for (item, reader) in index.readers(version) {
            if let Some((_, this)) = wrote.filter(|&(_, this)| this != reader) {
                emit(this, reader, Label::new(WR, item));
            }
            waiting.push(reader);
        }
    }
}

/// What one depth-first pass finds.
pub(super) struct Pass {
    /// Strongly connected components of two or more transactions, smallest first, without auxiliary nodes.
    pub components: Vec<Vec<u32>>,
    /// Transactions that must precede one that returned before they were invoked. Meaningful without components.
    pub late: Vec<u32>,
}

const UNSEEN: u32 = u32::MAX;
const DONE: u32 = u32::MAX - 1;

/// Tarjan's algorithm over `nodes` and the edges of `mask` between them, with an explicit stack, so a chain of 10⁶
/// transactions costs heap and not stack; with `real_time`, also each transaction's earliest successor's return.
pub(super) fn pass(graph: &Graph, nodes: Option<&[u32]>, mask: Mask, real_time: Option<&[Txn]>) -> Pass {
    let count = graph.nodes();
    // UNSEEN, then the visit number lowered to the lowest on the stack that is reachable, then DONE.
    let mut low = vec![if nodes.is_some() { DONE } else { UNSEEN }; count];
    for &node in nodes.unwrap_or(&[]) {
        low[node as usize] = UNSEEN;
    }
    low[graph.txns()..].fill(UNSEEN);
    let mut earliest: Vec<u64> = real_time.map_or(Vec::new(), |t| t.iter().map(returned).collect());
    if real_time.is_some() {
        earliest.resize(count, u64::MAX);
    }
    let mut found = Pass { components: Vec::new(), late: Vec::new() };
    let mut open: Vec<u32> = Vec::new();
    let mut frames: Vec<Frame> = Vec::new();
    let mut visits = 0;
    let all = 0..graph.txns() as u32;
    let roots: &mut dyn Iterator<Item = u32> = match nodes {
        Some(some) => &mut some.iter().copied(),
        None => &mut all.into_iter(),
    };
    for root in roots {
        if low[root as usize] != UNSEEN {
            continue;
        }
        frames.push(Frame::enter(root, &mut visits, &mut low, &mut open));
        while let Some(frame) = frames.last_mut() {
            let node = frame.node as usize;
            let Some(&(next, label)) = graph.edges(frame.node).get(frame.edge) else {
                let done = frames.pop().expect("the frame just looked at");
                if low[node] == done.visit {
                    close(done.node, graph, &mut low, &mut open, &mut found.components);
                }
                if let Some(txn) = real_time.and_then(|txns| txns.get(node))
                    && earliest[node] < txn.invoke.0
                {
                    found.late.push(done.node);
                }
                if let Some(parent) = frames.last() {
                    let parent = parent.node as usize;
                    if low[node] != DONE {
                        low[parent] = low[parent].min(low[node]);
                    }
                    if real_time.is_some() {
                        earliest[parent] = earliest[parent].min(earliest[node]);
                    }
                }
                continue;
            };
            frame.edge += 1;
            if !mask.has(label) {
                continue;
            }
            match low[next as usize] {
                UNSEEN => frames.push(Frame::enter(next, &mut visits, &mut low, &mut open)),
                DONE => {}
                reached => low[node] = low[node].min(reached),
            }
            if real_time.is_some() {
                earliest[node] = earliest[node].min(earliest[next as usize]);
            }
        }
    }
    found.components.sort_by_key(Vec::len);
    found
}

/// The return, never before the invocation: a clock that went back between the two orders nothing.
pub(super) fn returned(txn: &Txn) -> u64 {
    txn.ret.0.max(txn.invoke.0)
}

struct Frame {
    node: u32,
    visit: u32,
    edge: usize,
}

impl Frame {
    fn enter(node: u32, visits: &mut u32, low: &mut [u32], open: &mut Vec<u32>) -> Frame {
        let visit = *visits;
        *visits += 1;
        low[node as usize] = visit;
        open.push(node);
        Frame { node, visit, edge: 0 }
    }
}

/// Takes the component of `root` off the stack.
fn close(root: u32, graph: &Graph, low: &mut [u32], open: &mut Vec<u32>, components: &mut Vec<Vec<u32>>) {
    let start = open.iter().rposition(|&n| n == root).expect("a root is on the stack until here");
    for &node in &open[start..] {
        low[node as usize] = DONE;
    }
    if open.len() - start > 1 {
        components.push(open[start..].iter().copied().filter(|&node| !graph.auxiliary(node)).collect());
    }
    open.truncate(start);
}
