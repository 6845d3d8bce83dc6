//! SmallBank as the cost model sees it.

use super::{KINDS, Kind, SmallBank};
use crate::workload::demand::{Shape, classes_of};
use phases::model::{Spots, TxnClass};

impl Kind {
    /// Records read and not written, and records read and written, by one attempt that commits.
    const fn records(self) -> (f64, f64) {
        match self {
            Kind::Amalgamate => (0.0, 3.0),
            Kind::Balance => (2.0, 0.0),
            Kind::DepositChecking | Kind::TransactSavings => (0.0, 1.0),
            Kind::SendPayment => (0.0, 2.0),
            Kind::WriteCheck => (1.0, 1.0),
        }
    }

    /// Customers whose accounts it only reads, and others: both accounts of one are on one node.
    const fn customers(self) -> Spots {
        match self {
            Kind::Amalgamate | Kind::SendPayment => Spots { reads: 0.0, writes: 2.0 },
            Kind::Balance => Spots { reads: 1.0, writes: 0.0 },
            Kind::DepositChecking | Kind::TransactSavings | Kind::WriteCheck => {
                Spots { reads: 0.0, writes: 1.0 }
            }
        }
    }
}

impl SmallBank {
    /// The mix, and where its accesses go: both tables have a record for each customer.
    pub(in crate::workload) fn shape(&self) -> Shape {
        let kinds = KINDS.map(|(_, kind)| (kind, self.mix.share(kind)));
        let classes = kinds.into_iter().filter(|(_, share)| *share > 0.0).map(|(kind, share)| {
            let (reads, writes) = kind.records();
            TxnClass {
                spots: Some(kind.customers()),
                ..TxnClass::new(&format!("{kind:?}"), share, reads, writes)
            }
        });
        Shape {
            classes: classes_of(classes),
            keys: self.customers,
            tables: 2,
            payload_bytes: self.payload_bytes,
            reads_ahead: true,
            remote: self.remote.is_some(),
        }
    }
}
