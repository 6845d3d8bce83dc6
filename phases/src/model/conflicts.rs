//! Conflicts, and what they cost: retries, waits, and phases that run in vain.
//!
//! Transactions arrive at a record at random, and the mean transaction of the mix stands for all in what it holds and for how
//! long. What an access meets depends on how the protocol keeps its state:
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

use super::ages::{Aging, Attempts, PLACES};
use super::chances::{LEAST_SUCCESS, Odds, POWERS, Spread, Together};
use super::costs::{Costs, Priced};
use super::forecast::Model;
use super::input::{Band, KINDS, TxnClass};
use super::met::Met;
use super::races::Readers;
use super::runs::{Runs, at_once_denied, checks_at_commit};
use super::solve::Solution;
use super::waiting::{Waiting, circles};
use super::way::Way;
use crate::plan::{Phase, Via};
use crate::rule::{OnConflict, Packing};
use primitives::fabric::CpuWork;

/// Looks at a lock that follow each other at once, before whoever waits pauses.
const LOOKS_AT_ONCE: f64 = 4.0;

/// What the mean transaction holds, and when it looks.
#[derive(Default)]
struct Mean {
    /// Records written, per transaction, of each kind of band; those read and not written.
    commits: [f64; KINDS],
    looks: [f64; KINDS],
    /// Time for which records that are written are locked, per transaction, and those that are only read.
    written_ns: [f64; KINDS],
    read_ns: [f64; KINDS],
    /// The same, each time as often as the transaction has such records.
    written_together: [f64; KINDS],
    read_together: [f64; KINDS],
    /// From a read to the lock, or to the check: weighted sums, and their weights; and those of each class.
    until_lock: f64,
    writers: f64,
    until_check: f64,
    readers: f64,
    until: Vec<Until>,
    /// How long a record is held that is waited for, the square of that, and for how much of it its holder waits itself: weighted sums.
    hold: f64,
    hold_squared: f64,
    blocked: f64,
    /// Time for which a transaction holds a record, attempts that fail included.
    held: f64,
    /// Time from a transaction's begin to its last access.
    span: f64,
    /// One look at a lock, and what the phase takes for one of its records.
    look: f64,
    one: f64,
    /// Locks asked for of records that are only read, and of others.
    shared: f64,
    entered: f64,
    alone: f64,
    /// Records asked for at once.
    at_once: f64,
    /// Records asked for to be written, of each kind of band, retries included.
    wants: [f64; KINDS],
    /// Where ages decide.
    aging: Aging,
    /// Under OCC, of those that an access meets, how many are still there when it comes back: weighted sums.
    still_there: [f64; KINDS],
    failing: [f64; KINDS],
}

/// How long a class takes from a read to the lock, and to the check.
#[derive(Clone, Copy, Default)]
struct Until {
    lock: f64,
    check: f64,
}

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

impl Mean {
    /// Adds that records of each kind that are written are held for so many nanoseconds each, times a factor.
    fn hold_written(&mut self, factor: f64, records: [f64; KINDS], ns: [f64; KINDS]) {
        hold(&mut self.written_ns, &mut self.written_together, factor, records, ns);
    }

    /// The same of those that are only read.
    fn hold_read(&mut self, factor: f64, records: [f64; KINDS], ns: [f64; KINDS]) {
        hold(&mut self.read_ns, &mut self.read_together, factor, records, ns);
    }
}

fn hold(
    alone: &mut [f64; KINDS],
    together: &mut [f64; KINDS],
    factor: f64,
    records: [f64; KINDS],
    ns: [f64; KINDS],
) {
    for kind in 0..KINDS {
        let held = factor * records[kind] * ns[kind];
        alone[kind] += held;
        together[kind] += held * records[kind];
    }
}

impl Exposed {
    fn by_writers(by_writes: [f64; KINDS]) -> Exposed {
        Exposed { by_writes, by_reads: [0.0; KINDS], wanted: None, together: [[1.0; KINDS]; 2] }
    }
}

/// `a` and `factor` times `b`, kind by kind.
fn plus(a: [f64; KINDS], factor: f64, b: [f64; KINDS]) -> [f64; KINDS] {
    std::array::from_fn(|kind| a[kind] + factor * b[kind])
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
                next.looks += readers * races.enter;
                next.leaves = races.leave;
                // Each goes on by itself where all were asked for at once.
                let alone = readers * (races.enter + next.leaves) * (sum.look - sum.one);
                next.wait_ns = (next.wait_ns + alone + readers * races.pause_ns).max(0.0);
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
                meets += accesses * ends.meets;
                let apart = self.apart(accesses, kind, access, exposed);
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
    /// met by one access in a hundred, and by fifty with chance `1 - 0.99^50`.
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

    /// Records of each kind of band that a class writes, and that it only reads.
    fn asked_of(&self, class: &TxnClass) -> [[f64; KINDS]; 2] {
        let known = |kind: usize| class.kinds.get(kind).copied().unwrap_or_default();
        if class.kinds.is_empty() {
            let by_share =
                |all: f64, which: usize| std::array::from_fn(|kind| all * self.of_kind[kind][which]);
            return [by_share(class.writes, 0), by_share(class.reads, 1)];
        }
        [std::array::from_fn(|kind| known(kind).writes), std::array::from_fn(|kind| known(kind).reads)]
    }

    fn add_class(
        &self,
        sum: &mut Mean,
        costs: &Costs,
        met: &Met,
        runs: &Runs,
        solution: &Solution,
        index: usize,
    ) {
        let class = &self.workload().classes[index];
        let ahead = self.at_once(costs, class);
        // Each time that it is run.
        let time = |phase: Phase| {
            let times = runs.phases[phase as usize];
            let parts = costs.parts(phase, index, times).into_iter().flatten();
            let all: f64 = parts.map(|(part, times)| times * solution.time(&part.load)).sum();
            if times > 0.0 {
                all / times
            } else {
                costs.of(phase, index).map_or(0.0, |c| solution.time(&c.load))
            }
        };
        // From the start of a releasing phase until the lock is free at the owner: half of what it takes with its answer.
        let half = |awaited: &Option<Priced>| {
            awaited.as_ref().map_or(0.0, |c| 0.5 * solution.time(&c.class(index).load))
        };
        let [installed, unlocked] = costs.awaited.each_ref().map(half);
        let (lock, check) = (time(Phase::Lock), time(Phase::Validate));
        // With what the engine computes for each record on the way.
        let fetch = time(Phase::Fetch) + class.records() * self.profile().cpu.cost_ns(CpuWork::Access);
        let (share, reads, writes) = (class.share, class.reads, class.writes);
        let unlocks = runs.phases[Phase::Unlock as usize] - runs.left_again;
        // Of each kind of band.
        let [written, read] = self.asked_of(class);
        let mut until = Until::default();
        sum.commits = plus(sum.commits, share, written);
        sum.looks = plus(sum.looks, share, read);
        sum.writers += share * writes;
        if !self.needs().locks_at_touch() {
            let held = 0.5 * lock + check + time(Phase::Log) + installed;
            // Only those who got all their locks hold them for a check as well.
            let checked = runs.phases[Phase::Validate as usize] - 1.0;
            let in_vain = unlocks * (0.5 * lock + unlocked) + checked * check;
            sum.hold_written(share * (held + in_vain), written, [1.0; KINDS]);
            until.lock = 0.5 * fetch + class.think_ns + 0.5 * lock;
            sum.until_lock += share * writes * until.lock;
            // Of those whom an access to be locked meets, some hold the record for as long as it takes to commit, and whoever reads it
            // before they have left fails by what they change; others fail themselves, or had committed between read and lock.
            let back = 0.5 * lock + self.workload().backoff_ns + 0.5 * fetch;
            sum.failing = plus(sum.failing, share * (held + in_vain + until.lock), written);
            sum.still_there = plus(sum.still_there, share * (held - back).max(0.0), written);
            if class.validates() {
                until.check = 0.5 * fetch + class.think_ns + lock + 0.5 * check;
                sum.readers += share * reads;
                sum.until_check += share * reads * until.check;
            }
            sum.until.push(until);
            return;
        }
        let at_commit = checks_at_commit(self.needs());
        // All that happens while the transaction comes to its records, and how much of it passes after a lock.
        let records = (reads + writes).max(1.0);
        // It meets others more often than the mean access, or less.
        let meets = met.meets(met.of(index));
        let waiting =
            if self.needs().packing == Packing::Locked { records * met.wait_ns * meets } else { 0.0 };
        let held_up = records * met.held_up_ns * meets;
        let looked = if at_commit { 0.0 } else { check };
        let coming = fetch + lock * (1.0 + met.looks * meets) + waiting + looked;
        // What one has while it waits for the others.
        let waits_with = if ahead { 1.0 - 1.0 / records } else { 0.5 };
        let blocked = held_up * waits_with;
        // What has been got at once is held while others are raced for.
        let raced = records * met.entering_ns;
        let after = if ahead { 0.5 * lock + blocked + raced * waits_with + looked } else { 0.5 * coming };
        let extended = if at_commit { check } else { 0.0 };
        let one = lock / records;
        let look = costs.look.as_ref().map_or(one, |c| solution.time(&c.class(index).load));
        let commit = extended + time(Phase::Log) + installed;
        let mut held = after + class.think_ns + commit;
        let failed = if at_once_denied(self.needs(), ahead) { 0.5 * lock + looked } else { after };
        let in_vain = 0.5 * failed + unlocked;
        let mut each = held + unlocks * in_vain;
        // Of holders some wait, for times that are spread as those of a process without memory.
        let waits = -(-records * met.waits * meets * if ahead { 1.0 } else { 0.5 }).exp_m1();
        let mut spread = if waits > 0.0 { blocked * blocked * (2.0 / waits - 1.0) } else { 0.0 };
        if let Some(by_age) = &runs.by_age {
            // Without waits: who waits how long comes to that.
            let way = fetch + lock + raced + looked;
            let after = if ahead { 0.5 * lock + raced * waits_with + looked } else { 0.5 * way };
            held = after + class.think_ns + commit;
            let back = if ahead { lock } else { 0.5 * coming };
            let attempts = Attempts {
                by_age,
                came_to: runs.came_to,
                unlocks,
                share,
                records,
                of_kind: plus(written, 1.0, read),
                hold: held,
                waits_with,
                in_vain,
                way,
                beyond: class.think_ns + commit,
                back: back + time(Phase::Unlock),
            };
            (each, spread) = (sum.aging.add(&attempts, met.done_ns), 0.0);
            sum.wants = plus(sum.wants, share * runs.came_to, written);
        }
        if self.needs().packing == Packing::Counted {
            // It comes to the same record again when those before it have been got again.
            let way = if ahead { lock } else { 0.5 * coming };
            let back = way + time(Phase::Unlock) + self.workload().backoff_ns;
            sum.failing = plus(sum.failing, share * each, written);
            sum.still_there = plus(sum.still_there, share * (held - back).max(0.0), written);
        }
        sum.hold += share * records * held;
        sum.hold_squared += share * records * (held * held + spread);
        sum.blocked += share * records * blocked;
        sum.held += share * each;
        sum.span += share * coming;
        sum.look += share * look;
        sum.one += share * one;
        sum.at_once += share * if ahead { records } else { 1.0 };
        sum.shared += share * reads * runs.came_to;
        sum.entered += share * reads * runs.waits;
        sum.alone += share * writes * runs.came_to;
        // Of a class whose way is known each kind has its own.
        let known = !class.kinds.is_empty() && !ahead && runs.by_age.is_none();
        let each_of: [f64; KINDS] = match known {
            true => {
                let middle = Way::middle(&class.kinds);
                let failed = runs.failed.unwrap_or_default();
                let late = unlocks - runs.on_the_way * failed.had;
                std::array::from_fn(|kind| {
                    let after = (1.0 - middle[kind]) * coming;
                    let on_the_way = failed.had_for[kind] * coming + failed.had_of[kind] * unlocked;
                    after
                        + class.think_ns
                        + commit
                        + runs.on_the_way * on_the_way
                        + late.max(0.0) * (after + class.think_ns + extended + unlocked)
                })
            }
            false => [each; KINDS],
        };
        sum.hold_written(share, written, each_of);
        sum.hold_read(share, read, each_of.map(|each| each + runs.came_to * met.leaves * look));
        sum.readers += share * reads;
        if at_commit {
            let since_read = if ahead { 0.5 * fetch + lock } else { 0.5 * coming };
            until.check = since_read + class.think_ns + 0.5 * check;
            sum.until_check += share * reads * until.check;
        }
        sum.until.push(until);
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
