//! Doorbell: transactions.
//!
//! A [`protocol`] is a sequence of phase operations and rules, written once for every plan and fabric. A
//! [`session`] runs transactions of a [`workload`] over it: begin, read, write, commit, retry. [`verify`] records
//! what happened and checks that it was serializable. [`cluster`] puts them on nodes and is the only file here that
//! names a fabric.

#![deny(clippy::disallowed_methods)]

pub mod cluster;
pub mod protocol;
pub mod session;
pub mod stats;
pub mod verify;
pub mod workload;
