//! Doorbell: reports.
