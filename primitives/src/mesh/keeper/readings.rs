//! Readings of members' clocks, between the keeper's other work: the offset of each to node 0's.

use super::super::channel::ChannelError;
use super::super::clock::drift;
use super::super::session::kind;
use super::super::wait::wait_for_one;
use super::Work;
use crate::verbs::NodeId;
use std::time::{Duration, Instant};

/// Clock readings of each member, and how long one may take.
const READINGS: u32 = 40;
const READING_WITHIN: Duration = Duration::from_millis(200);

impl Work {
    /// Reads every member's clock and tells it. Members are found by their numbers: losses move lines.
    pub(super) fn read_clocks(&mut self) {
        let members: Vec<NodeId> = self.lines.iter().map(|line| line.node).collect();
        for member in members {
            self.read_and_tell(member);
        }
    }

    fn place_of(&self, member: NodeId) -> Option<usize> {
        self.lines.iter().position(|line| line.node == member)
    }

    /// Reads a member's clock, keeps the reading with the shortest round trip, and tells the member. One that does not answer is lost
    /// when it has been silent for as long as any may be; until then the others have their heartbeats.
    fn read_and_tell(&mut self, member: NodeId) {
        let mut best: Option<(u64, i64)> = None;
        let started = Instant::now();
        for _ in 0..READINGS {
            self.beat_if_due();
            let Some(index) = self.place_of(member) else { return };
            match self.read_clock(index) {
                Ok(Some((round_trip, offset))) => {
                    if best.is_none_or(|(shortest, _)| round_trip < shortest) {
                        best = Some((round_trip, offset));
                    }
                }
                Ok(None) => self.lose_if_silent(index),
                Err(error) => return self.lose(index, error.to_string()),
            }
        }
        // Without any reading nothing is known: then no times of two nodes are compared.
        let (round_trip, offset) = best.unwrap_or((u64::MAX / 2, 0));
        let mut body = offset.to_le_bytes().to_vec();
        // The best may have been the first, and clocks part while others are tried.
        let error = (round_trip / 2 + 1).saturating_add(drift(started.elapsed().as_nanos() as u64));
        body.extend_from_slice(&error.to_le_bytes());
        self.send(Some(member), kind::CLOCK, body);
    }

    /// One reading: round trip, and what to add to the member's clock.
    fn read_clock(&mut self, index: usize) -> Result<Option<(u64, i64)>, ChannelError> {
        let line = &mut self.lines[index];
        let sent = self.epoch.elapsed().as_nanos() as u64;
        line.channel.send(kind::PING, sent.to_le_bytes())?;
        let deadline = Instant::now() + READING_WITHIN;
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            let line = &mut self.lines[index];
            let Some(message) = line.channel.receive()? else {
                wait_for_one(line.channel.stream(), line.wants(), left);
                line.channel.push()?;
                continue;
            };
            let back = self.epoch.elapsed().as_nanos() as u64;
            self.lines[index].heard = Instant::now();
            let answer =
                message.body.strip_prefix(&sent.to_le_bytes()).filter(|_| message.kind == kind::PONG);
            match answer.and_then(|rest| rest.first_chunk::<8>()) {
                Some(theirs) => {
                    let middle = sent + (back - sent) / 2;
                    let offset = i128::from(middle) - i128::from(u64::from_le_bytes(*theirs));
                    return Ok(i64::try_from(offset).ok().map(|offset| (back - sent, offset)));
                }
                None => self.heard_from(index, message)?,
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MS, connected, work};
    use super::super::{Channel, Event, Line};
    use super::*;
    use std::net::TcpStream;

    /// Answers readings with a clock that stands still; returns what it is told of its own, once the connection ends.
    fn member(mut channel: Channel<TcpStream>, stands_at: u64) -> Vec<i64> {
        let mut told = Vec::new();
        loop {
            match channel.receive() {
                Ok(Some(message)) if message.kind == kind::PING => {
                    let answer = [&message.body, &stands_at.to_le_bytes()[..]].concat();
                    channel.send(kind::PONG, answer).unwrap();
                }
                Ok(Some(message)) if message.kind == kind::CLOCK => {
                    told.push(i64::from_le_bytes(message.body[..8].try_into().unwrap()));
                }
                Ok(_) => {}
                Err(_) => return told,
            }
        }
    }

    #[test]
    fn a_member_lost_while_its_clock_is_read_leaves_the_others_with_their_own() {
        for lost in 0..3 {
            let (mut lines, mut members) = (Vec::new(), Vec::new());
            for node in 0..3u16 {
                let (ours, theirs) = connected();
                lines.push(Line::new(NodeId(node + 1), ours).unwrap());
                // Hours ahead of ours, each by a number of its own. The lost one's end is closed.
                if node != lost {
                    let stands_at = (1 + u64::from(node)) << 44;
                    members.push((stands_at, std::thread::spawn(move || member(theirs, stands_at))));
                }
            }
            let (mut work, events) = work(lines);
            work.read_clocks();
            assert_eq!(work.lines.len(), 2);
            let event = events.try_recv().expect("the loss is told");
            assert!(matches!(event, Event::Lost(node, _) if node == NodeId(lost + 1)));
            drop(work);
            for (stands_at, member) in members {
                let told = member.join().unwrap();
                assert_eq!(told.len(), 1, "{told:?}: once, whoever was lost");
                assert!(
                    (-(stands_at as i64)..-(stands_at as i64) + (1 << 43)).contains(&told[0]),
                    "{told:?}"
                );
            }
        }
    }

    #[test]
    fn whose_clock_cannot_be_read_is_the_one_that_is_lost() {
        let (mut lines, mut members) = (Vec::new(), Vec::new());
        let mut mute = None;
        for node in 1..=3u16 {
            let (ours, mut theirs) = connected();
            lines.push(Line::new(NodeId(node), ours).unwrap());
            if node == 2 {
                mute = Some(theirs);
                continue;
            }
            // Answers; returns the longest time for which it heard nothing.
            members.push(std::thread::spawn(move || {
                let (mut longest, mut heard) = (Duration::ZERO, Instant::now());
                loop {
                    match theirs.receive() {
                        Ok(None) => continue,
                        Ok(Some(message)) => {
                            if message.kind == kind::PING {
                                let answer = [&message.body, &7u64.to_le_bytes()[..]].concat();
                                theirs.send(kind::PONG, answer).unwrap();
                            }
                        }
                        Err(_) => return longest,
                    }
                    longest = longest.max(heard.elapsed());
                    heard = Instant::now();
                }
            }));
        }
        let (mut work, events) = work(lines);
        work.limits.lost_after = Duration::from_secs(2);
        work.read_clocks();
        let Ok(Event::Lost(NodeId(2), why)) = events.try_recv() else { panic!("not lost") };
        assert!(why.starts_with("silent for 2 s (for "), "{why}");
        assert_eq!(work.lines.len(), 2);
        drop((work, mute));
        for member in members {
            // A fifth of a second for a reading, and a fifth from beat to beat; the machine may be slow.
            let longest = member.join().unwrap();
            assert!(longest < Duration::from_millis(1_500), "nothing heard for {longest:?}");
        }
    }

    #[test]
    fn an_answer_that_is_late_once_spoils_no_later_reading() {
        let (ours, mut theirs) = connected();
        let (mut work, _events) = work(vec![Line::new(NodeId(1), ours).unwrap()]);
        let epoch = work.epoch;
        let member = std::thread::spawn(move || {
            let mut late = true;
            loop {
                match theirs.receive() {
                    Ok(Some(message)) if message.kind == kind::PING => {
                        // The clocks are the same one. The first answer takes as long as TCP to send a lost segment again.
                        let now = epoch.elapsed().as_nanos() as u64;
                        let travel = if std::mem::take(&mut late) { READING_WITHIN + 5 * MS } else { MS };
                        std::thread::sleep(travel);
                        theirs.send(kind::PONG, [&message.body, &now.to_le_bytes()[..]].concat()).unwrap();
                    }
                    Ok(Some(message)) if message.kind == kind::CLOCK => {
                        let word =
                            |at: usize| i64::from_le_bytes(message.body[at..at + 8].try_into().unwrap());
                        return (word(0), word(8));
                    }
                    Ok(_) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        work.read_clocks();
        let (offset, error) = member.join().unwrap();
        assert!(offset.abs() <= error, "an offset of {offset} ns, good to {error} ns: it is 0");
    }
}
