//! What a core does, counted, and what that costs.

use primitives::profile::CpuProfile;

/// Work of a core, by what the CPU profile prices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuCounts {
    /// Coroutines resumed.
    pub resumes: f64,
    /// Work requests built.
    pub requests: f64,
    /// Doorbells rung.
    pub doorbells: f64,
    /// Lines copied into work requests.
    pub inline_lines: f64,
    /// Completions taken.
    pub completions: f64,
    /// RPC messages decoded.
    pub decodes: f64,
    /// RPC handlers called.
    pub dispatches: f64,
    /// RPC messages encoded.
    pub encodes: f64,
    /// Bytes copied.
    pub copied: f64,
    /// Index buckets, records or cache entries looked at.
    pub probes: f64,
}

impl CpuCounts {
    /// These and `factor` times `other`.
    pub(crate) fn plus(&self, factor: f64, other: &CpuCounts) -> CpuCounts {
        CpuCounts {
            resumes: self.resumes + factor * other.resumes,
            requests: self.requests + factor * other.requests,
            doorbells: self.doorbells + factor * other.doorbells,
            inline_lines: self.inline_lines + factor * other.inline_lines,
            completions: self.completions + factor * other.completions,
            decodes: self.decodes + factor * other.decodes,
            dispatches: self.dispatches + factor * other.dispatches,
            encodes: self.encodes + factor * other.encodes,
            copied: self.copied + factor * other.copied,
            probes: self.probes + factor * other.probes,
        }
    }

    /// The time this takes, in nanoseconds.
    pub fn cost_ns(&self, cpu: &CpuProfile) -> f64 {
        self.resumes * cpu.resume.value
            + self.requests * cpu.request.value
            + self.doorbells * cpu.doorbell.value
            + self.inline_lines * cpu.inline_line.value
            + self.completions * cpu.completion.value
            + self.decodes * cpu.rpc_decode.value
            + self.dispatches * cpu.rpc_dispatch.value
            + self.encodes * cpu.rpc_encode.value
            + self.copied * cpu.copy_byte.value
            + self.probes * cpu.probe.value
    }
}
