//! Parts of an experiment file whose order matters, and whose mistakes are told by the name of what they are part of.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::yaml::Spanned;

/// A map in the order written.
pub(super) struct Entries<V>(pub(super) Vec<(Spanned<String>, V)>);

impl<V> Default for Entries<V> {
    fn default() -> Entries<V> {
        Entries(Vec::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Entries<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for InOrder<V> {
            type Value = Entries<V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<V>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(InOrder(PhantomData))
    }
}

/// The values of an axis.
pub(super) enum AxisValues {
    /// As they should be: a list.
    List(Vec<Spanned<Value>>),
    /// One without brackets, which is refused where the axis' name is known.
    One(Value),
}

impl AxisValues {
    /// Those of a list.
    pub(super) fn all(&self) -> &[Spanned<Value>] {
        match self {
            AxisValues::List(values) => values,
            AxisValues::One(_) => &[],
        }
    }
}

impl<'de> Deserialize<'de> for AxisValues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListOrOne;
        impl<'de> Visitor<'de> for ListOrOne {
            type Value = AxisValues;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<AxisValues, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(AxisValues::List)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AxisValues, A::Error> {
                Value::deserialize(MapAccessDeserializer::new(map)).map(AxisValues::One)
            }
            fn visit_unit<E: Error>(self) -> Result<AxisValues, E> {
                Ok(AxisValues::List(Vec::new()))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<AxisValues, E> {
                Ok(AxisValues::One(text.into()))
            }
            fn visit_bool<E: Error>(self, flag: bool) -> Result<AxisValues, E> {
                Ok(AxisValues::One(flag.into()))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<AxisValues, E> {
                Ok(AxisValues::One(number.into()))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<AxisValues, E> {
                Ok(AxisValues::One(number.into()))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<AxisValues, E> {
                Ok(AxisValues::One(number.into()))
            }
        }
        deserializer.deserialize_any(ListOrOne)
    }
}
