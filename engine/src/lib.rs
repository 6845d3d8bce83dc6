//! Doorbell: engine.

pub mod verify;
