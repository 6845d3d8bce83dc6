//! Doorbell: phases.
