//! What the model is told about cluster and workload.

use super::buckets::Words;
use super::valid::SHARE_SLACK;
use crate::demand::{Chances, Touch};
use crate::plan::{CheckedPlan, Needs, Phase, Via};
use crate::rule::Packing;
use crate::store::record::Shape;
use primitives::fabric::AtomicScope;
use primitives::profile::NicProfile;
use serde::{Deserialize, Serialize};

/// The cluster: symmetric, every node both coordinates and serves (DrTM+H §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Nodes.
    pub nodes: u32,
    /// Worker threads per node, each on a core of its own.
    pub threads: u32,
    /// Backup copies of each record; 2 is 3-way replication.
    pub backups: u32,
    /// Connected queue pairs from each thread to each node.
    pub lanes: u32,
}

/// One kind of transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TxnClass {
    /// Its name.
    pub name: String,
    /// Its share of the mix.
    pub share: f64,
    /// Records read and not written.
    pub reads: f64,
    /// Records read and written.
    pub writes: f64,
    /// Computation of one attempt in nanoseconds, phases excluded.
    pub think_ns: f64,
    /// Records created, on the coordinator's own node.
    #[serde(default)]
    pub inserts: f64,
    /// Of those read, written and created, the ones in tables that are kept at home: only transactions of their own node touch
    /// them, so that its CPU may lock them even where NICs lock others.
    #[serde(default)]
    pub at_home: AtHome,
    /// Records on other nodes, where they are not the workload's share of all.
    #[serde(default)]
    pub elsewhere: Option<Elsewhere>,
    /// Of its records, those on the own node whose places a range has told, so that nobody looks them up.
    #[serde(default)]
    pub scanned: Asked,
    /// Looks of the own CPU at ranges of its own node, beside their rows.
    #[serde(default)]
    pub ranges: Ranges,
    /// Steps in which it comes to its records, as many in each, where it may ask for those of a step at once.
    #[serde(default = "one_step")]
    pub steps: f64,
    /// In how many places its records lie, where several lie in one: those of one customer, say.
    #[serde(default)]
    pub spots: Option<Spots>,
    /// How many of its records lie in each kind of band ([`Band::kind`]), where that is no matter of chance: a payment has one
    /// warehouse. Empty: they fall into bands by the bands' shares.
    #[serde(default)]
    pub kinds: Vec<Asked>,
    /// In which order it comes to them, where that is known. Those of a leg are asked for one after the other, or in one step, as
    /// `steps` has it.
    #[serde(default)]
    pub legs: Vec<Leg>,
}

/// So many records of one kind, on the way to all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leg {
    /// Their kind.
    pub kind: u32,
    /// How many.
    pub records: f64,
}

/// Kinds of bands at most.
pub const KINDS: usize = 7;

/// Records that a transaction asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// Read and not written.
    pub reads: f64,
    /// Read and written.
    pub writes: f64,
}

/// Looks at ranges of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranges {
    /// Pages that are read.
    pub pages: f64,
    /// Looks before the commit, each at what a table has grown or lost where it was read.
    pub checks: f64,
}

fn one_step() -> f64 {
    1.0
}

/// Of a transaction's records, those in tables that only transactions of a record's own node touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AtHome {
    /// Read and not written.
    #[serde(default)]
    pub reads: f64,
    /// Read and written.
    pub writes: f64,
    /// Created.
    pub inserts: f64,
}

/// Of a transaction's records, those on other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elsewhere {
    /// Read and not written.
    pub reads: f64,
    /// Read and written.
    pub writes: f64,
}

/// Places, each of which may be on any node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spots {
    /// Where all is only read.
    pub reads: f64,
    /// Where something is written.
    pub writes: f64,
}

/// Records that are accessed alike: a hot set, the rest, a step of a skewed distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Band {
    /// Records of the band, whole cluster.
    pub records: f64,
    /// Share of all accesses that go to the band.
    pub share: f64,
    /// Share of the accesses which write that go to the band, where that is another.
    #[serde(default)]
    pub writes: Option<f64>,
    /// Parts into which records and coroutines fall, each part of the coroutines keeping to one of the records.
    #[serde(default = "whole_band")]
    pub parts: f64,
    /// Of the accesses to a part, the share that are of other parts' coroutines all the same.
    #[serde(default)]
    pub away: f64,
    /// Bands of a kind are those among which accesses are drawn: a table's.
    #[serde(default)]
    pub kind: u32,
}

fn whole_band() -> f64 {
    1.0
}

impl Band {
    /// Whether each part has coroutines of its own, and no others.
    pub(super) fn is_apart(&self) -> bool {
        self.parts > 1.0 && self.away == 0.0
    }

    /// A band to which reads and writes go alike, of all coroutines.
    pub fn new(records: f64, share: f64) -> Band {
        Band { records, share, writes: None, parts: 1.0, away: 0.0, kind: 0 }
    }
}

/// What transactions ask for, on average.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// The mix; shares sum to one.
    pub classes: Vec<TxnClass>,
    /// Payload of a record in bytes.
    pub payload_bytes: u32,
    /// Tables that its records are in.
    #[serde(default = "one_table")]
    pub tables: u32,
    /// Share of accesses to the coordinator's own node; 1/nodes where data is spread evenly.
    pub local_share: f64,
    /// Share of remote accesses whose location the cache knows when it is on.
    pub cache_hit_share: f64,
    /// Where accesses go; shares sum to one. Empty: no conflicts.
    pub bands: Vec<Band>,
    /// Fetch may send its requests without waiting for each other: read sets known in advance, or speculative
    /// execution (DrTM+H §6.1).
    pub reads_ahead: bool,
    /// Mean pause before a transaction that has aborted once is tried again, in nanoseconds.
    pub backoff_ns: f64,
    /// How many further aborts in a row double the pause. That pauses go on to grow after dozens of aborts is left out.
    #[serde(default)]
    pub backoff_doublings: u32,
}

fn one_table() -> u32 {
    1
}

/// Records by place.
#[derive(Clone, Copy, Default)]
pub(super) struct Records {
    pub(super) remote: f64,
    pub(super) local: f64,
}

impl Records {
    fn all(self) -> f64 {
        self.remote + self.local
    }
}

/// A number of records that every transaction has, and not only on average.
fn whole(records: f64) -> Option<f64> {
    let rounded = records.round();
    (rounded >= 1.0 && (records - rounded).abs() < 1e-9).then_some(rounded)
}

/// How as many records fall, of each of which it is known how likely it is to be remote.
fn falls(served: Records, held: Records) -> Option<Chances> {
    let records = whole(served.all() + held.all())?;
    let remote = (served.remote + held.remote) / records;
    let (none_remote, none_local) = ((1.0 - remote).powf(records), remote.powf(records));
    Some(Chances { any_remote: 1.0 - none_remote, any_local: 1.0 - none_local, only_local: none_remote })
}

/// Greatest common divisor.
fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Cluster {
    /// Connected queue pairs of one node.
    pub fn queue_pairs(&self) -> usize {
        self.threads as usize * self.nodes as usize * self.lanes as usize
    }

    /// Queue pairs by which ATOMICs come to one card.
    pub(super) fn atomics_by(&self, nic: &NicProfile) -> f64 {
        let threads = (f64::from(self.threads) / nic.cards.value).max(1.0);
        let looped = if nic.atomic_scope == AtomicScope::Nic { 1.0 } else { 0.0 };
        threads * f64::from(self.lanes) * (self.others() + looped)
    }

    fn others(&self) -> f64 {
        f64::from(self.nodes) - 1.0
    }

    /// Other nodes that `records` remote records lie on, by chance.
    fn spread(&self, records: f64) -> f64 {
        let others = self.others();
        if others < 1.0 || records <= 0.0 {
            return 0.0;
        }
        (others * (1.0 - (1.0 - 1.0 / others).powf(records))).min(records)
    }

    /// Other nodes that back any of `writes` records, by chance, and how many copies the own node keeps.
    fn backups_of(&self, writes: f64) -> (f64, f64) {
        let (nodes, backups) = (f64::from(self.nodes), f64::from(self.backups));
        let chance = backups / nodes; // that a given node backs a given record
        (self.others() * (1.0 - (1.0 - chance).powf(writes)), writes * chance)
    }

    /// The same of records of which it is known how many are other nodes'. The nodes behind a node back its records
    /// ([`Layout::backups`](crate::store::Layout::backups)), so that all of the own ones are with the same few.
    fn backups_of_placed(&self, records: Records) -> (f64, f64) {
        let (others, backups) = (self.others(), f64::from(self.backups));
        if others < 1.0 {
            return (0.0, 0.0);
        }
        let none_own = (1.0 - records.local).max(0.0);
        // A node that backs the own one backs one fewer of the others.
        let none_of = |backed: f64| (1.0 - backed / others).powf(records.remote);
        let behind = backups * (1.0 - none_own * none_of((backups - 1.0).max(0.0)));
        (behind + (others - backups) * (1.0 - none_of(backups)), records.remote * backups / others)
    }
}

impl TxnClass {
    /// A class whose records lie where the workload's records lie on average, and which creates none.
    pub fn new(name: &str, share: f64, reads: f64, writes: f64) -> TxnClass {
        TxnClass {
            name: name.to_owned(),
            share,
            reads,
            writes,
            think_ns: 0.0,
            inserts: 0.0,
            at_home: AtHome::default(),
            elsewhere: None,
            scanned: Asked::default(),
            ranges: Ranges::default(),
            steps: one_step(),
            spots: None,
            kinds: Vec::new(),
            legs: Vec::new(),
        }
    }

    /// In how many places its records lie.
    pub(super) fn spots(&self) -> Spots {
        self.spots.unwrap_or(Spots { reads: self.reads, writes: self.writes })
    }

    /// What it comes to in one of its steps, on average.
    pub(super) fn of_one_step(&self) -> TxnClass {
        let by = self.steps;
        let asked = |Asked { reads, writes }| Asked { reads: reads / by, writes: writes / by };
        let AtHome { reads, writes, inserts } = self.at_home;
        TxnClass {
            inserts: self.inserts / by,
            at_home: AtHome { reads: reads / by, writes: writes / by, inserts: inserts / by },
            elsewhere: self.elsewhere.map(|e| Elsewhere { reads: e.reads / by, writes: e.writes / by }),
            scanned: asked(self.scanned),
            ranges: Ranges { pages: self.ranges.pages / by, checks: self.ranges.checks / by },
            ..TxnClass::new(&self.name, self.share, self.reads / by, self.writes / by)
        }
    }

    /// One that comes to a single record, of its own and of others as likely as this one.
    pub(super) fn of_one_record(&self) -> TxnClass {
        let records = (self.reads + self.writes).max(1.0);
        let elsewhere =
            self.elsewhere.map(|e| Elsewhere { reads: e.reads / records, writes: e.writes / records });
        let AtHome { reads, writes, .. } = self.at_home;
        let at_home = AtHome { reads: reads / records, writes: writes / records, inserts: 0.0 };
        TxnClass {
            at_home,
            elsewhere,
            ..TxnClass::new(&self.name, self.share, self.reads / records, self.writes / records)
        }
    }

    /// Records that an attempt comes to.
    pub fn records(&self) -> f64 {
        self.reads + self.writes + self.inserts
    }

    /// Whether its reads must be checked: a single read is consistent by itself (DrTM+H §5.5).
    pub fn validates(&self) -> bool {
        self.reads > 0.0 && self.reads + self.writes > 1.0
    }

    /// Leases it extends under SUNDIAL: of everything it only reads if it writes, since it then comes after a lease that was
    /// free; else of all but the record with the latest version. An upper bound: a lease may reach that far already.
    pub fn renewals(&self) -> f64 {
        if self.writes > 0.0 { self.reads } else { (self.reads - 1.0).max(0.0) }
    }
}

impl Workload {
    /// Of `n` records, those elsewhere and those of the own node.
    fn placed(&self, cluster: &Cluster, n: f64, elsewhere: Option<f64>) -> Records {
        let own = if cluster.nodes == 1 { 1.0 } else { self.local_share };
        let remote = elsewhere.filter(|_| cluster.nodes > 1).unwrap_or(n * (1.0 - own));
        Records { remote, local: n - remote }
    }

    /// Where the records are that `class` writes.
    pub(super) fn written(&self, cluster: &Cluster, class: &TxnClass) -> Records {
        self.placed(cluster, class.writes, class.elsewhere.map(|e| e.writes))
    }

    /// The records `phase` touches in a transaction of `class`, as `plan` carries the phases before it.
    pub fn touch(
        &self,
        cluster: &Cluster,
        class: &TxnClass,
        plan: &CheckedPlan,
        needs: &Needs,
        phase: Phase,
    ) -> Touch {
        let reads = self.placed(cluster, class.reads, class.elsewhere.map(|e| e.reads));
        let writes = self.written(cluster, class);
        let all = Records { remote: reads.remote + writes.remote, local: reads.local + writes.local };
        let none = Records::default();
        let by = |phase: Phase| plan.get().step(phase).map(|step| step.via);
        // Records served, and those only locked for reading that are freed beside them.
        let (mut served, held) = match (phase, needs.packing) {
            (Phase::Fetch, _) if !needs.locks_at_touch() => (all, none),
            // A two-sided lock brings its record along; a CAS has to know what to expect.
            (Phase::Fetch, _) if by(Phase::Lock) == Some(Via::OneSided) => (all, none),
            (Phase::Fetch, _) => (reads, none),
            (Phase::Lock, Packing::Locked) => (all, none),
            (Phase::Validate, Packing::Counted) if !class.validates() => (none, none),
            (Phase::Validate, Packing::Leased) => {
                // Where nobody writes, all versions are of one time, and every lease reaches that far.
                let renews = class.reads > 0.0 && self.changes();
                let share = if renews { class.renewals() / class.reads } else { 0.0 };
                (Records { remote: reads.remote * share, local: reads.local * share }, none)
            }
            (Phase::Validate, _) => (reads, none),
            (Phase::Install | Phase::Unlock, Packing::Locked) => (writes, reads),
            (Phase::Lock | Phase::Log | Phase::Install | Phase::Unlock, _) => (writes, none),
        };
        if phase == Phase::Validate && needs.packing == Packing::Versions {
            // A call confirms what it reads, and so does a CPU.
            served.remote *= match by(Phase::Fetch) {
                Some(Via::OneSided) | None => 1.0,
                Some(Via::Hybrid) if plan.get().location_cache => self.cache_hit_share,
                Some(Via::Hybrid | Via::TwoSided) => 0.0,
            };
            served.local *= if plan.nic_owns_leases() { 1.0 } else { 0.0 };
        }
        // What is created is set aside by its owner's CPU, and then written like any record. Where all locks are taken at once that
        // happens to those who got them, who are those that go on to be validated; what few of them give back is left out.
        let creates = match phase {
            Phase::Lock | Phase::Unlock => needs.locks_at_touch(),
            Phase::Validate => !needs.locks_at_touch(),
            Phase::Fetch | Phase::Log | Phase::Install => false,
        };
        let created = if creates { class.inserts } else { 0.0 };
        if phase == Phase::Install {
            served.local += class.inserts;
        }
        let mut touch = Touch {
            remote: served.remote,
            nodes: cluster.spread(served.remote + held.remote),
            local: served.local,
            // Of those that this phase meets first; later ones know where they are.
            scanned: match (phase, needs.packing) {
                (Phase::Fetch, _) if !needs.locks_at_touch() => class.scanned.reads + class.scanned.writes,
                (Phase::Fetch, _) => class.scanned.reads,
                (Phase::Lock, Packing::Locked) => class.scanned.reads + class.scanned.writes,
                (Phase::Lock, _) => class.scanned.writes,
                _ => 0.0,
            }
            .min(served.local),
            // Pages are read where their rows are met first. Where versions are times, owners were told up to when ranges must stand.
            ranges: match (phase, needs.packing) {
                (Phase::Fetch, _) if !needs.locks_at_touch() => class.ranges.pages,
                // What is only read of such protocols is not locked.
                (Phase::Fetch, packing) if packing != Packing::Locked => class.ranges.pages,
                (Phase::Lock, Packing::Locked) => class.ranges.pages + class.ranges.checks,
                (Phase::Validate, packing) if packing != Packing::Versions => class.ranges.checks,
                _ => 0.0,
            },
            created,
            read_held: held.remote,
            read_held_local: (held.local - class.at_home.reads).max(0.0),
            at_home: 0.0,
            payload: self.payload_bytes,
            cached: self.cache_hit_share,
            backups: f64::from(cluster.backups),
            chances: None,
            others: cluster.others(),
        };
        touch.at_home = match phase {
            // Readers lock where a lock is a word of its own.
            Phase::Lock if needs.packing == Packing::Locked => class.at_home.reads + class.at_home.writes,
            Phase::Lock | Phase::Unlock => class.at_home.writes,
            Phase::Install => class.at_home.writes + class.at_home.inserts,
            Phase::Fetch | Phase::Validate | Phase::Log => 0.0,
        };
        touch.chances = falls(served, held);
        if let Some((chances, records)) = touch.chances.zip(whole(served.all() + held.all())) {
            let there = 1.0 - (1.0 - (served.remote + held.remote) / records / touch.others).powf(records);
            touch.nodes = (touch.others * there).max(chances.any_remote);
        }
        if phase == Phase::Log {
            let records = class.writes + class.inserts;
            let (nodes, local) = match class.elsewhere {
                Some(there) => {
                    cluster.backups_of_placed(Records { remote: there.writes, local: records - there.writes })
                }
                None => cluster.backups_of(records),
            };
            touch = Touch { remote: records, nodes, local, chances: None, ..touch };
        }
        touch
    }

    /// On which of a card's buckets the words are that its ATOMICs change: headers of records, a record's length apart. With 512
    /// buckets, by a word's low address bits, those of records of 64 B fall on 64, and of 1 KiB on 4.
    pub(super) fn words(&self, nic: &NicProfile, packing: Packing, cluster: &Cluster) -> Words {
        let all = nic.atomic_buckets.value.max(1.0) as u64;
        let stride = Shape { packing, payload: self.payload_bytes.div_ceil(8) }.stride() / 8;
        // Tables begin at cache lines, each at another.
        let each = all / gcd(all, stride);
        let buckets = (each * u64::from(self.tables)).min((all / gcd(all, 8)).max(each));
        let share = |band: &Band| match packing {
            Packing::Locked => band.share,
            _ => band.writes.unwrap_or(band.share),
        };
        let same: f64 = self.bands.iter().map(|band| share(band).powi(2) / band.records).sum();
        Words { buckets, same: (same * f64::from(cluster.nodes)).min(1.0) }
    }

    /// Pauses of a transaction that takes so many attempts on average, in nanoseconds; `all_fail` has the chances that its first
    /// attempts all fail, for one and more. Pauses that are doubled more often than these are many are taken for shorter than they are.
    pub fn pauses_ns(&self, attempts: f64, all_fail: &[f64]) -> f64 {
        let (mut pauses, mut pause, mut paused) = (0.0, self.backoff_ns, 0.0);
        for chance in all_fail.iter().take(self.backoff_doublings as usize) {
            pauses += chance * pause;
            paused += chance;
            pause *= 2.0;
        }
        // From here on all are alike: as many as there are failures left.
        pauses + pause * (attempts - 1.0 - paused).max(0.0)
    }

    /// Of all accesses that read and do not write, those that go to each band.
    pub(super) fn reads_of(&self, band: &Band) -> f64 {
        let Some(written) = band.writes else { return band.share };
        let (writes, reads) = (self.writes(), self.reads());
        if reads > 0.0 { ((band.share * (reads + writes) - written * writes) / reads).max(0.0) } else { 0.0 }
    }

    /// Of all records that are written at home, the share in bands each part of which has coroutines of its own. None where such bands
    /// have more than that: then it is not known whose they are.
    pub(super) fn written_apart(&self) -> f64 {
        let at_home: f64 = self.classes.iter().map(|class| class.share * class.at_home.writes).sum();
        let share: f64 = self
            .bands
            .iter()
            .filter(|band| band.is_apart())
            .map(|band| band.writes.unwrap_or(band.share))
            .sum();
        let apart = share * self.writes();
        if apart > 0.0 && apart <= at_home * (1.0 + SHARE_SLACK) { (apart / at_home).min(1.0) } else { 0.0 }
    }

    /// By how many coroutines fewer than there are a record that is written, and not apart, has others that come to it. That is the
    /// asking one, where all come to all nodes alike. With `f` the share of accesses that go elsewhere, a record is come to from its
    /// own of `n` nodes at `n (1 − f)` times the mean rate, and from each of the others at `n f / (n − 1)` times; the asking one is as
    /// likely to be there.
    pub(super) fn not_others(&self, cluster: &Cluster) -> f64 {
        let (mut elsewhere, mut all) = (0.0, 0.0);
        for class in &self.classes {
            let written = self.written(cluster, class);
            elsewhere += class.share * written.remote;
            all += class.share * (written.all() - class.at_home.writes * self.written_apart());
        }
        let (n, others) = (f64::from(cluster.nodes), cluster.others());
        if others < 1.0 || all <= 0.0 {
            return 1.0;
        }
        let f = (elsewhere / all).min(1.0);
        n * (f * f / others + (1.0 - f) * (1.0 - f))
    }

    /// Whether anything is written or created.
    fn changes(&self) -> bool {
        self.classes.iter().any(|class| class.share * (class.writes + class.inserts) > 0.0)
    }

    /// Records read and not written per transaction, averaged over the mix.
    pub(super) fn reads(&self) -> f64 {
        self.classes.iter().map(|class| class.share * class.reads).sum()
    }

    /// Records written per transaction, averaged over the mix.
    pub fn writes(&self) -> f64 {
        self.classes.iter().map(|class| class.share * class.writes).sum()
    }
}
