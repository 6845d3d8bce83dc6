//! Measuring and keeping what was measured: histograms, verb and hardware counters, and result files.
//!
//! A run leaves one directory. [`RunRecord`] is its `run.json`: what was asked, on what machine, by which
//! commit. [`ResultDir`] writes the directory: one row per point as the point ends, in point order, so
//! that a crash loses only the points that were running and equal specs leave equal bytes. The columns are
//! those of [`columns`]; a cell that could not be measured is empty, never 0.
//!
//! Nothing here reads a clock except [`RunRecord::new`], which stamps when the run began.

mod columns;
mod commit;
mod count;
mod dir;
mod error;
mod files;
mod hardware;
mod histogram;
mod left;
mod machine;
mod record;
mod row;
mod shard;
mod share;
mod sheet;
pub mod steady;
mod table;
mod turnover;
mod turns;
mod verified;

pub use columns::{ABORTS, Columns, Holds, PHASES, TableName, columns, known_columns, point_columns};
pub use commit::short_commit;
pub use count::{count, were};
pub use dir::{PointResult, ResultDir};
pub use error::{ResultError, is_full};
pub use files::{write_atomic, write_new};
pub use hardware::{Counters, HardwareCounts};
pub use histogram::{Histogram, HistogramData};
pub use left::{Found, Left, gone};
pub use machine::{Machine, memory_available};
pub use record::{Difference, Kind, Printed, ProfileRef, Provenance, RunRecord, SCHEMA, deciding};
pub use row::{Cell, Row};
pub use shard::Shard;
pub use share::at_share;
pub use sheet::{Rules, Sheet};
pub use steady::{Meter, Precision, Steadiness};
pub use turnover::Turnover;
pub use turns::{FULL, TOO_SHORT, TooShort, UNSETTLED};
pub use verified::{Got, Short, Verified};
