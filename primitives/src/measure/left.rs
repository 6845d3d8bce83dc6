//! What a point left beside its row in `points.csv`. `run.json` keeps it, so that a directory which lost some of it is told from
//! one that never had more.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{HistogramData, TableName, count};

/// The folder of raw latencies.
pub(super) const HISTOGRAMS: &str = "histograms";

/// The folder of points whose rows are not in the tables yet.
pub(super) const PENDING: &str = "pending";

/// Rows in side tables, and whether there are raw latencies. In files a line of text: a grid has many points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Rows in `phases.csv`.
    pub phases: u64,
    /// Rows in `aborts.csv`.
    pub aborts: u64,
    /// Whether it has a file in `histograms`.
    pub histogram: bool,
}

impl Left {
    /// Counts a row of a table. Those of `points.csv` are no leavings: they say that the point is there.
    pub(super) fn count(&mut self, table: TableName) {
        match table {
            TableName::Points => {}
            TableName::Phases => self.phases += 1,
            TableName::Aborts => self.aborts += 1,
        }
    }

    /// Looks whether a point's raw latencies are in a result directory, whole.
    pub(super) fn look(&mut self, dir: &Path, point: u64) {
        let kept = std::fs::read(histogram_path(dir, point)).ok();
        self.histogram = kept.is_some_and(|text| serde_json::from_slice::<HistogramData>(&text).is_ok());
    }

    /// Each file or folder with what is in it.
    fn parts(&self) -> [(&'static str, &'static str, u64); 3] {
        [
            (TableName::Phases.file(), "phases", self.phases),
            (TableName::Aborts.file(), "aborts", self.aborts),
            (HISTOGRAMS, "histogram", u64::from(self.histogram)),
        ]
    }
}

/// Where a point's raw latencies are.
fn histogram_path(dir: &Path, point: u64) -> PathBuf {
    dir.join(HISTOGRAMS).join(format!("{point}.json"))
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.parts().map(|(_, what, count)| format!("{count} {what}"));
        f.write_str(&parts.join(", "))
    }
}

impl FromStr for Left {
    type Err = String;

    fn from_str(text: &str) -> Result<Left, String> {
        let mut left = Left::default();
        for part in text.split(", ") {
            let counted = part.split_once(' ').and_then(|(count, what)| Some((count.parse().ok()?, what)));
            match counted {
                Some((count, "phases")) => left.phases = count,
                Some((count, "aborts")) => left.aborts = count,
                Some((count, "histogram")) => left.histogram = count > 0u64,
                _ => return Err(format!("`{part}` is nothing that a point leaves")),
            }
        }
        Ok(left)
    }
}

impl Serialize for Left {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Left {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Left, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The tables that are not in a directory. Every build makes all of a kind before the first point.
pub fn gone(dir: &Path, tables: &[TableName]) -> Vec<TableName> {
    let empty =
        |table: &TableName| std::fs::metadata(dir.join(table.file())).map_or(true, |file| file.len() == 0);
    tables.iter().copied().filter(empty).collect()
}

/// Points that wait outside of the tables, with their files.
pub(super) fn pending(dir: &Path) -> io::Result<BTreeMap<u64, PathBuf>> {
    let entries = match std::fs::read_dir(dir.join(PENDING)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries?,
    };
    let mut waiting = BTreeMap::new();
    for entry in entries {
        let path = entry?.path();
        let point = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        waiting.extend(point.map(|point| (point, path)));
    }
    Ok(waiting)
}

/// What is found of the points of a directory beside what they left by its record. Of points that the record does not know
/// (an older build's, and those of the moment before a crash) what is found counts.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Points in the tables with all their rows, and what there is of each beside its row.
    pub here: BTreeMap<u64, Left>,
    /// Points in the tables with fewer rows than they left, or with more, and what they left. They are measured again.
    pub again: BTreeMap<u64, Left>,
    /// Points that are in no table any more.
    absent: u64,
    /// How many points lost what they left in a file.
    less: BTreeMap<&'static str, u64>,
    /// How many points have more rows in a file than they left.
    more: BTreeMap<&'static str, u64>,
}

impl Found {
    /// Compares `rows`, the point of each row of each table, with what points `left` and how many were `done` by the record; `gone`
    /// are the tables that were not there. What waits outside of the tables is whole, and takes the place of what is in them.
    pub fn look(
        dir: &Path,
        left: &BTreeMap<u64, Left>,
        done: u64,
        rows: &[(TableName, Vec<u64>)],
        gone: &[TableName],
    ) -> Found {
        let waiting: BTreeSet<u64> = pending(dir).unwrap_or_default().into_keys().collect();
        // Only a row in `points.csv` makes a point count.
        let points = rows.iter().filter(|(table, _)| *table == TableName::Points);
        let mut seen: BTreeMap<u64, Left> =
            points.flat_map(|(_, points)| points).map(|&point| (point, Left::default())).collect();
        seen.retain(|point, _| !waiting.contains(point));
        for (table, points) in rows {
            for point in points {
                seen.entry(*point).and_modify(|seen| seen.count(*table));
            }
        }
        let known = |point: &u64| seen.contains_key(point) || waiting.contains(point);
        let unseen = left.keys().filter(|point| !known(point)).count() as u64;
        let absent = unseen.max(done.saturating_sub((seen.len() + waiting.len()) as u64));
        let mut found = Found { absent, ..Found::default() };
        if absent > 0 {
            found.less.insert(TableName::Points.file(), absent);
        }
        for (point, mut has) in seen {
            has.look(dir, point);
            let had = left.get(&point).copied().unwrap_or_else(|| {
                let mut had = has;
                gone.iter().for_each(|table| had.count(*table));
                had
            });
            found.compare(point, had, has);
        }
        found
    }

    fn compare(&mut self, point: u64, had: Left, has: Left) {
        for ((file, _, had), (_, _, has)) in had.parts().into_iter().zip(has.parts()) {
            if has < had {
                *self.less.entry(file).or_default() += 1;
            } else if has > had && file != HISTOGRAMS {
                *self.more.entry(file).or_default() += 1;
            }
        }
        // The row says all of a point but the shape of its latencies, and that is no reason to give it up.
        match (had.phases, had.aborts) == (has.phases, has.aborts) {
            true => self.here.insert(point, has),
            false => self.again.insert(point, had),
        };
    }

    /// What was lost, in one line without a subject; nothing if all is there.
    pub fn told(&self) -> Option<String> {
        let points = |n: u64| count(n, "point");
        let lost = self.less.iter().map(|(file, count)| format!("what {} left in {file}", points(*count)));
        let lost = lost.collect::<Vec<_>>().join(" and ");
        let more = self.more.iter().map(|(file, count)| format!("{} left in {file}", points(*count)));
        let more = more.collect::<Vec<_>>().join(" and ");
        let parts = [("lost ", lost), ("holds more than ", more)];
        let told =
            parts.into_iter().filter(|part| !part.1.is_empty()).map(|(verb, what)| verb.to_owned() + &what);
        let told = told.collect::<Vec<_>>().join(" and ");
        let rest = match self.again.len() as u64 + self.absent {
            0 => "their rows are there".to_owned(),
            1 => "1 point is to be measured again".to_owned(),
            many => format!("{many} points are to be measured again"),
        };
        (!told.is_empty()).then(|| format!("{told}: {rest}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_nothing_else() {
        let left = Left { phases: 6, aborts: 0, histogram: true };
        assert_eq!(left.to_string(), "6 phases, 0 aborts, 1 histogram");
        assert_eq!(left.to_string().parse(), Ok(left));
        for text in ["", "6", "6 rows", "-1 phases", "6 phases,"] {
            assert!(text.parse::<Left>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_is_lost_is_told_by_file() {
        let temp = tempfile::tempdir().unwrap();
        let left = Left { phases: 2, aborts: 1, histogram: false };
        let recorded: BTreeMap<u64, Left> = (0..4).map(|point| (point, left)).collect();
        let look = |phases: &[u64], points: &[u64], done: u64| {
            let rows = [
                (TableName::Phases, phases.to_vec()),
                (TableName::Aborts, vec![0, 1, 2, 3]),
                (TableName::Points, points.to_vec()),
            ];
            Found::look(temp.path(), &recorded, done, &rows, &[])
        };
        let (phases, points) = ([0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 2, 3]);
        let whole = look(&phases, &points, 4);
        assert_eq!((whole.told(), whole.here.len()), (None, 4));
        let less = look(&phases[..5], &points, 4);
        let told = "lost what 2 points left in phases.csv: 2 points are to be measured again";
        assert_eq!(less.told().unwrap(), told);
        assert_eq!(less.again.into_keys().collect::<Vec<_>>(), [2, 3]);
        let more = look(&[&phases[..], &[3]].concat(), &points, 4);
        let told = "holds more than 1 point left in phases.csv: 1 point is to be measured again";
        assert_eq!(more.told().unwrap(), told);
        // What the record does not know by name it knows by number.
        let told = |done| look(&phases, &points[..3], done).told().unwrap();
        assert!(told(0).starts_with("lost what 1 point left in points.csv"));
        assert!(told(6).starts_with("lost what 3 points left in points.csv: 3 points are"));
    }
}
