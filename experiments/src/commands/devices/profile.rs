//! `doorbell devices --profile NAME`: the numbers of one profile, each with what it follows.

use primitives::profile::{Profile, Unit};

use crate::error::CliError;
use crate::fabrics;
use crate::output::{JsonTarget, WIDTH, emit, folded};
use crate::spec::ProfileChoice;

/// Prints a profile, what it extends taken in.
///
/// # Errors
/// If nobody ships it, or the file is no profile.
pub(super) fn run(choice: &ProfileChoice, json: Option<&JsonTarget>) -> Result<(), CliError> {
    let profile = fabrics::profile(choice)?;
    emit(json, &profile, &people(&profile))
}

fn people(profile: &Profile) -> String {
    // Later lines of a paragraph are indented by two more.
    let line = |indent: usize, text: &str| {
        let text = folded(text, WIDTH - indent).replace('\n', &format!("\n{:indent$}", ""));
        format!("{:indent$}{text}\n", "")
    };
    let mut text = line(0, &format!("{}: {}", profile.name, profile.description));
    if let Some(doubt) = &profile.doubt {
        text.push_str(&line(0, &format!("in doubt: it is {doubt}")));
    }
    for ((section, name, quantity), meaning) in profile.quantities().zip(profile.meanings()) {
        let free = quantity.free.map_or(String::new(), |[low, high]| format!(", free from {low} to {high}"));
        let unit = match quantity.unit {
            Unit::Count => String::new(),
            unit => format!(" {}", unit.name()),
        };
        let (value, source) = (quantity.value, quantity.source.name());
        text.push_str(&format!("\n{section}.{name}: {value}{unit}, {source}{free}\n"));
        text.push_str(&line(2, meaning));
        text.push_str(&line(2, &format!("by: {}", quantity.reference)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_told_with_its_source() {
        for name in Profile::NAMES {
            let profile = Profile::shipped(name).unwrap();
            let told = people(&profile);
            for (section, name, quantity) in profile.quantities() {
                let head = format!("\n{section}.{name}: {}", quantity.value);
                assert!(told.contains(&head), "no {head}:\n{told}");
            }
            assert!(profile.meanings().all(|meaning| !meaning.is_empty()));
            assert!(told.lines().all(|line| line.chars().count() <= WIDTH), "{told}");
        }
    }
}
