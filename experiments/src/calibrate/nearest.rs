//! Where the fit of a card begins that nobody has described: at the shipped card that comes nearest.
//!
//! A characterization does not reach every stage of a card, and a fit leaves alone what does not show. Stages that began at nothing
//! would stay there, and rates beyond those that were measured would have no limit. So the profile of a card begins as another's:
//!
//! 1. Each of [`CARDS`] is simulated at the identifying points of the characterization.
//! 2. The card is taken whose rates and latencies are off by least: by the root mean square of the logarithms of got over wanted,
//!    so that twice as fast counts as much as half as fast. Of equals the first.
//! 3. All its numbers are taken over as assumed; the reference names the card, and what was known of the number there. Limits that the
//!    device states take the place of the card's own.
//! 4. The numbers in [`SHOWING`] are free, from half of the least that any of the cards has to twice the most.
//!
//! What the device says of itself, its link's speed or its part number, decides nothing: what a cable or a slot lets through of it is in
//! the rates.

use primitives::bench::{UNCALIBRATED, state_limits};
use primitives::fabric::Caps;
use primitives::measure::Machine;
use primitives::profile::{Profile, Quantity, Source, Unit};

use super::Targets;
use super::solve::Halt;
use crate::error::CliError;
use crate::interrupt::Interrupt;

/// The shipped profiles of one card: not those of two, of messages through the kernel, of a device without a card, or
/// with the ceiling of messages that one paper gives a card of these.
pub const CARDS: [&str; 9] =
    ["cx4-edr", "cx4-roce", "connectib-fdr", "cx3", "cx3pro-fdr", "cx5", "cx6", "qdr", "aries"];

/// The numbers that a characterization can show (`primitives::bench::identifying` says in what). Not all do on every card: what hides
/// keeps its value.
pub const SHOWING: [(&str, &str); 19] = [
    ("nic", "requester_read"),
    ("nic", "requester_write"),
    ("nic", "responder_read"),
    ("nic", "responder_write"),
    ("nic", "responder_atomic"),
    ("nic", "responder_send"),
    ("nic", "segment"),
    ("nic", "atomic_unit"),
    ("nic", "atomic_hold"),
    ("nic", "pass_latency"),
    ("nic", "ack_delay"),
    ("nic", "pcie_rate"),
    ("nic", "link_rate"),
    ("nic", "qp_cache_entries"),
    ("nic", "qp_fetch"),
    ("cpu", "completion"),
    ("cpu", "request"),
    ("cpu", "doorbell"),
    ("cpu", "rpc_decode"),
];

/// The profiles of [`CARDS`].
///
/// # Errors
/// Never, unless a shipped profile is broken.
pub fn cards() -> Result<Vec<Profile>, CliError> {
    let shipped = |name: &&str| {
        Profile::shipped(name).map_err(|e| CliError::check("bug: a shipped profile is broken").caused_by(&e))
    };
    CARDS.iter().map(shipped).collect()
}

/// The one of `cards` that comes nearest to the targets, and by how much it is off: 0.3 is a factor of e^0.3 either way.
///
/// # Errors
/// If a target cannot be simulated, Ctrl-C ended it, or there are no cards.
pub fn nearest<'c>(
    cards: &'c [Profile],
    targets: &Targets,
    interrupt: &Interrupt,
) -> Result<(&'c Profile, f64), CliError> {
    let mut nearest: Option<(&Profile, f64)> = None;
    for card in cards {
        let errors = targets.errors(card, &[], interrupt).map_err(|halt| match halt {
            Halt::Interrupted => CliError::interrupted(),
            Halt::Failed(error) => error,
        })?;
        let off = distance(&errors);
        if nearest.is_none_or(|(_, least)| off < least) {
            nearest = Some((card, off));
        }
    }
    nearest.ok_or_else(|| CliError::check("bug: no card to compare with"))
}

/// Root mean square of the logarithms of got over wanted. What got nothing counts as a thousandth.
fn distance(errors: &[f64]) -> f64 {
    let logs: Vec<f64> = errors.iter().map(|error| (1.0 + error).max(1e-3).ln()).collect();
    super::solve::rms(&logs)
}

/// The profile from which the fit of the card behind `caps` begins.
///
/// # Errors
/// As [`nearest`].
pub fn begin(
    cards: &[Profile],
    targets: &Targets,
    caps: &Caps,
    machine: &Machine,
    interrupt: &Interrupt,
) -> Result<Profile, CliError> {
    let (card, off) = nearest(cards, targets, interrupt)?;
    let mut profile = card.clone();
    profile.name.clone_from(&caps.fabric);
    profile.nic.card.clone_from(&caps.fabric);
    profile.cpu.model.clone_from(&machine.cpu);
    profile.description = format!(
        "{} as measured on {}; what was not fitted to that is as on {}, of the shipped cards the one that comes nearest",
        caps.fabric, machine.cpu, card.name
    );
    profile.doubt = None;
    profile.add_doubt(&format!(
        "{UNCALIBRATED}: its numbers are those of {}, of the shipped cards the one that comes nearest, whose rates and latencies are off \
         by a factor of {:.2} in the root mean square",
        card.name,
        off.exp()
    ));
    let names: Vec<(&str, &str)> = card.quantities().map(|(section, name, _)| (section, name)).collect();
    for (section, name) in names {
        let Some(number) = profile.number_mut(section, name) else { continue };
        *number = Quantity {
            free: if SHOWING.contains(&(section, name)) { bounds(cards, section, name) } else { None },
            reference: format!(
                "as {}, the nearest shipped card, there {}: {}",
                card.name,
                number.source.name(),
                number.reference
            ),
            source: Source::Assumed,
            ..number.clone()
        };
    }
    state_limits(&mut profile.nic, caps);
    profile.validate().map_err(|e| CliError::check("the profile is impossible").caused_by(&e))?;
    Ok(profile)
}

/// From half of the least that any card has to twice the most; none where all have nothing.
fn bounds(cards: &[Profile], section: &str, name: &str) -> Option<[f64; 2]> {
    let of = |card: &Profile| {
        let found = card.quantities().find(|(s, n, _)| (*s, *n) == (section, name));
        found.map(|(_, _, number)| (number.value, number.unit))
    };
    let all: Vec<(f64, Unit)> = cards.iter().filter_map(of).collect();
    let least = all.iter().map(|(value, _)| *value).fold(f64::INFINITY, f64::min);
    let most = all.iter().map(|(value, _)| *value).fold(0.0, f64::max);
    let whole = all.iter().any(|(_, unit)| matches!(unit, Unit::Count | Unit::Bytes));
    let low = if whole { (least / 2.0).floor().max(least.min(1.0)) } else { least / 2.0 };
    (most > 0.0).then_some([low, 2.0 * most])
}

#[cfg(test)]
mod tests {
    use super::*;
    use primitives::profile::Interface;

    #[test]
    fn every_shipped_profile_of_one_card_is_tried() {
        let one_card = |name: &&str| {
            let profile = Profile::shipped(name).unwrap();
            let device_without = profile.nic.card.starts_with("verbs:");
            let ceiling = profile.nic.message_gap.value > 0.0;
            let one_card = profile.nic.interface == Interface::Verbs && profile.nic.cards.value == 1.0;
            one_card && !device_without && !ceiling
        };
        let mut shipped: Vec<&str> = Profile::NAMES.iter().copied().filter(one_card).collect();
        let mut tried = CARDS.to_vec();
        shipped.sort_unstable();
        tried.sort_unstable();
        assert_eq!(tried, shipped);
    }

    #[test]
    fn twice_as_fast_is_as_far_off_as_half_as_fast() {
        assert!((distance(&[1.0, 1.0]) - distance(&[-0.5, -0.5])).abs() < 1e-12);
        assert!((distance(&[1.0, -0.5]) - 2.0_f64.ln()).abs() < 1e-12);
        assert!(distance(&[-1.0]) > 6.0, "what got nothing is far off, and not infinitely");
        assert_eq!(distance(&[0.0, 0.0]), 0.0);
    }

    #[test]
    fn bounds_hold_every_card_and_are_possible() {
        let cards = cards().unwrap();
        for (section, name) in SHOWING {
            let [low, high] = bounds(&cards, section, name).unwrap();
            for card in &cards {
                let mut moved = card.clone();
                for value in [low, high] {
                    moved.number_mut(section, name).unwrap().value = value;
                    moved.validate().unwrap_or_else(|e| panic!("{e}"));
                }
                let own = card.quantities().find(|(s, n, _)| (*s, *n) == (section, name)).unwrap().2.value;
                assert!(low <= own && own <= high, "{name}: {own} of {}", card.name);
            }
        }
    }
}
