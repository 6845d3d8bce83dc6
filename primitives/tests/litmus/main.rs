//! Litmus tests: what a fabric may and may not do, written once and run on every fabric.
//!
//! The tests are the meaning of the fabrics' memory model and error behaviour, in the manner of loom's
//! `tests/litmus.rs`; the hazards are those of rdma_bench and of the InfiniBand specification, chapters 9 and 10.
//! *never*: forbidden, asserted on every run. *shows*: allowed, and asserted to be seen on one of a stated number
//! of seeds. *cannot*: the verbs allow it, this fabric has no way to show it, and the test asserts that too where
//! the fabric promises it. *told*: a real device may show it and nothing can make it, so the test prints whether it was seen.
//! The column of devices is run where `DOORBELL_VERBS_DEVICE` names one.
//!
//! | outcome | posting thread | NIC thread | sim | a device | test |
//! |---|---|---|---|---|---|
//! | later WRITE of a queue pair visible before an earlier one, to the CPU | never | never | never | never | `order::writes_*_cpu` |
//! | the same, to READs of another node | never | never | never | never | `order::writes_*_reads` |
//! | READ misses an earlier WRITE of its queue pair | never | never | never | never | `order::a_read_sees_*` |
//! | WRITEs of two queue pairs visible against posting order | cannot | shows | shows | told | `order::across_queue_pairs_*` |
//! | completions of a queue pair out of order | never | never | never | never | `order::completions_*` |
//! | WRITE completed but not yet visible to the remote CPU | never | never | shows, if asked to | told | `order::a_completed_write_*` |
//! | WRITE of several words seen half done | cannot | shows | shows | told | `tearing::a_long_write_*` |
//! | READ of several words half old, half new | cannot | shows | shows | told | `tearing::a_long_read_*` |
//! | an aligned word seen half old, half new | never | never | never | never | both of `tearing` |
//! | inline payload delivered as overwritten after the post | never | never | never | never | `payload::inline_*` |
//! | other payload delivered as overwritten after the post | cannot | shows | shows | told | `payload::others_*` |
//! | FETCH_ADDs of several queue pairs lose one | never | never | never | never | `atomics::fetch_adds_*` |
//! | two CASes win the same word | never | never | never | never | `atomics::one_cas_*` |
//! | CPU atomic or store lost to a NIC atomic, scope Nic | - | - | shows | told | `atomics::the_cpu_*` |
//! | the same, scope Global | never | never | never | never | `atomics::the_cpu_*` |
//! | WRITE undone by a CAS that found another value | never | never | never; shows, if asked to | never, or told: `Caps::failed_cas_stores` | `atomics::a_failed_cas_*`; of a device `tests/verbs.rs`, where two threads ask |
//! | SEND without RECV completes, or is passed by a later WRITE | never | never | never | never | `receive::a_send_waits_*` |
//! | RNR retries used up, later requests flushed | always | always | always | always | `receive::used_up_*` |
//! | datagram without RECV, with a wrong key, to a dead node | lost, sender succeeds | same | same | same | `datagram::*` |
//! | requests behind a failed one executed | never | never | never | never | `errors::*` |
//! | a failure completes before an earlier, unsignaled request is executed | never | never | never | never | `errors::a_failure_confirms_*` |
//! | unsignaled requests free their places unconfirmed | never | never | never | never | `depth::*` |

#[path = "../common/mod.rs"]
mod common;

mod atomics;
mod datagram;
mod depth;
mod errors;
mod order;
mod payload;
mod receive;
mod tearing;
