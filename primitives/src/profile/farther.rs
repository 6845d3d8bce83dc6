//! A NIC at the end of a longer cable: what does an application lose by latency alone?

use super::{Profile, ProfileError, Quantity, Source};
use crate::units::Nanos;

impl Profile {
    /// The shipped profile of a name, with cables that take so much longer each way, so that a round trip takes twice as much more. It is
    /// called `NAME+NNNns`, whatever unit it was asked for in; its cable is assumed, and all else is as it was.
    ///
    /// # Errors
    /// If there is no such profile.
    pub fn farther(name: &str, by: Nanos) -> Result<Profile, ProfileError> {
        let mut profile = Profile::shipped(name)?;
        let cable = &mut profile.nic.cable_latency;
        let why = format!("{} ns farther than {name}, as asked for", by.0);
        *cable = Quantity::fixed(cable.value + by.0 as f64, cable.unit, Source::Assumed, &why);
        profile.name = format!("{name}+{}ns", by.0);
        profile.description = format!("{} ns farther each way than {name}: {}", by.0, profile.description);
        Ok(profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Primitive;

    #[test]
    fn a_round_trip_takes_twice_as_much_longer_and_nothing_else_moves() {
        let near = Profile::shipped("aries").unwrap();
        let far = Profile::farther("aries", Nanos(500)).unwrap();
        let read = |p: &Profile| p.nic.unloaded_latency_ns(Primitive::Read, 64, false);
        assert!((read(&far) - read(&near) - 1_000.0).abs() < 1e-6, "{} {}", read(&near), read(&far));
        let moved = near.quantities().zip(far.quantities()).filter(|(a, b)| a.2 != b.2);
        assert_eq!(moved.map(|(a, _)| a.1).collect::<Vec<_>>(), ["cable_latency"]);
        let text = far.to_yaml().unwrap();
        assert_eq!(
            Profile::parse(&text, "far").unwrap().hash_text(),
            far.hash_text(),
            "a file of it reads back"
        );
        assert!(Profile::farther("ariel", Nanos(1)).is_err());
    }
}
