//! Registered memory: regions of atomic words and the buffers carved from them.
//!
//! A region is a slice of [`std::sync::atomic::AtomicU64`]. NIC and CPU may touch it at the same time, as
//! on real hardware, without a data race in the language's sense: a word is read and written whole, anything
//! longer may be seen half old and half new.

mod ahead;
mod mapped;
mod pool;
pub use ahead::ahead;
mod region;

pub(crate) use mapped::pages_taken;
pub(crate) use pool::Pinned;
pub use pool::{Buf, BufPool, PoolExhausted};
pub use region::{Access, MemoryKeys, OutOfRegion, Region};
