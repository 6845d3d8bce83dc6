//! One program on two fabrics: each node of two adds to a counter in the other's memory, then reads it.
//! `cargo run --release -p doorbell-primitives --example port`.

use primitives::exec::{Core, CoreLoop};
use primitives::fabric::{AnyNic, Nic, SetupError, loopback};
use primitives::mem::{Access, Region};
use primitives::mesh::{FabricSpec, Program, Shape, Site, WorkerConfig, launch};
use primitives::profile::Profile;
use primitives::verbs::port::VerbError;
use primitives::verbs::{NodeId, Remote, Rkey};
use std::{cell::RefCell, rc::Rc};

struct Counters;

impl Program for Counters {
    type Shared = Vec<Rkey>;
    type Local = Rc<RefCell<String>>;
    type Output = String;

    fn setup(&self, _: Shape, nodes: &[AnyNic]) -> Result<Vec<Rkey>, SetupError> {
        nodes.iter().map(|nic| Ok(nic.register(&Region::new(4096), Access::ALL)?.rkey)).collect()
    }

    fn build<'a>(
        &'a self,
        keys: &'a Vec<Rkey>,
        site: &Site,
    ) -> Result<(impl CoreLoop + 'a, Self::Local), SetupError> {
        let (port, me) = (site.net.port.clone(), site.node);
        let other = NodeId((me.0 + 1) % site.shape.nodes);
        let counter = Remote { node: other, rkey: keys[other.index()], offset: 0 };
        let said = Rc::new(RefCell::new(String::new()));
        // What drives the port between two resumes of the coroutine is the port itself.
        let mut core = Core::new(site.net.sched.clone(), port.clone());
        let out = said.clone();
        core.spawn(async move {
            let began = port.now();
            let told: Result<String, VerbError> = async {
                for _ in 0..1000 {
                    port.fetch_add(counter, 1).await?; // one doorbell, one round trip
                }
                let found = port.read(counter, 8).await?.word(0);
                Ok(format!("{me} counted to {found} on {other}, {} each", (port.now().since(began)).0 / 1001))
            }
            .await;
            *out.borrow_mut() = told.unwrap_or_else(|error| error.to_string());
        });
        Ok((core, said))
    }

    fn finish(&self, _: &Vec<Rkey>, _: Site, said: Self::Local) -> String {
        said.take()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let profile = Box::new(Profile::shipped("cx4-edr")?);
    for (name, fabric) in [
        ("loopback", FabricSpec::Loopback(loopback::Options::default())),
        ("sim:cx4-edr", FabricSpec::Sim { profile, seed: 1, faults: Box::default() }),
    ] {
        let (said, _) = launch(&fabric, Shape { nodes: 2, workers: 1 }, &WorkerConfig::default(), &Counters)?;
        said.iter().for_each(|line| println!("{name}: {line} ns"));
    }
    Ok(())
}
