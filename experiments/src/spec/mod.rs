//! What a person can ask for: one run, or a grid of runs with a question.
//!
//! Flags and experiment files set the same [`RunSpec`] through the same parsers in [`values`], so a value is
//! refused with the same words wherever it stands.

mod choice;
mod combinations;
mod command;
mod entries;
mod experiment;
mod grid;
pub mod limits;
mod places;
mod primitive;
mod run;
pub mod values;

pub use choice::{FabricChoice, PlanChoice, ProfileChoice};
pub use command::command;
pub use experiment::{Experiment, Figure, SpecKind};
pub use grid::{Axis, Point};
pub use places::Places;
pub use primitive::PrimitiveSpec;
pub use run::{Refused, RunSpec, Span, Unfit};
