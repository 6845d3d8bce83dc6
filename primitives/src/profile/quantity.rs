//! A number that knows its unit and where it comes from.

use serde::{Deserialize, Serialize};

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
    /// Known from the literature but not confirmed in a source that could be read.
    Recalled,
    /// A guess; `ref` says on what grounds.
    Assumed,
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
    /// Paper and section, public source, or grounds.
    #[serde(rename = "ref")]
    pub reference: String,
}

impl Quantity {
    /// A number measured here.
    pub fn measured(value: f64, unit: Unit, how: &str) -> Quantity {
        Quantity { value, unit, source: Source::Measured, reference: how.to_owned() }
    }
}

/// What a field's number may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    /// Above zero: rates, sizes.
    Positive,
    /// Zero or more: costs and latencies.
    NonNegative,
    /// A whole number, one or more.
    WholePositive,
    /// A whole number, zero or more.
    Whole,
}

impl Range {
    /// Why `value` is impossible, if it is. The upper bound keeps picoseconds and byte counts far from
    /// the limits of their integers.
    pub(super) fn refuse(self, value: f64) -> Option<&'static str> {
        const LARGEST: f64 = 1e12;
        let whole = value.fract() == 0.0;
        match self {
            _ if !value.is_finite() => Some("is not a finite number"),
            _ if value > LARGEST => Some("is over 10^12"),
            Range::Positive if value <= 0.0 => Some("must be above zero"),
            Range::NonNegative if value < 0.0 => Some("must not be negative"),
            Range::WholePositive if !whole || value < 1.0 => Some("must be a whole number of at least one"),
            Range::Whole if !whole || value < 0.0 => Some("must be a whole number, zero or more"),
            _ => None,
        }
    }
}

/// Declares a section of the profile: a struct of quantities and the table of its fields.
macro_rules! section {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            words { $( $(#[$plain_meta:meta])* $plain:ident : $plain_ty:ty, )* }
            numbers { $( $(#[$field_meta:meta])* $field:ident : $unit:ident $range:ident, )* }
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $( $(#[$plain_meta])* pub $plain: $plain_ty, )*
            $( $(#[$field_meta])* pub $field: $crate::profile::quantity::Quantity, )*
        }

        impl $name {
            /// Every number with its name, the unit it must have and the range it must lie in.
            pub(super) fn table(&self) -> Vec<$crate::profile::quantity::Entry<'_>> {
                use $crate::profile::quantity::{Entry, Range, Unit};
                vec![$( Entry {
                    name: stringify!($field),
                    quantity: &self.$field,
                    unit: Unit::$unit,
                    range: Range::$range,
                }, )*]
            }
        }
    };
}
pub(super) use section;

/// A row of a section's table.
pub(super) struct Entry<'a> {
    pub name: &'static str,
    pub quantity: &'a Quantity,
    pub unit: Unit,
    pub range: Range,
}
