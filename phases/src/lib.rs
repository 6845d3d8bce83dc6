//! What one phase of a distributed transaction costs, and the records phases act on.
//!
//! Read in this order: [`rule`] (what may be locked or validated: pure), [`txn`] (what one phase leaves for the
//! next), [`store`] (records, index, location cache), [`plan`] (which primitive serves which phase: data),
//! [`ops`] (the phases, one-sided and two-sided), [`log`] (their logs), [`demand`] (what each asks of cores, NICs
//! and wire), [`model`] (what a plan will do, and which is best), [`study`] (each phase driven alone).

#![deny(clippy::disallowed_methods)]

pub mod demand;
pub mod log;
pub mod model;
pub mod ops;
pub mod plan;
pub mod rule;
pub mod store;
pub mod study;
pub mod txn;
