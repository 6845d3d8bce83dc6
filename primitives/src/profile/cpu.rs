//! The CPU's numbers: what each kind of work between verbs costs a core.

use super::quantity::section;
use crate::fabric::CpuWork;

/// Bytes of one write-combining line: the granularity of MMIO posts.
const LINE: u32 = 64;

section! {
    /// Costs of one core. Each field prices one kind of [`CpuWork`].
    pub struct CpuProfile over CpuOverlay {
        words {
            /// The processor.
            model: String,
        }
        numbers {
        /// One look at an empty completion queue.
        poll: Ns NonNegative,
        /// One completion taken and routed.
        completion: Ns NonNegative,
        /// One work request built.
        request: Ns NonNegative,
        /// One doorbell rung: an MMIO write and its fence.
        doorbell: Ns NonNegative,
        /// One 64-byte line of payload copied into a request.
        inline_line: Ns NonNegative,
        /// One coroutine resumed.
        resume: Ns NonNegative,
        /// One RPC message decoded and routed.
        rpc_decode: Ns NonNegative,
        /// One RPC handler called.
        rpc_dispatch: Ns NonNegative,
        /// One RPC message encoded.
        rpc_encode: Ns NonNegative,
        /// One byte copied by the store or the workload.
        copy_byte: NsPerByte NonNegative,
        /// One look at an index bucket, a record or a cache entry.
        probe: Ns NonNegative,
        /// From a message being in a receive queue until the idle thread that polls there has noticed it, beyond the
        /// work above: cache lines changing hands between two cores. A card's delays cover it.
        handover: Ns NonNegative,
        /// Each message, of the one thread that receives for all threads of its machine, one after the other, before it is handed to the
        /// thread that it is for. 0 where each thread receives its own, and there is no such thread.
        receiver: Ns NonNegative,
        /// One attempt of a transaction: what the engine computes to begin it, to draw and count it and to end it, beside its
        /// phases.
        attempt: Ns NonNegative,
        /// One record that an attempt comes to: its entry in the read and write set, its words handed to the body, and what the
        /// engine computes for it between the verbs of its phases.
        access: Ns NonNegative,
        }
    }
}

impl CpuProfile {
    /// Cost of `work` in nanoseconds.
    pub fn cost_ns(&self, work: CpuWork) -> f64 {
        match work {
            CpuWork::Poll => self.poll.value,
            CpuWork::Completion => self.completion.value,
            CpuWork::Request => self.request.value,
            CpuWork::Doorbell => self.doorbell.value,
            CpuWork::Inline(bytes) => self.inline_line.value * f64::from(bytes.div_ceil(LINE)),
            CpuWork::Resume => self.resume.value,
            CpuWork::RpcDecode => self.rpc_decode.value,
            CpuWork::RpcDispatch => self.rpc_dispatch.value,
            CpuWork::RpcEncode => self.rpc_encode.value,
            CpuWork::Copy(bytes) => self.copy_byte.value * f64::from(bytes),
            CpuWork::Probe => self.probe.value,
            CpuWork::Attempt => self.attempt.value,
            CpuWork::Access => self.access.value,
            CpuWork::Think(span) => span.0 as f64,
        }
    }
}
