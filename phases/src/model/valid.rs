//! Inputs of the model that cannot be, refused by the number that is wrong.

use super::input::{Asked, Cluster, KINDS, Workload};

/// Inputs that describe no cluster or workload.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InputError {
    /// A number outside what it may be.
    #[error("{what} = {value}: {must}")]
    Range {
        /// Which number.
        what: String,
        /// Its value.
        value: f64,
        /// What it must be.
        must: &'static str,
    },
    /// More copies of a record than nodes.
    #[error("{backups} backups of each record need {} nodes, there are {nodes}", backups + 1)]
    Backups {
        /// Backups asked for.
        backups: u32,
        /// Nodes.
        nodes: u32,
    },
}

/// How far sums of shares may be from one: rounding of shares written with a few digits.
pub(super) const SHARE_SLACK: f64 = 1e-3;

fn must(ok: bool, what: &str, value: f64, must: &'static str) -> Result<(), InputError> {
    if ok && value.is_finite() {
        Ok(())
    } else {
        Err(InputError::Range { what: what.to_owned(), value, must })
    }
}

impl Cluster {
    /// Refuses clusters that cannot be.
    ///
    /// # Errors
    /// Names the number that is wrong.
    pub fn validate(&self) -> Result<(), InputError> {
        must(self.nodes > 0, "nodes", f64::from(self.nodes), "must be at least one")?;
        must(self.threads > 0, "threads", f64::from(self.threads), "must be at least one")?;
        must(self.lanes > 0, "lanes", f64::from(self.lanes), "must be at least one")?;
        if self.backups >= self.nodes {
            return Err(InputError::Backups { backups: self.backups, nodes: self.nodes });
        }
        Ok(())
    }
}

impl Workload {
    /// Refuses workloads that cannot be.
    ///
    /// # Errors
    /// Names the number that is wrong.
    pub fn validate(&self) -> Result<(), InputError> {
        let share = |what: &str, value: f64| {
            must((0.0..=1.0).contains(&value), what, value, "must lie between 0 and 1")
        };
        let amount = |what: &str, value: f64| must(value >= 0.0, what, value, "must not be negative");
        for class in &self.classes {
            let what = |field: &str| format!("{}.{field}", class.name);
            share(&what("share"), class.share)?;
            amount(&what("reads"), class.reads)?;
            amount(&what("writes"), class.writes)?;
            amount(&what("think_ns"), class.think_ns)?;
            amount(&what("inserts"), class.inserts)?;
            let told = class.scanned;
            let fits = (0.0..=class.reads + SHARE_SLACK).contains(&told.reads)
                && (0.0..=class.writes + SHARE_SLACK).contains(&told.writes);
            must(fits, &what("scanned"), told.reads + told.writes, "must be some of its records")?;
            amount(&what("ranges.pages"), class.ranges.pages)?;
            amount(&what("ranges.checks"), class.ranges.checks)?;
            must(class.steps >= 1.0, &what("steps"), class.steps, "must be at least one")?;
            let (home, away) = (class.at_home, class.elsewhere.map_or(0.0, |there| there.writes));
            let fits = (0.0..=class.writes - away + SHARE_SLACK).contains(&home.writes)
                && (0.0..=class.reads - class.elsewhere.map_or(0.0, |there| there.reads) + SHARE_SLACK)
                    .contains(&home.reads)
                && (0.0..=class.inserts).contains(&home.inserts);
            must(fits, &what("at_home"), home.writes + home.inserts, "must be some of its records here")?;
            if let Some(spots) = class.spots {
                let fits =
                    spots.reads >= 0.0 && spots.writes >= 0.0 && (spots.writes > 0.0) == (class.writes > 0.0);
                let fits = fits && spots.reads + spots.writes <= class.reads + class.writes + SHARE_SLACK;
                must(
                    fits,
                    &what("spots"),
                    spots.reads + spots.writes,
                    "must be some of its records' places",
                )?;
            }
            if !class.kinds.is_empty() {
                must(
                    class.kinds.len() <= KINDS,
                    &what("kinds"),
                    class.kinds.len() as f64,
                    "must be at most seven",
                )?;
                for asked in &class.kinds {
                    amount(&what("kinds"), asked.reads.min(asked.writes))?;
                }
                let sum = |of: fn(&Asked) -> f64| class.kinds.iter().map(of).sum::<f64>();
                let off =
                    (sum(|a| a.reads) - class.reads).abs().max((sum(|a| a.writes) - class.writes).abs());
                must(off < SHARE_SLACK, &what("kinds"), off, "must sum up to its records")?;
                for (kind, asked) in (0..).zip(&class.kinds).filter(|_| !class.legs.is_empty()) {
                    let on_the_way: f64 =
                        class.legs.iter().filter(|leg| leg.kind == kind).map(|leg| leg.records).sum();
                    let off = (on_the_way - asked.reads - asked.writes).abs();
                    must(off < SHARE_SLACK, &what("legs"), off, "must sum up to its records of each kind")?;
                }
                for (kind, asked) in
                    (0..).zip(&class.kinds).filter(|(_, asked)| asked.reads + asked.writes > 0.0)
                {
                    let mut parts =
                        self.bands.iter().filter(|band| band.kind == kind).map(|band| band.parts > 1.0);
                    let first = parts.next();
                    let alike = first.is_some_and(|first| parts.all(|other| other == first));
                    let fits = alike || self.bands.is_empty();
                    must(
                        fits,
                        &what("kinds"),
                        asked.reads + asked.writes,
                        "must be of kinds with bands, all of parts or none",
                    )?;
                }
            }
            for leg in &class.legs {
                amount(&what("legs"), leg.records)?;
                let known = (leg.kind as usize) < class.kinds.len();
                must(known, &what("legs"), f64::from(leg.kind), "must be of the class's kinds")?;
            }
            if let Some(there) = class.elsewhere {
                let within = |n: f64, all: f64| (0.0..=all).contains(&n);
                let fits = within(there.reads, class.reads) && within(there.writes, class.writes);
                must(fits, &what("elsewhere"), there.reads + there.writes, "must be some of its records")?;
            }
        }
        let sum = self.classes.iter().fold(0.0, |sum, c| sum + c.share);
        must((sum - 1.0).abs() < SHARE_SLACK, "sum of class shares", sum, "must be 1")?;
        share("local_share", self.local_share)?;
        share("cache_hit_share", self.cache_hit_share)?;
        amount("backoff_ns", self.backoff_ns)?;
        for band in &self.bands {
            must(band.records > 0.0, "band.records", band.records, "must be above 0")?;
            share("band.share", band.share)?;
            share("band.writes", band.writes.unwrap_or(0.0))?;
            must(band.parts >= 1.0, "band.parts", band.parts, "must be at least one")?;
            share("band.away", band.away)?;
            must((band.kind as usize) < KINDS, "band.kind", f64::from(band.kind), "must be below seven")?;
        }
        let sum = self.bands.iter().map(|b| b.share).sum::<f64>();
        let sums_to_one = |sum: f64| self.bands.is_empty() || (sum - 1.0).abs() < SHARE_SLACK;
        must(sums_to_one(sum), "sum of band shares", sum, "must be 1")?;
        let sum = self.bands.iter().map(|b| b.writes.unwrap_or(b.share)).sum::<f64>();
        must(sums_to_one(sum) || self.writes() <= 0.0, "sum of band writes", sum, "must be 1")
    }
}
