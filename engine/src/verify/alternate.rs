//! Snapshot isolation as a property of the dependency graph.
//!
//! With the version order known, a history is of snapshot isolation iff it has none of G1 and every cycle of its
//! dependencies has two *adjacent* anti-dependencies: `(ww ∪ wr) ; rw?` is acyclic (Cerone and Gotsman, "Analysing
//! Snapshot Isolation", JACM 65(2), 2018, theorem on dependency graphs of SI; here without their session order). The
//! reason: a transaction's snapshot is taken before its commit, so ww and wr order commits before starts, while
//! rw only orders a start before a commit; two of these in a row say nothing about the transactions around them.
//!
//! A walk that never takes two anti-dependencies in a row is a walk in a graph of twice the nodes: at `open` an
//! anti-dependency may follow, at `spent` one was just taken. A shortest closed walk there visits no transaction twice:
//! at a transaction visited twice it splits into two, and not both halves can have anti-dependencies on both sides
//! of the cut, because the whole had not.

use super::cycle::{Search, Step};
use super::graph::{Graph, Label, Mask, pass};
use super::verdict::Dependency;

/// The cycles without adjacent anti-dependencies in `components` of `graph`: in how many parts of them there is
/// one, and a short one.
pub(super) fn cycle(graph: &Graph, components: &[Vec<u32>]) -> Option<(u64, Vec<Step>)> {
    let nodes: Vec<u32> = components.iter().flatten().copied().collect();
    let walks = alternating(graph, &nodes);
    let found = pass(&walks, None, Mask::ALL, None).components;
    let steps = Search::new(&walks).cycle(&found, Mask::ALL, Mask::ALL)?;
    let back = |node: u32| nodes[node as usize / 2];
    let steps =
        steps.into_iter().map(|s| Step { from: back(s.from), to: back(s.to), label: s.label }).collect();
    Some((found.len() as u64, without_repeats(steps)))
}

/// The graph whose walks are those of `graph`, between `nodes`, that take no two anti-dependencies in a row. Node
/// `n` becomes `2n` (open) and `2n + 1` (spent). An auxiliary node needs but one: all edges into it and out of it are of one kind, and who
/// has entered it takes that step whole.
fn alternating(graph: &Graph, nodes: &[u32]) -> Graph {
    let mut place = vec![u32::MAX; graph.nodes()];
    for (n, &node) in (0..).zip(nodes) {
        place[node as usize] = n;
    }
    let open_and_spent = nodes.len() * 2;
    for (n, node) in (open_and_spent as u32..).zip(graph.txns()..graph.nodes()) {
        place[node] = n;
    }
    Graph::from_rows(open_and_spent, open_and_spent + graph.nodes() - graph.txns(), |row, emit| {
        let between = row.checked_sub(open_and_spent).map(|n| (graph.txns() + n) as u32);
        let from = between.unwrap_or_else(|| nodes[row / 2]);
        let spent = between.is_none() && row % 2 == 1;
        for &(to, label) in graph.edges(from) {
            let auxiliary = graph.auxiliary(to);
            let to = place[to as usize];
            let anti = label.kind() == Dependency::Rw;
            if to != u32::MAX && !(anti && spent) {
                emit(if auxiliary { to } else { 2 * to + u32::from(anti) }, label);
            }
        }
    })
}

/// A closed walk cut down to a simple cycle that still has no two anti-dependencies in a row. Needed only where the
/// search ran out of budget before it had the shortest.
fn without_repeats(mut walk: Vec<Step>) -> Vec<Step> {
    let anti = |step: &Step| step.label.map(Label::kind) == Some(Dependency::Rw);
    loop {
        let repeat = (0..walk.len())
            .find_map(|n| (n + 1..walk.len()).find(|&m| walk[m].from == walk[n].from).map(|m| (n, m)));
        let Some((n, m)) = repeat else { return walk };
        let inner = walk[n..m].to_vec();
        if anti(&inner[0]) && inner.last().is_some_and(anti) {
            walk.drain(n..m);
        } else {
            walk = inner;
        }
    }
}
