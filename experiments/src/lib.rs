//! Doorbell: experiments.
