//! How a protocol's locks are held, in words: for whoever states a number of it.

use super::Needs;
use crate::rule::Packing;

impl Needs {
    /// The lock mode in a few words, which follow "locks:". A number means little without it: RCC's published NOWAIT takes exclusive
    /// locks for reads, ours has shared ones.
    pub fn lock_mode(&self) -> &'static str {
        match (self.sequenced, self.packing, self.shared_locks) {
            (true, ..) => "granted in order, shared among readers",
            (false, Packing::Locked, true) => "shared among readers",
            (false, Packing::Locked, false) => "one holder, RCC's mode",
            (false, ..) => "of what is written, one holder",
        }
    }
}
