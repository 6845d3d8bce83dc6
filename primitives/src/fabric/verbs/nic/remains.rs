//! What a context leaves when it is closed: queue pairs, a completion queue, registrations, which the driver destroys.
//!
//! While the port is down a driver may hold whoever destroys a queue pair, in a call of the kernel that nothing interrupts: Soft-RoCE (kernel
//! 6.1) waits for every frame that it has handed to an interface which sends no more, up to 50 s. So where the port is down a thread of its
//! own does it, and whoever closes the context waits for that no longer than [`PATIENCE`]: a run that has failed then still says why, and
//! keeps what it has measured. The process itself ends no sooner than the call does, since the kernel waits for its threads; its exit code
//! comes then.

use super::super::context::Context;
use super::{State, VerbsNic};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How long a driver may take while the port is down.
const PATIENCE: Duration = Duration::from_secs(2);

/// All that a context's driver knows of. Fields drop in this order.
pub(super) struct Remains {
    pub(super) _state: State,
    pub(super) context: Arc<Context>,
}

// SAFETY: libibverbs' objects may be destroyed by any thread. They, their queue's stamps and everything else in here have no other
// owner: what was shared with other threads of the node is behind the locks of `Context`.
unsafe impl Send for Remains {}

impl Remains {
    /// Gives everything back to the driver.
    pub(super) fn destroy(self, nic: &VerbsNic) {
        if !nic.port_is_down(false) {
            return drop(self);
        }
        // Nobody registers anything more in it, or looks for its registrations.
        nic.shared.leave(nic.node, &self.context);
        if !drop_within(self, PATIENCE) {
            tell(&nic.shared.options.device, nic.shared.port.number);
        }
    }
}

/// Drops a value in a thread of its own; whether that was done within `patience`.
fn drop_within<T: Send + 'static>(value: T, patience: Duration) -> bool {
    let (gone, told) = channel::<()>();
    let drops = move || {
        drop(value);
        drop(gone); // a channel that is closed says so
    };
    // Where the system starts no thread the closure is dropped here, and the value with it.
    let thread = std::thread::Builder::new().name("remains".into()).spawn(drops);
    thread.is_err() || told.recv_timeout(patience) != Err(RecvTimeoutError::Timeout)
}

/// Says once what may hold the process at its end.
fn tell(device: &str, port: u8) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        eprintln!(
            "warning: port {port} of {device} is DOWN (or not active yet), and its driver has not destroyed the queue pairs within {} s: this process goes on \
             without, and ends when the driver is done or the port is up again",
            PATIENCE.as_secs()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender};

    /// Like a queue pair whose destruction takes until somebody lets it go, and says when it is done.
    struct Held(Receiver<()>, Sender<()>);

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = self.0.recv();
            let _ = self.1.send(());
        }
    }

    #[test]
    fn what_a_driver_holds_is_waited_for_so_long_and_no_longer() {
        let (let_go, held) = channel();
        let (done, is_done) = channel();
        assert!(!drop_within(Held(held, done), Duration::from_millis(50)));
        assert!(is_done.try_recv().is_err(), "it is still at it");
        drop(let_go);
        assert_eq!(is_done.recv(), Ok(()), "and goes on to the end");

        let (let_go, held) = channel();
        let (done, is_done) = channel();
        drop(let_go);
        assert!(drop_within(Held(held, done), Duration::from_secs(60)));
        assert_eq!(is_done.try_recv(), Ok(()), "what takes no time is done when it returns");
    }
}
