//! Coroutines and the core loop that resumes them.

/// What one turn of a core's loop did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Completions taken, requests served and coroutines resumed.
    pub worked: usize,
    /// More could be done now without anything new arriving.
    pub pending: bool,
    /// Every coroutine has ended and nothing is in flight: the core may be retired.
    pub finished: bool,
}

/// One core's loop body, driven by a thread on real fabrics and by the event queue on the simulator.
pub trait CoreLoop {
    /// Polls once, then resumes at most `budget` coroutines (or serves as many requests). The simulator
    /// gives a budget of one: a core takes one resume per event, and what arrives meanwhile waits.
    fn step(&mut self, budget: usize) -> Step;
}
