//! Counts in sentences.

/// `1 point`, `40 points`.
pub fn count(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// What so many did or were: `was`, `were`.
pub fn were(n: u64) -> &'static str {
    if n == 1 { "was" } else { "were" }
}
