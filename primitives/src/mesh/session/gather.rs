//! Gathering at node 0, which alone waits: until all have given, a node is lost, or somebody at node 0 has had enough. What
//! has come until then is not thrown away.

use super::{MeshError, Session, kind};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long a gathering that somebody wants to end goes on: what is on its way may still arrive.
const GRACE: Duration = Duration::from_secs(2);

/// What came of a gathering.
#[derive(Debug, PartialEq, Eq)]
pub struct Gathered {
    /// What each node gave, in node order; `None` of those that have given nothing.
    pub parts: Vec<Option<Vec<u8>>>,
    /// Why not all of it is there; then the session has ended. [`MeshError::Interrupted`] if it was cancelled.
    pub cut_short: Option<MeshError>,
}

impl Gathered {
    /// What all nodes gave.
    ///
    /// # Errors
    /// Why it is not all there.
    pub fn whole(self) -> Result<Vec<Vec<u8>>, MeshError> {
        match self.cut_short {
            Some(error) => Err(error),
            None => Ok(self.parts.into_iter().flatten().collect()),
        }
    }
}

impl Session {
    /// All nodes give something to the driver, which alone gets it, in node order. Members go on at once.
    ///
    /// # Errors
    /// As [`Session::exchange`].
    pub fn gather(&mut self, step: &str, mine: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, MeshError> {
        self.gather_unless(step, mine, &|| false)?.map(Gathered::whole).transpose()
    }

    /// As [`Session::gather`], given up two seconds after `cancelled` says so, which is asked ten times a second. The driver gets
    /// what has come, also if a node is lost before it has given.
    ///
    /// # Errors
    /// If the session has ended before.
    pub fn gather_unless(
        &mut self,
        step: &str,
        mine: Vec<u8>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<Gathered>, MeshError> {
        if !self.drives() {
            self.give(kind::SHARE, mine)?;
            return Ok(None);
        }
        self.check()?;
        self.step += 1;
        let asked: Cell<Option<Instant>> = Cell::new(None);
        let enough = || {
            if cancelled() && asked.get().is_none() {
                asked.set(Some(Instant::now()));
            }
            asked.get().is_some_and(|since| since.elapsed() >= GRACE)
        };
        let mut gathered = Gathered { parts: vec![Some(mine)], cut_short: None };
        for node in super::super::config::ids(self.count).skip(1) {
            let part = match gathered.cut_short {
                None => self.await_from(step, node, &enough).map_err(|error| match error {
                    MeshError::Cancelled => MeshError::Interrupted { node: self.node },
                    other => other,
                }),
                // The session has ended: what came before that is all there will be.
                Some(_) => {
                    gathered.parts.push(self.given.remove(&(self.step, node)));
                    continue;
                }
            };
            gathered.cut_short = part.as_ref().err().cloned();
            gathered.parts.push(part.ok());
        }
        Ok(Some(gathered))
    }
}
