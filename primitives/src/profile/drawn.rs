//! Profiles that no one has: random but plausible cards and processors, each a value of a seed.
//!
//! A model that was made while looking at the shipped profiles is not judged by them alone. A drawn profile starts from a
//! shipped one, so that its numbers belong together, and moves each of them by a factor of its own: what a card or a core
//! costs and how fast its buses are, and how much its caches hold. Sizes that formats and drivers fix stay, and so does how
//! far atomics reach. All of a core's costs share one more factor, because processors are slow or fast as a whole.

use super::{Profile, ProfileError, Quantity, Source, Unit};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// What a drawn profile may start from: one card, with one-sided verbs.
const BASES: &[&str] =
    &["cx4-edr", "cx4-roce", "connectib-fdr", "cx3", "cx3pro-fdr", "cx5", "cx6", "qdr", "aries"];

/// Factors reach from one over this to this. Generations of cards differ by more, but not in every number on its own.
const APART: f64 = 1.6;
/// Caches and counts of what may be in flight.
const APART_COUNTS: f64 = 2.0;
/// Numbers that software or the standard sets.
const KEPT: &[&str] = &["rnr_timer", "packet_header"];
/// Numbers that no base has. They are passed over, not drawn, so that seeds stay what they were.
const ABSENT: &[&str] = &["message_gap", "receiver"];
/// Counts that are sizes of caches or of what may be under way at once.
const COUNTS: &[&str] = &[
    "pcie_tags",
    "wqe_cache_entries",
    "qp_cache_entries",
    "qp_fetches",
    "qp_fetches_write",
    "read_cache_entries",
];

impl Profile {
    /// The profile of a seed, named `drawn-SEED`.
    ///
    /// # Errors
    /// Never, unless a shipped profile is broken.
    pub fn drawn(seed: u64) -> Result<Profile, ProfileError> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6472_6177_6e00);
        let base = BASES[rng.random_range(0..BASES.len())];
        let mut profile = Profile::shipped(base)?;
        let mut factor = |apart: f64| apart.powf(2.0 * rng.random::<f64>() - 1.0);
        let core = factor(APART);
        let names: Vec<(&str, &str)> = profile
            .quantities()
            .map(|(section, name, _)| (section, name))
            .filter(|(_, name)| !ABSENT.contains(name))
            .collect();
        for (section, name) in names {
            let drawn = match section {
                "cpu" => core * factor(APART),
                _ => factor(APART),
            };
            let counted = factor(APART_COUNTS);
            let Some(number) = profile.number_mut(section, name).filter(|_| !KEPT.contains(&name)) else {
                continue;
            };
            match number.unit {
                Unit::Ns | Unit::NsPerByte | Unit::GBps => {
                    // Three digits say all there is to say, and read well.
                    let value = number.value * drawn;
                    let scale = 10f64.powi(2 - value.abs().max(1e-9).log10().floor() as i32);
                    move_to(number, (value * scale).round() / scale, base);
                }
                Unit::Count if COUNTS.contains(&name) => {
                    move_to(number, (number.value * counted).round().max(1.0), base);
                }
                Unit::Count | Unit::Bytes => {}
            }
        }
        profile.name = format!("drawn-{seed}");
        profile.description = format!("drawn by seed {seed} around {base}: no such card exists");
        profile.validate()?;
        Ok(profile)
    }
}

fn move_to(number: &mut Quantity, value: f64, base: &str) {
    *number = Quantity::fixed(value, number.unit, Source::Assumed, &format!("drawn around {base}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Primitive;

    #[test]
    fn drawn_profiles_are_profiles_and_values_of_their_seed() {
        let mut bases = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let profile = Profile::drawn(seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            assert_eq!(profile.hash_text(), Profile::drawn(seed).unwrap().hash_text());
            assert_eq!(profile.name, format!("drawn-{seed}"));
            bases.insert(profile.description.split("around ").nth(1).map(str::to_owned));
            // A file of it reads back: nothing is out of its bounds.
            let text = profile.to_yaml().unwrap();
            assert_eq!(Profile::parse(&text, "drawn").unwrap().hash_text(), profile.hash_text());
            let read = profile.nic.unloaded_latency_ns(Primitive::Read, 64, false);
            assert!((500.0..6_000.0).contains(&read), "seed {seed}: a READ takes {read} ns");
        }
        assert_eq!(bases.len(), BASES.len(), "every base is drawn");
    }

    #[test]
    fn numbers_stay_near_those_of_the_base() {
        for seed in 0..40 {
            let profile = Profile::drawn(seed).unwrap();
            let base =
                profile.description.split("around ").nth(1).unwrap().split(':').next().unwrap().to_owned();
            let base = Profile::shipped(&base).unwrap();
            let mut moved = 0;
            for ((section, name, drawn), (_, _, from)) in profile.quantities().zip(base.quantities()) {
                let most = if section == "cpu" { APART * APART } else { APART_COUNTS };
                let apart = if from.value == 0.0 { 1.0 } else { drawn.value / from.value };
                assert!(
                    (0.99 / most..1.01 * most).contains(&apart),
                    "seed {seed}: {section}.{name} × {apart}"
                );
                moved += usize::from(apart != 1.0);
            }
            assert!(moved > 20, "seed {seed}: only {moved} numbers moved");
            assert_eq!(profile.nic.atomic_scope, base.nic.atomic_scope);
        }
    }
}
