//! The RDMA toolkit: everything below the word "record".
//!
//! Read in this order: [`verbs::work`] (what can be asked of a NIC), [`fabric`] (who can be asked: the
//! narrow waist [`fabric::Nic`] and its backends), [`verbs::port`] (async verbs, written once over any
//! NIC), [`exec`] (coroutines and the core loop that resumes them), [`rpc`] (requests and replies over
//! UD datagrams). [`profile`] describes NICs and CPUs as files, [`bench`](mod@bench) measures primitives, and
//! [`measure`] holds histograms and result files.

#![deny(clippy::disallowed_methods)]

pub mod bench;
pub mod exec;
pub mod fabric;
pub mod measure;
pub mod mem;
pub mod mesh;
pub mod place;
pub mod profile;
pub mod rpc;
pub mod secret;
pub mod units;
pub mod verbs;
pub mod yaml;
