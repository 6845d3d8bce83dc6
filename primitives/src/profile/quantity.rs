//! A number that knows its unit and where it comes from.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// Unit of a [`Quantity`]. Each field of a profile accepts exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Ns,
    /// Nanoseconds per byte.
    #[serde(rename = "ns/B")]
    NsPerByte,
    /// Bytes.
    #[serde(rename = "B")]
    Bytes,
    /// 10⁹ bytes per second.
    #[serde(rename = "GB/s")]
    GBps,
    /// A whole number of things.
    #[serde(rename = "count")]
    Count,
}

impl Unit {
    /// The unit as profile files spell it.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Ns => "ns",
            Unit::NsPerByte => "ns/B",
            Unit::Bytes => "B",
            Unit::GBps => "GB/s",
            Unit::Count => "count",
        }
    }
}

/// Where a number comes from, from firm to weak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Measured here, by `doorbell characterize`.
    Measured,
    /// Printed in a paper, a data sheet or a public measurement log.
    Published,
    /// Fitted so that the whole model meets published rates or latencies, which `ref` names.
    Calibrated,
    /// Known from the literature but not confirmed in a source that could be read, or only at second hand; also what was
    /// fitted to such a figure.
    Recalled,
    /// A guess; `ref` says on what grounds.
    Assumed,
}

impl Source {
    /// The source as profile files spell it.
    pub fn name(self) -> &'static str {
        match self {
            Source::Measured => "measured",
            Source::Published => "published",
            Source::Calibrated => "calibrated",
            Source::Recalled => "recalled",
            Source::Assumed => "assumed",
        }
    }
}

/// One number of a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantity {
    /// The number, in `unit`.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
    /// Where it comes from.
    pub source: Source,
    /// Bounds within which a fit may move the number, low and high; a number without them is fixed.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "bounds")]
    pub free: Option<[f64; 2]>,
    /// Paper and section, public source, or grounds.
    #[serde(rename = "ref")]
    pub reference: String,
}

/// Bounds in a file: two numbers, which an error says in place of an array's length.
fn bounds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<[f64; 2]>, D::Error> {
    let numbers = Vec::<f64>::deserialize(from)?;
    let two = numbers.as_slice().try_into();
    two.map(Some)
        .map_err(|_| D::Error::custom(format_args!("two bounds are wanted, [low, high], not {numbers:?}")))
}

impl Quantity {
    /// A number that no fit may move.
    pub fn fixed(value: f64, unit: Unit, source: Source, reference: &str) -> Quantity {
        Quantity { value, unit, source, free: None, reference: reference.to_owned() }
    }

    /// The same number of another card or processor: whatever is known of the first says nothing of that one.
    pub(super) fn carried_over(mut self, from: &str) -> Quantity {
        if self.source != Source::Assumed {
            self.reference =
                format!("carried over from {from}, {} there: {}", self.source.name(), self.reference);
            self.source = Source::Assumed;
        }
        self
    }

    /// A number measured here.
    pub fn measured(value: f64, unit: Unit, how: &str) -> Quantity {
        Quantity::fixed(value, unit, Source::Measured, how)
    }
}

/// What a field's number may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Range {
    /// Above zero: rates, waits.
    Positive,
    /// Zero or more: costs and latencies.
    NonNegative,
    /// A whole number, one or more.
    WholePositive,
    /// A whole number, zero or more.
    Whole,
    /// A whole number between two others.
    Within(f64, f64),
    /// Above zero, up to a second: what somebody waits for on purpose.
    Timer,
}

/// A second, in nanoseconds.
const LONGEST_WAIT: f64 = 1e9;

impl Unit {
    /// The least value above zero that a field may hold.
    pub fn least(self) -> f64 {
        self.bounds().0
    }

    /// The least value above zero and the largest that a field may hold: what hardware could have, with room.
    /// They keep picoseconds and byte counts far from the limits of their integers.
    fn bounds(self) -> (f64, f64) {
        match self {
            // A millisecond is 200 km of cable, and a hundred times the slowest card.
            Unit::Ns => (1e-3, 1e6),
            Unit::NsPerByte => (1e-6, 1e4),
            Unit::Bytes | Unit::Count => (1.0, 1e9),
            Unit::GBps => (1e-3, 1e4),
        }
    }
}

impl Range {
    /// Why `value` of `unit` is impossible, if it is.
    pub(super) fn refuse(self, value: f64, unit: Unit) -> Option<String> {
        let whole = value.fract() == 0.0;
        let (least, largest) = match (self, unit.bounds()) {
            (Range::Timer, (least, _)) => (least, LONGEST_WAIT),
            (_, bounds) => bounds,
        };
        let why = match self {
            _ if !value.is_finite() => "is not a finite number",
            Range::Positive | Range::Timer if value <= 0.0 => "must be above zero",
            Range::NonNegative if value < 0.0 => "must not be negative",
            Range::WholePositive if !whole || value < 1.0 => "must be a whole number of at least one",
            Range::Whole if !whole || value < 0.0 => "must be a whole number, zero or more",
            Range::Within(low, high) if !whole || !(low..=high).contains(&value) => {
                return Some(format!("must be a whole number between {low} and {high}"));
            }
            _ if value > largest => {
                return Some(format!("is over {largest:e} {}, more than any hardware has", unit.name()));
            }
            _ if value != 0.0 && value < least => {
                return Some(format!("is above zero but under {least:e} {}", unit.name()));
            }
            _ => return None,
        };
        Some(why.to_owned())
    }
}

/// Declares a section of the profile: a struct of quantities and the table of its fields.
macro_rules! section {
    (
        $(#[$meta:meta])*
        pub struct $name:ident over $overlay:ident {
            words { $( $(#[$plain_meta:meta])* $plain:ident : $plain_ty:ty, )* }
            numbers { $( $(#[doc = $about:literal])* $field:ident : $unit:ident $range:ident $(($low:literal, $high:literal))?, )* }
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $( $(#[$plain_meta])* pub $plain: $plain_ty, )*
            $( $(#[doc = $about])* pub $field: $crate::profile::quantity::Quantity, )*
        }

        /// What a file that extends another profile says about this section; the rest is inherited.
        #[derive(Default, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(super) struct $overlay {
            $( pub(super) $plain: Option<$plain_ty>, )*
            $( $field: Option<$crate::profile::quantity::Quantity>, )*
        }

        impl $overlay {
            /// Puts what the file says over `base`.
            pub(super) fn over(self, base: $name) -> $name {
                $name {
                    $( $plain: self.$plain.unwrap_or(base.$plain), )*
                    $( $field: self.$field.unwrap_or(base.$field), )*
                }
            }
        }

        impl $name {
            /// The same numbers of another card or processor.
            pub(super) fn carried_over(self, from: &str) -> $name {
                $name {
                    $( $plain: self.$plain, )*
                    $( $field: self.$field.carried_over(from), )*
                }
            }

            /// A number by its field name, for fits and sweeps.
            pub fn number_mut(&mut self, name: &str) -> Option<&mut $crate::profile::quantity::Quantity> {
                match name {
                    $( stringify!($field) => Some(&mut self.$field), )*
                    _ => None,
                }
            }

            /// Every number with its name, the unit it must have and the range it must lie in.
            pub(super) fn table(&self) -> Vec<$crate::profile::quantity::Entry<'_>> {
                use $crate::profile::quantity::{Entry, Range, Unit};
                vec![$( Entry {
                    name: stringify!($field),
                    about: concat!($($about),*),
                    quantity: &self.$field,
                    unit: Unit::$unit,
                    range: Range::$range $(($low, $high))?,
                }, )*]
            }
        }
    };
}
pub(super) use section;

/// A row of a section's table.
pub(super) struct Entry<'a> {
    pub name: &'static str,
    /// What it is, as documented.
    pub about: &'static str,
    pub quantity: &'a Quantity,
    pub unit: Unit,
    pub range: Range,
}

impl Entry<'_> {
    /// Why the bounds of a free number are impossible, if they are.
    pub(super) fn refuse_free(&self) -> Option<String> {
        let [low, high] = self.quantity.free?;
        if low > high {
            return Some(format!("has free bounds {low} to {high}: the lower one comes first"));
        }
        if low == high {
            return Some(format!(
                "has free bounds {low} to {high}, between which nothing lies: leave `free` out"
            ));
        }
        for bound in [low, high] {
            if let Some(why) = self.range.refuse(bound, self.unit) {
                return Some(format!("its free bound {bound} {why}"));
            }
        }
        let value = self.quantity.value;
        (!(low..=high).contains(&value)).then(|| format!("is not within its free bounds {low} to {high}"))
    }
}
