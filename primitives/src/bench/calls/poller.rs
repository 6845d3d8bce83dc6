//! What a core of the load polls: the RPC endpoint, the rings, or messages by themselves.

use super::Calls;
use crate::bench::messages::Messages;
use crate::exec::{Look, Poller};
use crate::fabric::{AnyNic, CpuWork, Nic};
use crate::rpc::{RpcPoller, Service};
use crate::units::Nanos;
use std::rc::Rc;

/// Polls for one of them. Its tag is a byte of its own, as that of [`AnyNic`]: every turn looks at it several times.
#[repr(u8)]
pub(in crate::bench) enum LoadPoller<S> {
    /// Calls by datagrams alone, or no calls.
    Datagrams(RpcPoller<AnyNic, S>),
    /// Calls through rings.
    Rings(Rc<Calls>),
    /// No calls, but what they are made of.
    Messages(Rc<Messages>),
}

impl<S: Service> Poller for LoadPoller<S> {
    fn poll(&mut self) -> usize {
        match self {
            LoadPoller::Datagrams(rpc) => rpc.poll(),
            LoadPoller::Rings(calls) => {
                let net = calls.net();
                let taken = net.port.progress();
                calls.arrivals();
                // What waits already is done first: the more has come by the next sweep.
                if calls.backlog() || net.sched.has_ready() { taken } else { taken + calls.sweep() }
            }
            LoadPoller::Messages(messages) => {
                let taken = messages.net().port.progress();
                messages.arrivals();
                taken
            }
        }
    }

    fn polls_memory(&self) -> bool {
        match self {
            LoadPoller::Datagrams(rpc) => rpc.polls_memory(),
            LoadPoller::Rings(calls) => calls.net().port.nic().polls_memory(),
            LoadPoller::Messages(messages) => messages.net().port.nic().polls_memory(),
        }
    }

    fn idle(&self) -> bool {
        match self {
            LoadPoller::Datagrams(rpc) => rpc.idle(),
            LoadPoller::Rings(_) | LoadPoller::Messages(_) => false,
        }
    }

    fn serve_one(&mut self) -> bool {
        match self {
            LoadPoller::Datagrams(rpc) => rpc.serve_one(),
            LoadPoller::Rings(calls) => calls.serve_one(),
            LoadPoller::Messages(_) => false,
        }
    }

    fn backlog(&self) -> bool {
        match self {
            LoadPoller::Datagrams(rpc) => rpc.backlog(),
            LoadPoller::Rings(calls) => calls.backlog(),
            LoadPoller::Messages(_) => false,
        }
    }

    fn flush(&mut self) {
        match self {
            LoadPoller::Datagrams(rpc) => rpc.flush(),
            LoadPoller::Rings(calls) => {
                calls.flush();
                calls.look_again();
            }
            LoadPoller::Messages(messages) => messages.flush(),
        }
    }

    fn tick(&mut self, now: Nanos) {
        match self {
            LoadPoller::Datagrams(rpc) => rpc.tick(now),
            LoadPoller::Rings(calls) => calls.tick(now),
            LoadPoller::Messages(messages) => messages.tick(now),
        }
    }

    fn look_ahead(&self, look: usize) -> Look {
        match self {
            LoadPoller::Datagrams(rpc) => rpc.look_ahead(look),
            LoadPoller::Rings(calls) => calls.net().port.look_ahead(look),
            LoadPoller::Messages(messages) => messages.net().port.look_ahead(look),
        }
    }

    fn now(&self) -> Nanos {
        match self {
            LoadPoller::Datagrams(rpc) => rpc.now(),
            LoadPoller::Rings(calls) => calls.net().port.now(),
            LoadPoller::Messages(messages) => messages.net().port.now(),
        }
    }

    fn charge(&self, work: CpuWork) {
        match self {
            LoadPoller::Datagrams(rpc) => rpc.charge(work),
            LoadPoller::Rings(calls) => calls.net().port.nic().charge(work),
            LoadPoller::Messages(messages) => messages.net().port.nic().charge(work),
        }
    }
}
