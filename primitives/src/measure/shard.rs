//! A share of a grid, so that several machines can measure one experiment.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Most shards of a grid: as many as it may have points.
const MOST: u64 = 1_000_000;

/// The share of one of several processes. Points are dealt like cards, so shares are alike even where a grid gets dearer
/// along an axis, and a point's shard depends on nothing but its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    /// Which one, from 1.
    pub index: u64,
    /// Of how many.
    pub of: u64,
}

impl Shard {
    /// Whether a point is of this share.
    pub fn holds(self, point: u64) -> bool {
        point % self.of == self.index - 1
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((_, of)) if !(1..=MOST).contains(&of) => Err(format!(
                "a grid is cut into 1 to {MOST} shards, not {of}; write 1/4 for the first of four"
            )),
            Some((index, of)) if 1 <= index && index <= of => Ok(Shard { index, of }),
            Some((index, of)) => {
                Err(format!("there is no shard {index} of {of}; they are 1/{of} to {of}/{of}"))
            }
            None => Err(format!("`{text}` is no shard; write 1/4 for the first of four")),
        }
    }
}

impl Serialize for Shard {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Shard {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Shard, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_share_every_point_once() {
        let shards: Vec<Shard> = (1..=7).map(|i| format!("{i}/7").parse().unwrap()).collect();
        for point in 0..100 {
            assert_eq!(shards.iter().filter(|s| s.holds(point)).count(), 1, "point {point}");
        }
        let sizes: Vec<usize> = shards.iter().map(|s| (0..100).filter(|&p| s.holds(p)).count()).collect();
        assert!(sizes.iter().all(|&n| n == 14 || n == 15), "{sizes:?}");
    }

    #[test]
    fn what_is_no_shard_is_refused() {
        for text in ["", "1", "0/4", "5/4", "-1/4", "1/0", "a/b", "1/4/2", "1/9999999999"] {
            assert!(text.parse::<Shard>().is_err(), "{text:?}");
        }
        for (text, of) in [("1/0", 0), ("0/0", 0), ("1/9999999", 9_999_999)] {
            let says =
                format!("a grid is cut into 1 to 1000000 shards, not {of}; write 1/4 for the first of four");
            assert_eq!(text.parse::<Shard>().unwrap_err(), says);
        }
        assert_eq!("4/4".parse::<Shard>().unwrap().to_string(), "4/4");
    }
}
