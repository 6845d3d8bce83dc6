//! YCSB as the cost model sees it.

use super::Ycsb;
use crate::workload::demand::{Shape, classes_of};
use phases::model::TxnClass;

impl Ycsb {
    /// A kind of transaction for each number of operations that come out as writes, but for the rare ones, which count as
    /// their neighbours. Blind writes are read all the same: locking brings the record along.
    pub(in crate::workload) fn shape(&self) -> Shape {
        let (operations, each) = (self.operations, self.write_share);
        let mut classes: Vec<TxnClass> = Vec::new();
        // Binomial, from none on.
        let mut chance = (1.0 - each).powi(operations as i32);
        let mut rare = 0.0;
        for writes in 0..=operations {
            let share = if each >= 1.0 { f64::from(writes == operations) } else { chance };
            chance *= (operations - writes) as f64 / (writes + 1) as f64 * each / (1.0 - each).max(1e-300);
            if share + rare < RARE {
                rare += share;
                continue;
            }
            let (reads, name) = ((operations - writes) as f64, format!("{writes} writes"));
            classes.push(TxnClass {
                think_ns: self.think.0 as f64,
                ..TxnClass::new(&name, share + std::mem::take(&mut rare), reads, writes as f64)
            });
        }
        if let Some(last) = classes.last_mut() {
            last.share += rare;
        }
        Shape {
            classes: classes_of(classes),
            keys: self.keys,
            tables: 1,
            payload_bytes: self.fields.payload_bytes(),
            reads_ahead: self.together,
            remote: self.remote.is_some(),
        }
    }
}

/// Kinds of transactions that are rarer are not told apart.
const RARE: f64 = 0.01;
