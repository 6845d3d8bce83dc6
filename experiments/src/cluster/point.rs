//! A point of `doorbell characterize --cluster`, as node 0 asks the others for it. All nodes run the same build, so a point
//! is named by its number in the list that the scope and the datagram size give.

use std::sync::atomic::{AtomicBool, Ordering};

use primitives::bench::{self, LoadError, Point, Sample, Scope};
use primitives::mesh::{LaunchError, MeshError, Session};
use serde_json::json;

use super::Cluster;
use crate::error::CliError;
use crate::primitive;
use crate::spec::FabricChoice;

/// A point that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The fabric.
    pub fabric: FabricChoice,
    /// The characterization.
    pub scope: Scope,
    /// Largest datagram at node 0: sizes of calls follow from it.
    pub ud_mtu: u32,
    /// The point's number.
    pub number: usize,
    /// Seed of every draw.
    pub seed: u64,
}

impl Asked {
    /// As it travels.
    pub fn encode(&self) -> Vec<u8> {
        let Asked { fabric, scope, ud_mtu, number, seed } = self;
        json!({ "bench": number, "fabric": fabric, "scope": scope, "ud_mtu": ud_mtu, "seed": seed })
            .to_string()
            .into_bytes()
    }

    /// What node 0 asked for; `None` if it is not a point.
    ///
    /// # Errors
    /// In words, if it cannot be one of this build.
    pub fn decode(bytes: &[u8]) -> Result<Option<Asked>, String> {
        let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        let Some(number) = value.get("bench") else { return Ok(None) };
        let whole = |what: &str| value[what].as_u64().ok_or_else(|| format!("`{what}` is not a number"));
        let asked = Asked {
            fabric: value["fabric"].as_str().ok_or("no fabric")?.parse()?,
            scope: serde_json::from_value(value["scope"].clone()).map_err(|e| e.to_string())?,
            ud_mtu: u32::try_from(whole("ud_mtu")?).map_err(|e| e.to_string())?,
            number: number.as_u64().and_then(|n| usize::try_from(n).ok()).ok_or("no point")?,
            seed: whole("seed")?,
        };
        asked.point().ok_or_else(|| format!("there is no point {}", asked.number))?;
        Ok(Some(asked))
    }

    /// The point.
    pub fn point(&self) -> Option<Point> {
        // Bounded before anything is made of it: it comes from another process.
        let Scope { nodes, threads, coroutines, .. } = self.scope;
        if nodes < 2 || threads > 1024 || coroutines > 65_536 || self.ud_mtu > 1 << 16 {
            return None;
        }
        bench::points(&self.scope, self.ud_mtu).into_iter().nth(self.number)
    }

    /// Measures this process's share; node 0 gets the whole.
    ///
    /// # Errors
    /// If this machine lacks the fabric, a request fails, or a node is lost.
    pub fn measure(
        &self,
        cluster: &Cluster,
        session: &mut Session,
        stop: &AtomicBool,
    ) -> Result<Option<Sample>, CliError> {
        let made = (|| {
            if cluster.file.count() != self.scope.nodes {
                let (file, asked) = (cluster.file.count(), self.scope.nodes);
                return Err(CliError::usage(format!("a point of {asked} nodes in a cluster of {file}")));
            }
            let point = self.point().ok_or_else(|| CliError::usage("there is no such point"))?;
            Ok((cluster.fabric(&self.fabric, session, self.seed)?, point))
        })();
        let (fabric, point) = made.inspect_err(|error| session.fail(error.message()))?;
        bench::run_member(&fabric.spec, session, &self.scope, &point, self.seed, stop).map_err(|e| match e {
            LoadError::Launch(LaunchError::Mesh(MeshError::Interrupted { .. }))
                if stop.load(Ordering::Relaxed) =>
            {
                CliError::interrupted()
            }
            LoadError::Launch(LaunchError::Mesh(error)) => CliError::from(error),
            other => primitive::failed(&other),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::usual_scope;

    #[test]
    fn a_point_comes_back_as_it_was_and_others_are_told() {
        let scope = usual_scope(false, true);
        let asked = Asked { fabric: FabricChoice::Tcp, scope, ud_mtu: 4096, number: 3, seed: 7 };
        assert_eq!(Asked::decode(&asked.encode()), Ok(Some(asked.clone())));
        assert_eq!(Asked::decode(b"{\"spec\":{}}"), Ok(None), "a run, not a point");
        for bent in [
            Asked { number: 100_000, ..asked.clone() },
            Asked { scope: Scope { nodes: 1, ..scope }, ..asked.clone() },
            Asked { scope: Scope { threads: u16::MAX, ..scope }, ..asked.clone() },
            Asked { ud_mtu: u32::MAX, ..asked },
        ] {
            assert!(Asked::decode(&bent.encode()).is_err(), "{bent:?}");
        }
        for bad in [&b""[..], b"{\"bench\":1}", b"{\"bench\":\"x\",\"fabric\":\"tcp\"}"] {
            assert!(Asked::decode(bad).is_err());
        }
    }
}
