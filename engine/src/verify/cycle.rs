//! A short cycle as witness: breadth-first search inside a component.
//!
//! The search tries one transaction of the components after the other and keeps the shortest cycle. The first find is
//! certain and costs at most one look at each edge; further tries share a budget, so a run that went wrong
//! everywhere still gets its answer. Within the budget (always, below some ten thousand transactions in the
//! components) the cycle is a shortest one of its kind.
//!
//! Auxiliary nodes are no steps: with a node all are looked at that it reaches through them, so that what comes out is a cycle of transactions,
//! and as short as if their edges were there.

use super::graph::{Graph, Label, Mask, returned};
use super::history::Txn;
use super::verdict::Dependency;

/// Edges that later tries may look at together: about a second's worth.
const BUDGET: u64 = 20_000_000;

/// One step of a path or cycle, by positions in the history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub from: u32,
    pub to: u32,
    /// `None`: `from` returned before `to` was invoked.
    pub label: Option<Label>,
}

/// The searcher's scratch memory, sized to the graph.
pub(super) struct Search<'g> {
    graph: &'g Graph,
    /// The component of each node under the last [`Search::restrict`]; 0 is none.
    component: Vec<u32>,
    /// Which try saw the node last.
    seen: Vec<u32>,
    tries: u32,
    /// The step that led to the node in the current try.
    came: Vec<(u32, Label)>,
    queue: Vec<u32>,
    /// Auxiliary nodes to look at with the current one, and how they were entered.
    between: Vec<(u32, Label)>,
    looked: u64,
}

impl<'g> Search<'g> {
    pub fn new(graph: &'g Graph) -> Search<'g> {
        let nodes = graph.nodes();
        Search {
            graph,
            component: vec![0; nodes],
            seen: vec![0; nodes],
            tries: 0,
            came: vec![(0, Label::default()); nodes],
            queue: Vec::new(),
            between: Vec::new(),
            looked: 0,
        }
    }

    /// A shortest cycle within one of `components` whose first edge is of `first` and whose others are of `rest`.
    pub fn cycle(&mut self, components: &[Vec<u32>], first: Mask, rest: Mask) -> Option<Vec<Step>> {
        self.component.fill(0);
        for (number, nodes) in (1..).zip(components) {
            for &node in nodes {
                self.component[node as usize] = number;
            }
        }
        self.best(components.iter().flatten().copied(), |search, start, limit| {
            let home = search.component[start as usize];
            search.path(
                start,
                first,
                rest,
                limit,
                |s, node| s.component[node as usize] == home,
                |n| n == start,
            )
        })
    }

    /// A shortest cycle with one real-time edge, through one of the `late` transactions of an acyclic graph.
    pub fn real_time_cycle(&mut self, late: &[u32], txns: &[Txn]) -> Option<Vec<Step>> {
        self.best(late.iter().copied(), |search, start, limit| {
            let invoked = txns[start as usize].invoke.0;
            let early = |n: u32| returned(&txns[n as usize]) < invoked;
            let mut steps = search.path(start, Mask::ALL, Mask::ALL, limit, |_, _| true, early)?;
            let last = steps.last()?.to;
            steps.push(Step { from: last, to: start, label: None });
            Some(steps)
        })
    }

    fn best(
        &mut self,
        starts: impl Iterator<Item = u32>,
        mut attempt: impl FnMut(&mut Search<'g>, u32, usize) -> Option<Vec<Step>>,
    ) -> Option<Vec<Step>> {
        self.looked = 0;
        let mut best: Option<Vec<Step>> = None;
        for start in starts {
            // A path of `limit` steps at most: only what would be shorter is worth finding.
            let limit = best.as_ref().map_or(usize::MAX, |b| b.len() - 1);
            best = attempt(self, start, limit).or(best);
            // No cycle is shorter than two.
            if self.looked > BUDGET || best.as_ref().is_some_and(|b| b.len() == 2) {
                break;
            }
        }
        best
    }

    /// A shortest path of at most `limit` steps from `start` to a node that is a `goal`, through `allowed` nodes.
    fn path(
        &mut self,
        start: u32,
        first: Mask,
        rest: Mask,
        limit: usize,
        allowed: impl Fn(&Search<'g>, u32) -> bool,
        goal: impl Fn(u32) -> bool,
    ) -> Option<Vec<Step>> {
        self.tries += 1;
        self.queue.clear();
        self.queue.push(start);
        let (mut at, mut depth, mut depth_ends) = (0, 0, 1);
        while at < self.queue.len() {
            if at == depth_ends {
                depth += 1;
                depth_ends = self.queue.len();
            }
            if depth >= limit {
                return None;
            }
            let node = self.queue[at];
            at += 1;
            let mask = if node == start { first } else { rest };
            let graph = self.graph;
            self.between.clear();
            let mut entered: Option<Label> = None;
            let mut edges = graph.edges(node).iter();
            loop {
                let Some(&(next, label)) = edges.next() else {
                    let Some((between, label)) = self.between.pop() else { break };
                    (edges, entered) = (graph.edges(between).iter(), Some(label));
                    continue;
                };
                self.looked += 1;
                // Within a tree all edges are of the kind of the first.
                if !mask.has(label) && entered.is_none() {
                    continue;
                }
                // The record is told by the edge at the writer: of a read that is the first, of an anti-dependency the last.
                let label = entered.filter(|label| label.kind() == Dependency::Wr).unwrap_or(label);
                if graph.auxiliary(next) {
                    if self.seen[next as usize] != self.tries {
                        self.seen[next as usize] = self.tries;
                        self.between.push((next, label));
                    }
                    continue;
                }
                if !allowed(self, next) {
                    continue;
                }
                if goal(next) {
                    return Some(self.walk_back(start, Step { from: node, to: next, label: Some(label) }));
                }
                if next != start && self.seen[next as usize] != self.tries {
                    self.seen[next as usize] = self.tries;
                    self.came[next as usize] = (node, label);
                    self.queue.push(next);
                }
            }
        }
        None
    }

    fn walk_back(&self, start: u32, last: Step) -> Vec<Step> {
        let mut steps = vec![last];
        let mut node = last.from;
        while node != start {
            let (from, label) = self.came[node as usize];
            steps.push(Step { from, to: node, label: Some(label) });
            node = from;
        }
        steps.reverse();
        steps
    }
}
