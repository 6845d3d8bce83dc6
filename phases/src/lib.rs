//! Doorbell: phases.

pub mod demand;
pub mod model;
pub mod plan;
