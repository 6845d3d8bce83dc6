//! Doorbell: phases.

pub mod plan;
