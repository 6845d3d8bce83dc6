//! Inputs that are scaled one at a time in search of what would change a choice, and how a scaled input is told: by the number that it
//! is, with its unit, or by the largest of several.

use primitives::profile::{Profile, Quantity};
use serde::Serialize;

/// Numbers of a profile that are scaled together.
pub(super) struct Knob {
    /// What they are, in words.
    pub(super) name: &'static str,
    /// Each by its section of the profile and its name there.
    numbers: &'static [(&'static str, &'static str)],
}

/// Inputs that are scaled one at a time.
pub(super) const KNOBS: &[Knob] = &[
    Knob { name: "an MMIO doorbell", numbers: &[("cpu", "doorbell")] },
    Knob { name: "building a request", numbers: &[("cpu", "request")] },
    Knob {
        name: "the CPU cost of RPC messages",
        numbers: &[("cpu", "rpc_decode"), ("cpu", "rpc_dispatch"), ("cpu", "rpc_encode")],
    },
    Knob {
        name: "the NIC engine's time for one-sided verbs",
        numbers: &[
            ("nic", "requester_read"),
            ("nic", "requester_write"),
            ("nic", "requester_atomic"),
            ("nic", "responder_read"),
            ("nic", "responder_write"),
            ("nic", "responder_atomic"),
        ],
    },
    Knob {
        name: "the NIC engine's time for SEND and RECV",
        numbers: &[("nic", "requester_send"), ("nic", "responder_send")],
    },
    Knob { name: "the atomic unit's service time", numbers: &[("nic", "atomic_unit")] },
    // An ATOMIC holds its word for a read and a write over PCIe.
    Knob { name: "the PCIe read latency", numbers: &[("nic", "pcie_read"), ("nic", "atomic_hold")] },
    Knob { name: "the link rate", numbers: &[("nic", "link_rate")] },
];

impl Knob {
    /// Multiplies its numbers.
    pub(super) fn scale(&self, profile: &mut Profile, factor: f64) {
        for (section, name) in self.numbers {
            let number = profile.number_mut(section, name).expect("a number that profiles have");
            number.value *= factor;
        }
    }

    /// What it is when its numbers are as they are.
    pub(super) fn input(&self, profile: &Profile) -> Input {
        let mine = |(section, name, _): &(&'static str, &'static str, &Quantity)| {
            self.numbers.contains(&(section, name))
        };
        let largest = profile.quantities().filter(mine).max_by(|a, b| a.2.value.total_cmp(&b.2.value));
        let (section, name, quantity) = largest.expect("a number that profiles have");
        Input {
            name: self.name.to_owned(),
            number: format!("{section}.{name}"),
            unit: quantity.unit.name().to_owned(),
            now: quantity.value,
            others: self.numbers.len() - 1,
        }
    }
}

/// An input that is scaled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Input {
    /// What it is, in words.
    pub name: String,
    /// The number that it is, as profiles call it; of several, the largest. Empty for what is no number of a profile.
    pub number: String,
    /// The unit of that.
    pub unit: String,
    /// Its value.
    pub now: f64,
    /// How many other numbers are scaled with it.
    pub others: usize,
}

impl Input {
    /// A share of the lookups in a location cache.
    pub(super) fn lookups(name: &str, share: f64) -> Input {
        let unit = "%".to_owned();
        Input { name: name.to_owned(), number: String::new(), unit, now: 100.0 * share, others: 0 }
    }

    fn with_unit(&self, value: f64) -> String {
        format!("{} {}", digits(value), self.unit)
    }

    /// Its value when it is multiplied by so much; more than all lookups there are not.
    pub fn at(&self, by: f64) -> f64 {
        if self.number.is_empty() { (by * self.now).min(100.0) } else { by * self.now }
    }

    /// From which value on, or from which factor where there are several: `fell under 60 ns`.
    fn beyond(&self, by: f64, fell: &str, rose: &str) -> String {
        let way = if by < 1.0 { fell } else { rose };
        match self.others {
            0 => format!("{way} {} (×{by:.2})", self.with_unit(self.at(by))),
            _ => format!("{way} ×{by:.2}"),
        }
    }

    /// A condition, for a sentence: `an MMIO doorbell (cpu.doorbell, now 70 ns) fell under 60 ns (×0.86)`.
    pub(super) fn condition(&self, by: f64) -> String {
        let now = self.with_unit(self.now);
        let beyond = self.beyond(by, "fell under", "rose over");
        match (self.number.is_empty(), self.others) {
            (true, _) => format!("{} (now {now}) {beyond}", self.name),
            (false, 0) => format!("{} ({}, now {now}) {beyond}", self.name, self.number),
            (false, _) => format!(
                "{} {beyond} of what it is ({}, the largest number of it, from {now} to {})",
                self.name,
                self.number,
                self.with_unit(self.at(by))
            ),
        }
    }

    /// The same for a cell of a table: `an MMIO doorbell under 60 ns (×0.86), now 70 ns`.
    pub(super) fn cell(&self, by: f64) -> String {
        let now = self.with_unit(self.now);
        let beyond = self.beyond(by, "under", "over");
        match self.others {
            0 => format!("{} {beyond}, now {now}", self.name),
            _ => format!(
                "{} {beyond} (all {} numbers of it; the largest, {}, at {}, now {now})",
                self.name,
                self.others + 1,
                self.number,
                self.with_unit(self.at(by))
            ),
        }
    }
}

/// Three digits, as few as tell a price: `60`, `12.5`, `0.025`.
fn digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let decimals = (2 - value.abs().log10().floor() as i32).clamp(0, 12);
    let text = format!("{value:.*}", decimals as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixtures::profile;

    /// What is scaled together has one unit, so that the largest of it means something, and is what the profile says.
    #[test]
    fn inputs_are_numbers_of_a_profile() {
        let before = profile();
        for knob in KNOBS {
            let input = knob.input(&before);
            let mut after = before.clone();
            knob.scale(&mut after, 2.0);
            let moved: Vec<_> =
                before.quantities().zip(after.quantities()).filter(|(a, b)| a.2.value != b.2.value).collect();
            assert!(!moved.is_empty() && moved.len() <= knob.numbers.len(), "{}", knob.name);
            for (was, is) in moved {
                assert_eq!((is.2.value, was.2.unit.name()), (2.0 * was.2.value, input.unit.as_str()));
                assert!(was.2.value <= input.now, "{}: {}", knob.name, was.1);
            }
            let doubled = knob.input(&after);
            assert_eq!((doubled.now, doubled.number), (2.0 * input.now, input.number));
        }
    }

    #[test]
    fn one_number_is_told_with_its_unit_and_several_by_the_largest() {
        let mut profile = profile();
        profile.cpu.doorbell.value = 70.0;
        let doorbell = KNOBS[0].input(&profile);
        assert_eq!(
            doorbell.condition(60.0 / 70.0),
            "an MMIO doorbell (cpu.doorbell, now 70 ns) fell under 60 ns (×0.86)"
        );
        assert_eq!(doorbell.cell(1.35), "an MMIO doorbell over 94.5 ns (×1.35), now 70 ns");
        (profile.cpu.rpc_decode.value, profile.cpu.rpc_encode.value) = (30.0, 40.0);
        profile.cpu.rpc_dispatch.value = 50.0;
        let messages = KNOBS[2].input(&profile);
        assert_eq!(
            messages.condition(1.5),
            "the CPU cost of RPC messages rose over ×1.50 of what it is (cpu.rpc_dispatch, the largest number of it, from 50 ns to 75 ns)"
        );
        assert_eq!(
            messages.cell(0.5),
            "the CPU cost of RPC messages under ×0.50 (all 3 numbers of it; the largest, cpu.rpc_dispatch, at 25 ns, now 50 ns)"
        );
        assert_eq!(
            Input::lookups("location cache hits", 0.5).condition(0.8),
            "location cache hits (now 50 %) fell under 40 % (×0.80)"
        );
        assert_eq!(Input::lookups("location cache misses", 0.8).at(2.0), 100.0);
    }

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.024_996, "0.025"),
            (1.0, "1"),
            (12.345, "12.3"),
            (99.96, "100"),
            (1234.5, "1234"),
            (1e-9, "0.000000001"),
            (1e-15, "0"),
        ] {
            assert_eq!(digits(value), text);
        }
    }
}
