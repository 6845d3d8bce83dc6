//! YCSB as the cost model sees it.

use super::Ycsb;
use crate::workload::demand::{Shape, classes_of};
use phases::model::TxnClass;

impl Ycsb {
    /// Two kinds of transaction: those in which no operation came out as a write, and the mean of the others. Blind writes are
    /// read all the same: locking brings the record along.
    pub(in crate::workload) fn shape(&self) -> Shape {
        let (operations, written) = (self.operations as f64, self.operations as f64 * self.write_share);
        let only_read = (1.0 - self.write_share).powi(self.operations as i32);
        let class = |name: &str, share: f64, writes: f64| TxnClass {
            think_ns: self.think.0 as f64,
            ..TxnClass::new(name, share, operations - writes, writes)
        };
        let all = [
            class("read-only", only_read, 0.0),
            class("read-write", 1.0 - only_read, written / (1.0 - only_read).max(f64::MIN_POSITIVE)),
        ];
        Shape {
            classes: classes_of(all.into_iter().filter(|class| class.share > 0.0)),
            keys: self.keys,
            tables: 1,
            payload_bytes: self.fields.payload_bytes(),
            reads_ahead: self.together,
        }
    }
}
