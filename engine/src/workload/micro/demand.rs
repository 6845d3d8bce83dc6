//! The micro workload as the cost model sees it.

use super::Micro;
use crate::workload::demand::{Shape, classes_of};
use phases::model::TxnClass;

impl Micro {
    /// One kind of transaction. Blind writes are read all the same: locking brings the record along.
    pub(in crate::workload) fn shape(&self) -> Shape {
        let class = TxnClass::new("micro", 1.0, self.reads as f64, self.writes as f64);
        Shape {
            classes: classes_of([class]),
            keys: self.keys,
            tables: 1,
            payload_bytes: self.payload_bytes,
            reads_ahead: self.together,
            remote: self.remote.is_some(),
        }
    }
}
