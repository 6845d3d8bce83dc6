//! A point of requests alone, as node 0 asks the others for it. That of `doorbell characterize --cluster` is named by its number in the list that the
//! scope and the datagram size give, since all nodes run the same build; that of `doorbell experiment --cluster` goes as what the file says.

use std::sync::atomic::{AtomicBool, Ordering};

use primitives::bench::{self, LoadError, Point, Sample, Scope};
use primitives::mesh::{LaunchError, MeshError, Session};
use serde_json::json;

use super::{Cluster, described_spec, give_up};
use crate::error::CliError;
use crate::primitive;
use crate::spec::{FabricChoice, PrimitiveSpec, RunSpec};

/// A point that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// Of a characterization.
    Numbered(Numbered),
    /// Of an experiment of requests.
    Written(Box<RunSpec>),
}

/// A point of a characterization.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbered {
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
        let described = match self {
            Asked::Numbered(Numbered { fabric, scope, ud_mtu, number, seed }) => {
                json!({ "bench": number, "fabric": fabric, "scope": scope, "ud_mtu": ud_mtu, "seed": seed })
            }
            Asked::Written(spec) => json!({ "requests": spec }),
        };
        described.to_string().into_bytes()
    }

    /// What node 0 asked for; `None` if it is not a point.
    ///
    /// # Errors
    /// In words, if it cannot be one of this build.
    pub fn decode(bytes: &[u8]) -> Result<Option<Asked>, String> {
        let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        if let Some(written) = value.get("requests") {
            let spec = RunSpec { primitive: Some(PrimitiveSpec::default()), ..RunSpec::default() };
            let asked = Asked::Written(Box::new(described_spec(spec, written)?));
            asked.load()?;
            return Ok(Some(asked));
        }
        let Some(number) = value.get("bench") else { return Ok(None) };
        let whole = |what: &str| value[what].as_u64().ok_or_else(|| format!("`{what}` is not a number"));
        let asked = Asked::Numbered(Numbered {
            fabric: value["fabric"].as_str().ok_or("no fabric")?.parse()?,
            scope: serde_json::from_value(value["scope"].clone()).map_err(|e| e.to_string())?,
            ud_mtu: u32::try_from(whole("ud_mtu")?).map_err(|e| e.to_string())?,
            number: number.as_u64().and_then(|n| usize::try_from(n).ok()).ok_or("no point")?,
            seed: whole("seed")?,
        });
        asked.load()?;
        Ok(Some(asked))
    }

    /// What is measured, how, and on which seed.
    ///
    /// # Errors
    /// In words, if there is no such point.
    fn load(&self) -> Result<(Scope, Point, u64), String> {
        match self {
            Asked::Numbered(asked) => {
                let point = asked.point().ok_or_else(|| format!("there is no point {}", asked.number))?;
                Ok((asked.scope, point, asked.seed))
            }
            Asked::Written(spec) => {
                let asked = spec.primitive.as_ref().ok_or("no requests")?;
                let (scope, point) = asked.point(spec)?;
                Ok((scope, point, spec.seed))
            }
        }
    }

    /// What people are told of it.
    pub fn told(&self) -> String {
        match self {
            Asked::Numbered(asked) => {
                let name = asked.point().map_or("", |point| point.question);
                format!("point {} ({name})", asked.number)
            }
            Asked::Written(spec) => {
                let verb = spec.primitive.as_ref().map_or("", |asked| asked.verb.as_str());
                let payload = spec.primitive.as_ref().map_or(0, |asked| asked.payload);
                format!("{verb} of {payload} B for {}", spec.duration)
            }
        }
    }

    fn fabric(&self) -> &FabricChoice {
        match self {
            Asked::Numbered(asked) => &asked.fabric,
            Asked::Written(spec) => &spec.fabric,
        }
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
            let (scope, point, seed) = self.load().map_err(CliError::usage)?;
            if cluster.file.count() != scope.nodes {
                let (file, asked) = (cluster.file.count(), scope.nodes);
                return Err(CliError::usage(format!("a point of {asked} nodes in a cluster of {file}")));
            }
            crate::memory::check_share(&scope, &point)?;
            Ok((cluster.fabric(self.fabric(), session, seed)?, scope, point, seed))
        })();
        let (fabric, scope, point, seed) = made.inspect_err(|error| give_up(session, error))?;
        bench::run_member(&fabric.spec, session, &scope, &point, seed, stop).map_err(|e| match e {
            LoadError::Launch(LaunchError::Mesh(MeshError::Interrupted { .. }))
                if stop.load(Ordering::Relaxed) =>
            {
                CliError::interrupted()
            }
            LoadError::Launch(LaunchError::Mesh(error)) => CliError::from(error),
            other => primitive::failed(&other),
        })
    }

    /// Has all nodes measure it, as node 0.
    ///
    /// # Errors
    /// As [`Asked::measure`]; a session in which something failed has ended, and with it all other points.
    pub fn drive(
        &self,
        cluster: &Cluster,
        session: &mut Session,
        stop: &AtomicBool,
    ) -> Result<Sample, CliError> {
        let whole = match session.begin(&self.encode()) {
            Ok(()) => self.measure(cluster, session, stop),
            Err(error) => Err(error.into()),
        };
        whole
            .and_then(|whole| whole.ok_or_else(|| CliError::check("bug: node 0 has no whole point")))
            .map_err(CliError::for_all)
    }
}

impl Numbered {
    /// The point.
    fn point(&self) -> Option<Point> {
        // Bounded before anything is made of it: it comes from another process.
        let Scope { nodes, threads, coroutines, .. } = self.scope;
        if nodes < 2 || threads > 1024 || coroutines > 65_536 || self.ud_mtu > 1 << 16 {
            return None;
        }
        bench::points(&self.scope, self.ud_mtu).into_iter().nth(self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::usual_scope;

    #[test]
    fn a_point_comes_back_as_it_was_and_others_are_told() {
        let scope = usual_scope(false, true);
        let numbered = Numbered { fabric: FabricChoice::Tcp, scope, ud_mtu: 4096, number: 3, seed: 7 };
        let asked = Asked::Numbered(numbered.clone());
        assert_eq!(Asked::decode(&asked.encode()), Ok(Some(asked)));
        assert_eq!(Asked::decode(b"{\"spec\":{}}"), Ok(None), "a run, not a point");
        for bent in [
            Numbered { number: 100_000, ..numbered.clone() },
            Numbered { scope: Scope { nodes: 1, ..scope }, ..numbered.clone() },
            Numbered { scope: Scope { threads: u16::MAX, ..scope }, ..numbered.clone() },
            Numbered { ud_mtu: u32::MAX, ..numbered },
        ] {
            assert!(Asked::decode(&Asked::Numbered(bent.clone()).encode()).is_err(), "{bent:?}");
        }
        for bad in [&b""[..], b"{\"bench\":1}", b"{\"bench\":\"x\",\"fabric\":\"tcp\"}"] {
            assert!(Asked::decode(bad).is_err());
        }
    }

    #[test]
    fn requests_of_an_experiment_come_back_as_they_were_and_others_are_told() {
        let mut spec = RunSpec {
            primitive: Some(PrimitiveSpec::default()),
            fabric: FabricChoice::Tcp,
            nodes: 3,
            threads: 2,
            seed: 9,
            ..RunSpec::default()
        };
        let all = [
            ("verb", json!("rpc")),
            ("payload", json!(256)),
            ("outstanding", json!(3)),
            ("doorbell_batch", json!(2)),
            ("signal_period", json!(4)),
            ("servers", json!(1)),
            ("loop", json!("coroutines")),
            ("coroutines", json!(5)),
            ("duration", json!("30ms")),
        ];
        all.iter().for_each(|(key, value)| spec.apply(key, value).expect("a value"));
        let asked = Asked::Written(Box::new(spec.clone()));
        assert_eq!(Asked::decode(&asked.encode()), Ok(Some(asked)));
        for bent in [
            "{\"requests\":1}",
            "{\"requests\":{\"nodes\":0}}",
            "{\"requests\":{\"primitive\":{\"verb\":\"x\"}}}",
        ] {
            assert!(Asked::decode(bent.as_bytes()).is_err(), "{bent}");
        }
    }
}
