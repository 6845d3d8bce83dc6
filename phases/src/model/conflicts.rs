//! Conflicts, and what they cost: retries, waits, and phases that run in vain.
//!
//! Transactions arrive at a record at random, and the mean transaction of the mix stands for all in what it holds and for how
//! long ([`super::held`]). A class of which it is known how many of its records go to which table comes to them in that order
//! ([`super::way`]), and meets who holds many of them once ([`Model::apart`]). What an access meets depends on how the protocol keeps its state:
//!
//! - **Counted** (OCC): a record to be locked or checked is locked, or has changed since it was read. The attempt ends after all
//!   its work, computation included, or, where it loses a lock at home, before it asks for others.
//! - **Locked** (2PL): somebody holds the record in a mode that excludes the one asked for. Without waiting the attempt ends
//!   where it meets the first such record, before it computes. Wait-die waits if it is the older one, for what is left of the
//!   hold ([`super::ages`]); with a bound, all wait, and give up if that lasts longer than the looks, or in a
//!   circle ([`super::waiting`]). What one has is held while it waits, or races, for others.
//! - **Counted**, locking first (FaSST): a write meets another writer's lock, at the first touch; a record to be checked is as under OCC.
//! - **Leased** (SUNDIAL): a write meets another writer's lock, at the first touch; a lease that has to be extended meets a
//!   writer that holds the record or has been there.
//! - **Versions** (MVCC): a read meets the lock of a writer, whose place in the order is taken to be earlier, since it has come
//!   that far already; a write meets a lock, or somebody with a later place who was quicker. Versions are taken to last.
//!
//! Under OCC, whoever fails comes back to the same records, and may find the one who was in its way still there ([`Met::again`]). Under other
//! protocols but wait-die it would, too, but hardly any forecast is nearer for it (`experiments/REGRET.md`).
//!
//! Readers that share a lock one-sided exclude nobody, and are in each other's way all the same: see [`super::races`].
//!
//! Not in it: clocks that differ.

use super::ages::PLACES;
use super::chances::{LEAST_SUCCESS, Odds, POWERS, Spread, Together};
use super::costs::Costs;
use super::forecast::Model;
use super::held::{Mean, Until, plus};
use super::input::{Band, KINDS, TxnClass};
use super::met::Met;
use super::races::Readers;
use super::runs::Runs;
use super::solve::Solution;
use super::waiting::{Waiting, circles};
use crate::plan::Via;
use crate::rule::{OnConflict, Packing};

/// Looks at a lock that follow each other at once, before whoever waits pauses.
const LOOKS_AT_ONCE: f64 = 4.0;

/// For how long others hold or change records of each kind of band, per transaction of theirs, in nanoseconds.
#[derive(Clone, Copy)]
struct Exposed {
    /// Those that they write.
    by_writes: [f64; KINDS],
    /// Those that they only read.
    by_reads: [f64; KINDS],
    wanted: Option<Wanted>,
    /// How many of a kind who holds one holds at a time, of those that are written and of those that are only read.
    together: [[f64; KINDS]; 2],
}

/// Records that are read and that somebody wants to write: no more readers come until those have left.
#[derive(Clone, Copy)]
struct Wanted {
    /// Records asked for to be written, per transaction.
    asked: [f64; KINDS],
    /// For how long those are held that are only read, and how much of that is left for who comes, in nanoseconds.
    read_ns: [f64; KINDS],
    left: [f64; KINDS],
}

impl Exposed {
    fn by_writers(by_writes: [f64; KINDS]) -> Exposed {
        Exposed { by_writes, by_reads: [0.0; KINDS], wanted: None, together: [[1.0; KINDS]; 2] }
    }
}

/// Who else is there: all coroutines, and the transactions of one of them per nanosecond.
#[derive(Clone, Copy)]
struct Others {
    rate: f64,
    customers: f64,
}

/// How accesses of a kind end.
struct Ends {
    /// Of such accesses of the kind of band, or of all of them, the share that are of this kind of access; and bands that they go to.
    share: f64,
    bands: usize,
    /// How many meet somebody, in each kind of band; and of those to the kind that is looked at, the share that do.
    met: [f64; KINDS],
    meets: f64,
    /// How often one waits, and for how long.
    waits: f64,
    waited_ns: f64,
    /// The chance that it gives up.
    gives_up: f64,
    /// The chance that it does well as often as this, from once on, or at this place; and how often it waits there.
    well: [f64; POWERS],
    waits_at: [f64; PLACES],
}

/// What an access is for, and of those that write whether it is to a band whose parts keep to themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Home,
    Write,
    Read,
}

impl Model<'_> {
    /// What accesses meet at the rate and latencies of `solution`; `runs` are those of the classes, given `met`.
    pub(super) fn conflicts(
        &self,
        costs: &Costs,
        met: &Met,
        runs: &[Runs],
        solution: &Solution,
        customers: f64,
    ) -> Met {
        let mut sum = Mean::default();
        for (index, runs) in runs.iter().enumerate() {
            self.add_class(&mut sum, costs, met, runs, solution, index);
        }
        let mean = |sum: f64, weight: f64| if weight > 0.0 { sum / weight } else { 0.0 };
        let until =
            Until { lock: mean(sum.until_lock, sum.writers), check: mean(sum.until_check, sum.readers) };
        let others = Others { rate: solution.rate, customers };
        let mut next = Met::default();
        // What accesses that write and that read meet, of who takes so long until then; and how they wait.
        let exposed = |until: Until| match self.needs().packing {
            Packing::Counted if !self.needs().locks_first => [
                Exposed::by_writers(plus(sum.written_ns, until.lock, sum.commits)),
                Exposed::by_writers(plus(sum.written_ns, until.check, sum.commits)),
            ],
            Packing::Counted | Packing::Leased => [
                Exposed::by_writers(sum.written_ns),
                Exposed::by_writers(plus(sum.written_ns, until.check, sum.commits)),
            ],
            Packing::Versions => {
                // Of those that began after it, who has come to the record before it does: both at any moment of their
                // span.
                let quicker = sum.span / 6.0;
                let by_writes = plus(sum.written_ns, quicker, sum.commits);
                let by_reads = plus([0.0; KINDS], quicker, sum.looks);
                [Exposed { by_reads, ..Exposed::by_writers(by_writes) }, Exposed::by_writers(sum.written_ns)]
            }
            Packing::Locked => {
                // Held by one alone even where it is only read, or with others.
                let not_shared = if self.needs().shared_locks { [0.0; KINDS] } else { sum.read_ns };
                let by_writes = sum.written_ns;
                // Who comes to a record that is read under wait-die marks it, whether it waits or dies.
                let marks = self.needs().shared_locks && self.needs().on_conflict == OnConflict::WaitIfOlder;
                let wanted =
                    marks.then(|| Wanted { asked: sum.wants, read_ns: sum.read_ns, left: sum.aging.left() });
                [
                    Exposed { by_reads: sum.read_ns, ..Exposed::by_writers(by_writes) },
                    Exposed { by_reads: not_shared, wanted, ..Exposed::by_writers(by_writes) },
                ]
            }
        };
        let together = [(sum.written_together, sum.written_ns), (sum.read_together, sum.read_ns)];
        let together = together
            .map(|(together, alone)| std::array::from_fn(|kind| mean(together[kind], alone[kind]).max(1.0)));
        let exposed = |until: Until| exposed(until).map(|exposed| Exposed { together, ..exposed });
        let [to_write, to_read] = exposed(until);
        let mut waiting = Waiting::Never;
        if self.needs().packing == Packing::Locked {
            // What is left of a hold that somebody meets: the longer it is the likelier it is met.
            let left = 0.5 * mean(sum.hold_squared, sum.hold);
            let holders = ((customers - 1.0) * solution.rate * sum.held).max(1.0);
            let closes = match self.workload().reads_ahead {
                // All its locks are new: it closes a circle if it is quicker at the next that is freed.
                true => 0.5 * self.wanted(others, [to_write, to_read], [sum.writers, sum.readers]),
                false => 1.0 / holders,
            };
            let circles = circles(mean(sum.blocked, sum.hold), closes);
            waiting = match self.needs().on_conflict {
                OnConflict::Fail => Waiting::Never,
                OnConflict::WaitIfOlder => {
                    Waiting::Older(sum.aging.ages(self.workload().reads_ahead, customers - 1.0))
                }
                OnConflict::Retry(times) => {
                    Waiting::So { left, patience: f64::from(times) * sum.look, circles }
                }
            };
        }
        let of = |access, exposed| self.over_bands(others, access, exposed, waiting, None);
        let (home, writes, reads) =
            (of(Access::Home, to_write), of(Access::Write, to_write), of(Access::Read, to_read));
        // By where it is that accesses meet somebody.
        let [commits, looks] = [sum.commits, sum.looks].map(|of_kind| of_kind.iter().sum::<f64>());
        let (mut met_in_all, mut again) = (0.0, 0.0);
        for kind in 0..KINDS {
            let met = commits * (home.met[kind] + writes.met[kind]) + looks * reads.met[kind];
            met_in_all += met;
            again += met * mean(sum.still_there[kind], sum.failing[kind]);
        }
        next.again = mean(again, met_in_all);
        if self.needs().packing == Packing::Locked {
            let writers = mean(sum.writers, sum.writers + sum.readers);
            let of_all = |home: f64, write: f64, read: f64| (home + write) * writers + read * (1.0 - writers);
            let mut waits = of_all(home.waits, writes.waits, reads.waits);
            let mut waited = of_all(home.waited_ns, writes.waited_ns, reads.waited_ns);
            let at_once = match self.needs().on_conflict {
                // The owner looks, and answers once.
                OnConflict::WaitIfOlder if costs.locked_by != Some(Via::OneSided) => 0.0,
                OnConflict::WaitIfOlder => LOOKS_AT_ONCE,
                OnConflict::Retry(times) => f64::from(times),
                OnConflict::Fail => 0.0,
            };
            // Who asks for all at once waits for the last: so many waits at a time are as long as the longest. Its rounds are one phase.
            let together = |waits: f64| {
                let each = sum.at_once * waits;
                if each > 0.0 && sum.at_once > 1.0 { each.ln_1p() / each } else { 1.0 }
            };
            next.held_up_ns = waited * together(waits);
            if let Waiting::Older(ages) = waiting {
                let at: [f64; PLACES] =
                    std::array::from_fn(|n| of_all(home.waits_at[n], writes.waits_at[n], reads.waits_at[n]));
                let met = std::array::from_fn(|n| of_all(home.met[n], writes.met[n], reads.met[n]));
                let held_up = sum.aging.held_up(ages, met, (waits, at), together);
                (waits, waited) = (held_up.waits, held_up.ns);
                (next.held_up_ns, next.done_ns) = (held_up.ns, held_up.done_ns);
                next.again = sum.aging.again(self.workload(), met);
            }
            next.looks = if sum.look > 0.0 { (waited / sum.look).min(waits * at_once) } else { 0.0 };
            next.waits = waits;
            next.wait_ns = (next.held_up_ns - next.looks * sum.one).max(0.0);
            if self.readers_race(costs) {
                let readers = Readers {
                    shared: sum.shared,
                    entered: sum.entered,
                    alone: sum.alone,
                    shared_ns: sum.read_ns.iter().sum(),
                    hold_ns: mean(sum.hold, sum.writers + sum.readers),
                    look_ns: sum.look,
                };
                let unraced_ns = (1.0 / solution.rate - met.raced_ns).max(sum.look);
                let races = self.races(readers, unraced_ns, customers, self.leaves_by_cas(costs));
                next.raced_ns = readers.lost_ns(races);
                let readers = 1.0 - writers;
                next.race_looks = readers * races.enter;
                next.leaves = races.leave;
                // Each goes on by itself where all were asked for at once.
                let alone = readers * (races.enter + next.leaves) * (sum.look - sum.one);
                next.race_ns = (alone + readers * races.pause_ns).max(0.0);
                next.entering_ns = readers * (races.enter * sum.look + races.pause_ns);
            }
        }
        next.odds = Odds {
            home: home.gives_up,
            write: writes.gives_up,
            read: reads.gives_up,
            spread: Spread { home: home.well, write: writes.well, read: reads.well },
            by_kind: [0.0; KINDS],
            meets: mean(met_in_all, commits + looks),
        };
        if self.workload().classes.iter().any(|class| !class.kinds.is_empty()) {
            let classes = self.workload().classes.iter().zip(&sum.until);
            let own = classes.map(|(class, &until)| match class.kinds.is_empty() {
                true => next.odds,
                false => self.odds_of(class, others, exposed(until), waiting),
            });
            next.own = own.collect();
        }
        next
    }

    /// The odds of a class of which it is known how many of its accesses go to each kind of band.
    fn odds_of(
        &self,
        class: &TxnClass,
        others: Others,
        [to_write, to_read]: [Exposed; 2],
        waiting: Waiting,
    ) -> Odds {
        let [mut home, mut write, mut read] = [Together::none(); 3];
        let at_touch = matches!(self.needs().packing, Packing::Locked | Packing::Versions);
        let (mut by_kind, mut meets) = ([0.0; KINDS], 0.0);
        for ((kind, asked), ends_by) in (0..).zip(&class.kinds).zip(&mut by_kind) {
            let on_the_way = |home: &Together, write: &Together, read: &Together| {
                home.does_well() + write.does_well() + if at_touch { read.does_well() } else { 0.0 }
            };
            let before = on_the_way(&home, &write, &read);
            for (sum, access, accesses, exposed) in [
                (&mut home, Access::Home, asked.writes, to_write),
                (&mut write, Access::Write, asked.writes, to_write),
                (&mut read, Access::Read, asked.reads, to_read),
            ] {
                if accesses <= 0.0 {
                    continue;
                }
                let ends = self.over_bands(others, access, exposed, waiting, Some(kind));
                let accesses = accesses * ends.share;
                let apart = self.apart(accesses, kind, access, exposed);
                // A holder of several that is waited for at one of them is not waited for at the next.
                meets += apart * ends.meets;
                match ends.bands {
                    0 => sum.add(accesses, 0.0, 0.0, &ends.well),
                    1 if self.needs().on_conflict != OnConflict::WaitIfOlder => {
                        sum.add_alike(accesses, apart, ends.gives_up)
                    }
                    _ => sum.add(accesses, apart, ends.gives_up, &ends.well),
                }
            }
            *ends_by = -(on_the_way(&home, &write, &read) - before).exp_m1();
        }
        let [(home, home_well), (write, write_well), (read, read_well)] =
            [home, write, read].map(|sum| sum.each());
        let spread = Spread { home: home_well, write: write_well, read: read_well };
        Odds { home, write, read, spread, by_kind, meets: meets / (class.reads + class.writes).max(1.0) }
    }

    /// As how many accesses, each by itself, so many of one transaction to a kind of bands meet others who hold several of its records: of
    /// fifty accesses that one has met a holder of ten, others may meet the same. With a hundredth of all records in its hands a holder is
    /// met by one access in a hundred, and by fifty with chance `1 - 0.99^50`. Bands of a kind are taken to be all of one sort, kept apart or not.
    fn apart(&self, accesses: f64, kind: u32, access: Access, exposed: Exposed) -> f64 {
        if accesses <= 1.0 {
            return accesses;
        }
        let of = kind as usize;
        let [written, read] = self.of_kind[of];
        let [with_writes, with_reads] = exposed.together.map(|together| together[of]);
        let share = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
        // Of those who hold a record of the kind, the shares that write it and that read it, times how many they hold.
        let all = exposed.by_writes[of] + exposed.by_reads[of];
        let by_writers = share(exposed.by_writes[of] * with_writes, all);
        let by_readers = share(exposed.by_reads[of] * with_reads, all);
        // The chance that an access meets such a holder.
        let bands = self.workload().bands.iter().zip(&self.reads).filter(|(band, _)| band.kind == kind);
        let met: f64 = bands
            .map(|(band, &reads)| {
                let writes = band.writes.unwrap_or(band.share);
                let (writes, reads) = (share(writes, written), share(reads, read));
                let asked = if access == Access::Read { reads } else { writes };
                asked * (by_writers * writes + by_readers * reads) * band.parts / band.records
            })
            .sum();
        // Next to nothing: each by itself.
        if met * accesses < 1e-6 {
            return accesses;
        }
        let met = met.min(1.0);
        (1.0 - (1.0 - met).powf(accesses)) / met
    }

    /// Whether readers ask by CAS for locks that they share.
    pub(super) fn readers_race(&self, costs: &Costs) -> bool {
        let shared = self.needs().packing == Packing::Locked && self.needs().shared_locks;
        shared && self.workload().reads() > 0.0 && costs.locked_by == Some(Via::OneSided)
    }

    /// Whether they leave by CAS, too: where ages are part of the word. Else it is a FETCH_ADD, which nobody disturbs.
    fn leaves_by_cas(&self, costs: &Costs) -> bool {
        self.needs().on_conflict == OnConflict::WaitIfOlder && costs.left_by == Some(Via::OneSided)
    }

    /// What becomes of such accesses where others hold or change records for `exposed` per transaction.
    ///
    /// The chance to give up is such that attempts come out right: a retry goes to the same records
    /// again, so who has met somebody on a hot record will again, and what counts is the mean of the attempts needed, not
    /// of the chances.
    fn over_bands(
        &self,
        others: Others,
        access: Access,
        exposed: Exposed,
        waiting: Waiting,
        kind: Option<u32>,
    ) -> Ends {
        let mut sum = Ends {
            share: 0.0,
            bands: 0,
            met: [0.0; KINDS],
            meets: 0.0,
            waits: 0.0,
            waited_ns: 0.0,
            gives_up: 0.0,
            well: [0.0; POWERS],
            waits_at: [0.0; PLACES],
        };
        let (mut attempts, mut all, mut asked) = (0.0, 0.0, 0.0);
        for (band, &reads) in self.workload().bands.iter().zip(&self.reads) {
            if kind.is_some_and(|kind| band.kind != kind) {
                continue;
            }
            let writes = band.writes.unwrap_or(band.share);
            asked += if access == Access::Read { reads } else { writes };
            let share = match access {
                Access::Read => reads,
                _ if (access == Access::Home) == self.keeps_apart(band) => writes,
                _ => continue,
            };
            if share <= 0.0 {
                continue;
            }
            sum.bands += 1;
            // Who may come to the same records: of parts of their own those of the part, and of others those that go away from theirs.
            let not_others = match access {
                Access::Write if band.parts <= 1.0 => self.not_others,
                _ => band.parts * (1.0 - band.away),
            };
            let rate = others.rate * (others.customers - not_others).max(0.0);
            let there = self.there(band, reads, exposed, rate);
            let met = 1.0 - (-rate * there / band.records).exp();
            let outcome = waiting.at(met);
            sum.met[band.kind as usize] += share * met;
            sum.waits += share * outcome.waits;
            sum.waited_ns += share * outcome.waited_ns;
            attempts += share / (1.0 - outcome.gives_up).max(LEAST_SUCCESS);
            all += share;
            for n in 0..POWERS {
                sum.well[n] += share * outcome.well[n];
                sum.waits_at[n] += share * outcome.waits_at[n];
            }
        }
        if all <= 0.0 {
            // Nobody else writes there: it is as good as one that everybody may write.
            let share = f64::from(u8::from(asked <= 0.0 && access != Access::Home));
            return Ends { share, well: [1.0; POWERS], ..sum };
        }
        let well = sum.well.map(|sum| (sum / all).min(1.0));
        let meets = sum.met.iter().sum::<f64>() / all;
        Ends { share: all / asked, gives_up: (1.0 - all / attempts).max(0.0), well, meets, ..sum }
    }

    /// For how long others hold or change records of a band, to which so many of the accesses that read go and others come at this rate.
    fn there(&self, band: &Band, reads: f64, exposed: Exposed, rate: f64) -> f64 {
        let kind = band.kind as usize;
        let [written, read] = self.of_kind[kind];
        // What is known of a kind falls on its bands by their shares.
        let part = |ns: f64, share: f64, all: f64| if all > 0.0 { ns * share / all } else { 0.0 };
        let writes = band.writes.unwrap_or(band.share);
        let marked = exposed.wanted.map_or(0.0, |Wanted { asked, read_ns, left }| {
            let readers = rate * part(read_ns[kind], reads, read) / band.records;
            part(asked[kind], writes, written) * left[kind] * -(-readers).exp_m1()
        });
        part(exposed.by_writes[kind], writes, written) + part(exposed.by_reads[kind], reads, read) + marked
    }

    /// The chance that a transaction which writes and reads so many records wants the one that somebody waits for, and not only to
    /// share it. Of records that nobody writes none is waited for, however many read it.
    fn wanted(&self, others: Others, [to_write, to_read]: [Exposed; 2], [writes, reads]: [f64; 2]) -> f64 {
        let (mut sum, mut waits) = (0.0, 0.0);
        for (band, &read) in self.workload().bands.iter().zip(&self.reads) {
            let rate = others.rate * (others.customers - band.parts * (1.0 - band.away)).max(0.0);
            let met = |exposed| -(-rate * self.there(band, read, exposed, rate) / band.records).exp_m1();
            let (written, read) = (writes * band.writes.unwrap_or(band.share), reads * read);
            // Who has the lock is in the way of all who wait to write, and only as a writer of those who wait to read.
            for (asked, exposed, rivals) in [(written, to_write, written + read), (read, to_read, written)] {
                let waiting = if asked > 0.0 { asked * met(exposed) } else { 0.0 };
                sum += waiting * (rivals * band.parts / band.records).min(1.0);
                waits += waiting;
            }
        }
        if waits > 0.0 { sum / waits } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{calm, cluster, profile};
    use super::super::input::{Asked, Cluster, Elsewhere, TxnClass, Workload};
    use super::*;
    use crate::plan::Needs;

    /// Ten accesses to ten records meet who holds them all once; to a million they meet holders of ten each by itself.
    #[test]
    fn who_holds_many_is_met_once() {
        let apart = |records: f64, accesses: f64| {
            let class = TxnClass {
                kinds: vec![Asked { reads: 0.0, writes: 10.0 }],
                ..TxnClass::new("x", 1.0, 0.0, 10.0)
            };
            let bands = vec![Band::new(records, 1.0)];
            let workload = Workload { classes: vec![class], bands, ..calm(4) };
            let profile = profile();
            let model = Model::new(&profile, cluster(4, 1), &workload, &Needs::NOWAIT).expect("valid inputs");
            let held = Exposed { together: [[10.0; KINDS]; 2], ..Exposed::by_writers([1.0; KINDS]) };
            model.apart(accesses, 0, Access::Write, held)
        };
        assert_eq!((apart(10.0, 10.0), apart(10.0, 1.0)), (1.0, 1.0));
        assert!((apart(1e6, 10.0) - 10.0).abs() < 1e-3, "{}", apart(1e6, 10.0));
        let half = apart(100.0, 10.0);
        assert!((half - (1.0 - 0.9_f64.powi(10)) / 0.1).abs() < 1e-9, "{half}");
    }

    #[test]
    fn a_writer_has_as_many_others_as_come_to_its_records() {
        let cluster = |nodes| Cluster { nodes, threads: 1, backups: 0, lanes: 1 };
        let workload = |elsewhere: Option<f64>| {
            let there = elsewhere.map(|writes| Elsewhere { reads: 0.0, writes });
            let class = TxnClass { elsewhere: there, ..TxnClass::new("x", 1.0, 0.0, 8.0) };
            Workload { classes: vec![class], local_share: 0.25, ..calm(4) }
        };
        let not_others = |nodes, elsewhere| workload(elsewhere).not_others(&cluster(nodes));
        // All nodes alike: all but itself. Of a node's records only those of others': one in four is of the own one.
        assert!((not_others(4, None) - 1.0).abs() < 1e-12);
        assert!((not_others(4, Some(8.0)) - 4.0 / 3.0).abs() < 1e-12);
        // Of two nodes the other's coroutines never come there; where all stay at home, nobody but its own ever does.
        assert!((not_others(2, Some(8.0)) - 2.0).abs() < 1e-12);
        assert!((not_others(4, Some(0.0)) - 4.0).abs() < 1e-12);
        assert_eq!(not_others(1, None), 1.0);
    }
}
