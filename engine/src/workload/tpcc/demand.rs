//! TPC-C as the cost model sees it.

use super::size::DISTRICTS;
use super::{Kind, Tpcc};
use crate::workload::Scale;
use crate::workload::demand::Shape;
