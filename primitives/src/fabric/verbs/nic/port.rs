//! Whether the port is down, for whoever has failed.

use super::VerbsNic;
use std::time::Duration;

/// Whether time was given to the port to take notice, and in vain: then nobody waits again. Where it was down, whoever finds it
/// up and fails later waits anew, since it may be about to go down once more.
#[derive(Default)]
pub(super) struct Notice {
    in_vain: bool,
}

impl Notice {
    /// Whether the port is down, says `is_down`, which is asked whether to be patient; not where a failure has taken time `already`.
    pub(super) fn ask(&mut self, already: bool, is_down: impl FnOnce(bool) -> bool) -> bool {
        let patiently = !already && !self.in_vain;
        let down = is_down(patiently);
        self.in_vain = !down && (self.in_vain || patiently);
        down
    }
}

impl VerbsNic {
    /// Whether the device says so, or says nothing any more. On InfiniBand a link that came back is not active either until the subnet manager
    /// has swept it. A request may fail before the device takes notice that its link goes: on Ethernet the kernel
    /// stops the interface first and tells the RDMA driver after it. So one may ask `patiently`, for up to a second.
    #[cold]
    #[expect(
        clippy::disallowed_methods,
        reason = "no virtual time here, and whoever failed has nothing else to do"
    )]
    pub(super) fn port_is_down(&self, patiently: bool) -> bool {
        let times = if patiently { 100 } else { 1 };
        (0..times).any(|asked| {
            if asked > 0 {
                std::thread::sleep(Duration::from_millis(10));
            }
            self.context.port_state(self.shared.port.number) != Ok("ACTIVE")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_came_back_is_waited_for_anew() {
        let mut notice = Notice::default();
        // It goes down, and takes notice a little later than the request that fails; the next ones find it down at once.
        assert!(notice.ask(false, |patiently| patiently));
        assert!(notice.ask(false, |_| true));
        assert!(notice.ask(true, |patiently| !patiently), "a transport that has waited already asks once");
        // It came back, and goes down again.
        assert!(notice.ask(false, |patiently| patiently));
    }

    #[test]
    fn nobody_waits_twice_in_vain() {
        let mut notice = Notice::default();
        let mut waited = 0;
        for _ in 0..3 {
            assert!(!notice.ask(false, |patiently| {
                waited += u32::from(patiently);
                false
            }));
        }
        assert_eq!(waited, 1);
        assert!(!notice.ask(true, |patiently| patiently));
        // Whatever failed then, the port is down now; and is waited for when that is over.
        assert!(notice.ask(false, |_| true));
        assert!(notice.ask(false, |patiently| patiently));
    }
}
