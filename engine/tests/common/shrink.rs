//! A failing case made smaller: what can be taken away, or halved, and still fails.

use super::Case;
use engine::cluster::{Clocks, Length};
use primitives::fabric::sim::FaultOptions;
use primitives::mesh::FabricSpec;
use std::fmt;
use std::str::FromStr;

/// Runs spent on making a case smaller.
const RUNS: u32 = 40;

/// How large a case is. As text, `nodes=2,workers=1,coroutines=1,transactions=5,replicas=1,faults=0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    nodes: u16,
    workers: u16,
    coroutines: u32,
    transactions: u64,
    replicas: u16,
    /// Of the fabric and of clocks.
    faults: bool,
}

impl Size {
    pub fn of(case: &Case) -> Size {
        let transactions = match case.spec.length {
            Length::Transactions(each) => each,
            _ => 0,
        };
        Size {
            nodes: case.spec.shape.nodes,
            workers: case.spec.shape.workers,
            coroutines: case.spec.plan.coroutines,
            transactions,
            replicas: case.spec.replicas,
            faults: true,
        }
    }

    /// The case in this size.
    pub fn cut(self, case: &Case) -> Case {
        let mut case = case.clone();
        (case.spec.shape.nodes, case.spec.shape.workers) = (self.nodes, self.workers);
        (case.spec.plan.coroutines, case.spec.replicas) = (self.coroutines, self.replicas.min(self.nodes));
        if self.transactions > 0 {
            case.spec.length = Length::Transactions(self.transactions);
        }
        if !self.faults {
            // How far time has come is no fault: timestamps stay as large.
            case.spec.clocks = Clocks { first_tick: case.spec.clocks.first_tick, ..Clocks::default() };
        }
        match &mut case.spec.fabric {
            FabricSpec::Sim { faults, .. } => {
                if !self.faults {
                    **faults = FaultOptions::default();
                }
                faults.slow.retain(|(node, _)| node.0 < self.nodes);
            }
            FabricSpec::Loopback(options) if !self.faults => options.datagram_loss = 0.0,
            _ => {}
        }
        case
    }

    /// A little less of each, what saves most first.
    fn smaller(self) -> Vec<Size> {
        let mut all = Vec::new();
        let mut add = |size: Size| {
            if size != self {
                all.push(size);
            }
        };
        add(Size { transactions: self.transactions.div_ceil(2), ..self });
        add(Size { coroutines: self.coroutines.div_ceil(2), ..self });
        add(Size { workers: 1, ..self });
        let nodes = self.nodes.saturating_sub(1).max(1);
        add(Size { nodes, replicas: self.replicas.min(nodes), ..self });
        add(Size { replicas: 1, ..self });
        add(Size { faults: false, ..self });
        all
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size { nodes, workers, coroutines, transactions, replicas, faults } = self;
        write!(f, "nodes={nodes},workers={workers},coroutines={coroutines},transactions={transactions}")?;
        write!(f, ",replicas={replicas},faults={}", u8::from(*faults))
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let mut size =
            Size { nodes: 1, workers: 1, coroutines: 1, transactions: 1, replicas: 1, faults: false };
        for part in text.split(',') {
            let (name, number) = part.split_once('=').ok_or(format!("`{part}` is not name=number"))?;
            let number: u64 = number.parse().map_err(|_| format!("`{part}`: not a number"))?;
            match name {
                "nodes" => size.nodes = number.max(1) as u16,
                "workers" => size.workers = number.max(1) as u16,
                "coroutines" => size.coroutines = number.max(1) as u32,
                "transactions" => size.transactions = number,
                "replicas" => size.replicas = number.max(1) as u16,
                "faults" => size.faults = number != 0,
                _ => return Err(format!("nothing is called `{name}`")),
            }
        }
        Ok(size)
    }
}

/// The smallest size found in which the case still fails; `fails` says whether it does in the same way.
pub fn shrink(case: &Case, fails: impl Fn(&Case) -> bool) -> Size {
    let mut size = Size::of(case);
    let mut runs = 0;
    loop {
        let next = size.smaller().into_iter().find(|smaller| {
            runs += 1;
            runs <= RUNS && fails(&smaller.cut(case))
        });
        match next {
            Some(smaller) => size = smaller,
            None => return size,
        }
    }
}
