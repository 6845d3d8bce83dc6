//! The clock of fabrics whose time is real.

use crate::units::Nanos;

/// Time since the fabric was made, the same for all its contexts.
pub(super) struct Clock {
    clock: quanta::Clock,
    started: quanta::Instant,
}

impl Clock {
    pub(super) fn start() -> Clock {
        let clock = quanta::Clock::new();
        Clock { started: clock.now(), clock }
    }

    #[inline]
    pub(super) fn now(&self) -> Nanos {
        Nanos(self.clock.now().duration_since(self.started).as_nanos() as u64)
    }
}
