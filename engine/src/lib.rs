//! Doorbell: engine.
