//! First-in-first-out servers as counters, and lines on which short messages pass long ones.
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
}

/// One end of a link, or one direction of a bus. What is no longer than a packet passes between the packets of longer messages,
/// which go one after the other. When a long one ends is settled as it is charged: short ones that come later delay those behind it, not
/// itself, so that over times as long as what is queued more may pass than there is room for, and over longer ones not.
#[derive(Clone, Copy, Default)]
pub(super) struct Line {
    /// Work of all messages. Short ones let it lie back by as much as the longest message takes: that may have been under way
    /// since, and is charged when its last packet comes.
    all: u64,
    /// What the longest message took; 0 while all were short, which need no second count.
    longest: u64,
    /// With nothing but short messages, since there were others.
    short: u64,
}

impl Line {
    /// A message of `service` that may be on the line from `earliest` on, charged from `began`, which is `now` or lies back by as much of the
    /// message as was under way before; one packet takes `packet`. Returns when its end has passed.
    #[inline(always)]
    pub fn pass(&mut self, began: u64, earliest: u64, service: u64, packet: u64) -> u64 {
        if service > packet {
            return self.long(began, earliest, service);
        }
        self.between(began, earliest, service, packet)
    }

    /// The same for what is in no one's way for longer than a packet.
    #[inline(always)]
    pub fn between(&mut self, began: u64, earliest: u64, service: u64, packet: u64) -> u64 {
        if self.longest > 0 {
            return self.amid_long(began, earliest, service, packet);
        }
        self.all = self.all.max(began) + service;
        self.all.max(earliest + service)
    }

    #[cold]
    fn long(&mut self, began: u64, earliest: u64, service: u64) -> u64 {
        if self.longest == 0 {
            self.short = self.all;
        }
        self.longest = self.longest.max(service);
        self.all = self.all.max(began) + service;
        self.all.max(earliest + service)
    }

    #[cold]
    fn amid_long(&mut self, began: u64, earliest: u64, service: u64, packet: u64) -> u64 {
        self.all = self.all.max(began.saturating_sub(self.longest)) + service;
        self.short = self.short.max(began) + service;
        self.short.max(self.all.min(self.short + packet)).max(earliest + service)
    }

    /// The receiving end of a link, which is also the queue of the switch's port: a message whose last bit comes in at `now` took `service` on
    /// the way, so an idle link adds nothing and messages from several senders at once queue up.
    #[inline]
    pub fn drain(&mut self, now: u64, service: u64, packet: u64) -> u64 {
        let began = now.saturating_sub(service);
        self.pass(began, began, service, packet)
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, Server};

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
    fn without_long_messages_a_line_is_a_server() {
        let (mut line, mut server, mut now) = (Line::default(), Server::default(), 0);
        for turn in 0..10_000_u64 {
            now += turn * 7919 % 61;
            let (service, later) = (1 + turn * 104_729 % 40, turn * 31 % 90);
            assert_eq!(line.pass(now, now + later, service, 40), server.pass(now, now + later, service));
        }
    }

    #[test]
    fn an_idle_link_adds_nothing_and_a_busy_one_spaces_messages() {
        let mut link = Line::default();
        assert_eq!(link.drain(100, 30, 40), 100);
        assert_eq!(link.drain(100, 30, 40), 130);
        assert_eq!(link.drain(1000, 30, 40), 1000);
    }

    #[test]
    fn short_messages_pass_between_the_packets_of_long_ones() {
        let mut line = Line::default();
        assert_eq!(line.pass(0, 0, 10, 20), 10);
        assert_eq!(line.pass(0, 0, 20, 20), 30);
        assert_eq!(line.pass(0, 0, 1000, 20), 1030);
        // Behind one packet and the short ones before it, not behind all.
        assert_eq!(line.pass(100, 100, 10, 20), 130);
        assert_eq!(line.pass(100, 100, 10, 20), 140);
        // The long ones behind have lost that time.
        assert_eq!(line.pass(100, 100, 1000, 20), 2050);
        // The last packet of a long message keeps nobody waiting for longer than it takes.
        assert_eq!(line.pass(2045, 2045, 10, 20), 2060);
    }

    #[test]
    fn what_comes_amid_a_long_message_takes_its_own_time_of_the_line_only() {
        let mut link = Line::default();
        assert_eq!(link.drain(1000, 1000, 40), 1000);
        assert_eq!(link.drain(1500, 30, 40), 1500);
        // From 1000 to 2000 on its way, and kept from the link for 30 by the short one.
        assert_eq!(link.drain(2000, 1000, 40), 2030);
        // Two from two senders at once are one behind the other, and a short one behind a packet.
        assert_eq!(link.drain(4000, 1000, 40), 4000);
        assert_eq!(link.drain(4000, 1000, 40), 5000);
        assert_eq!(link.drain(4000, 30, 40), 4040);
    }

    /// Over any time as much passes as there is room for, and what may be short of that by the way long messages are settled: those
    /// in the queue, whose number does not grow with the time.
    #[test]
    fn no_mix_of_messages_gets_more_of_a_line_than_there_is() {
        type Way = fn(&mut Line, u64, u64) -> u64;
        let ways: [(&str, Way); 2] = [
            ("out", |line, now, service| line.pass(now, now, service, 40)),
            ("in", |line, now, service| line.drain(now, service, 40)),
        ];
        for (name, way) in ways {
            let mut line = Line::default();
            // When each message has passed, and what it took. Long ones alone take 0.6 of the line, and so do short ones; sixteen long
            // ones are under way at a time at most, as where each waits for one before.
            let (mut ends, mut longs) = (Vec::new(), std::collections::VecDeque::from([0; 16]));
            for turn in 1..=4000_u64 {
                let now = turn * 1000;
                if longs[0] <= now {
                    longs.pop_front();
                    longs.push_back(way(&mut line, now, 600));
                    ends.push((longs[15], 600));
                }
                ends.extend((0..20).map(|short| (way(&mut line, now + short * 50, 30), 30)));
            }
            ends.sort_unstable();
            let last = ends.last().expect("messages").0;
            for window in [100_000, 1_000_000, last] {
                let most = (0..last / window).map(|at| {
                    let within = |&&(end, _): &&(u64, u64)| (at * window..=(at + 1) * window).contains(&end);
                    ends.iter().filter(within).map(|(_, service)| service).sum::<u64>()
                });
                let most = most.max().expect("windows");
                // What is queued waits for as long as it takes beside short messages, and these are what passes unseen meanwhile.
                let unseen = 16 * 600 * 6 / 4;
                assert!(most <= window + unseen + 2000, "{name}: {most} of work in {window}");
            }
        }
    }
}
