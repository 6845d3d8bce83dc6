//! First-in-first-out servers as counters.
//!
//! A server is the time at which it is next free. Work is charged to it at the event that brings the work, in
//! event order, so capacity is never lost: a message that leaves an earlier stage later than `now` finishes
//! here no earlier than `earliest + service`, but does not keep the server from others in the meantime. Where
//! an earlier stage is the bottleneck it has spaced the messages already, and this stage adds its service
//! time.

/// A FIFO server.
#[derive(Clone, Copy, Default)]
pub(super) struct Server {
    free_at: u64,
}

impl Server {
    /// Work of `service` that starts at `earliest`, charged at `now`. Returns when it is done.
    #[inline]
    pub fn pass(&mut self, now: u64, earliest: u64, service: u64) -> u64 {
        self.free_at = self.free_at.max(now) + service;
        self.free_at.max(earliest + service)
    }

    /// The receiving end of a link: a message whose last bit comes in at `now` took `service` on the way, so
    /// an idle link adds nothing and messages from several senders at once queue up.
    #[inline]
    pub fn drain(&mut self, now: u64, service: u64) -> u64 {
        self.free_at = (self.free_at + service).max(now);
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::Server;

    #[test]
    fn work_queues_in_order_and_idle_time_passes() {
        let mut server = Server::default();
        assert_eq!(server.pass(100, 100, 10), 110);
        assert_eq!(server.pass(100, 100, 10), 120);
        assert_eq!(server.pass(200, 200, 10), 210);
        // Late work keeps nobody waiting: two units of work were charged, and the second is done by 220.
        assert_eq!(server.pass(200, 500, 10), 510);
        assert_eq!(server.pass(200, 200, 10), 230);
    }

    #[test]
    fn an_idle_link_adds_nothing_and_a_busy_one_spaces_messages() {
        let mut link = Server::default();
        assert_eq!(link.drain(100, 30), 100);
        assert_eq!(link.drain(100, 30), 130);
        assert_eq!(link.drain(1000, 30), 1000);
    }
}
