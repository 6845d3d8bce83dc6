//! What a plan need not know of epochs, and a forecast must.

use super::Needs;

/// How transactions are ordered before they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epochs {
    /// Transactions that each coroutine takes into an epoch.
    pub batch: u16,
    /// Least time that a coroutine collects them for, in nanoseconds.
    pub least_ns: u64,
    /// Words of a transaction's input, which the workload says.
    pub input_words: u32,
}

impl Epochs {
    /// The paper's batch (RCC figure 12), as fast as epochs come; for plans that are checked without a workload.
    pub const USUAL: Epochs = Epochs { batch: 4, least_ns: 0, input_words: 0 };
}

impl Needs {
    /// The same protocol, with epochs like these.
    pub const fn with_epochs(self, epochs: Epochs) -> Needs {
        Needs { epochs, ..self }
    }
}
