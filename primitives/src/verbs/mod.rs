//! The verbs: work requests, queue pairs, completions, and the async [`port`] over them.

pub mod cq;
pub mod port;
pub mod qp;
pub mod work;

pub use cq::{Completion, WcOpcode, WcStatus};
pub use qp::{QpAddress, QpConfig, QpState, Transport};
pub use work::{AddressHandle, Flags, Lkey, NodeId, Qp, RecvRequest, Remote, Rkey, Sge, Verb, WorkRequest};
