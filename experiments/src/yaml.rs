//! YAML, read strictly, with the place of every mistake. The one module that knows which library reads it.

use std::path::Path;

use primitives::place::NO_TEXT;
use primitives::place::{Mistake, Place};
use primitives::yaml::{Outline, TOO_DEEP, TOO_LONG, TOO_MUCH, Unread};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_yaml::DuplicateKeyPolicy;

pub use serde_yaml::Spanned;

use crate::error::CliError;
use crate::names::meant;
use crate::spec::Refused;

/// The text of a YAML file and its name, to point into it later.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The path as given.
    pub name: String,
    /// The text.
    pub text: String,
}

impl Document {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, is not UTF-8, or is longer than 1 MiB.
    pub fn read(path: &Path) -> Result<Document, CliError> {
        let name = path.display().to_string();
        match primitives::yaml::read(path) {
            Ok(text) => Ok(Document { name, text }),
            Err(Unread::Io(error)) => Err(CliError::usage(format!("cannot read {name}")).caused_by(&error)),
            Err(Unread::Mistake(mistake)) => Err(Document { name, text: String::new() }.mistaken(&mistake)),
        }
    }

    /// Parses it. Unknown keys are errors where `T` denies them, duplicate keys always.
    ///
    /// # Errors
    /// With file, line and column.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, CliError> {
        let says_something = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        if !self.text.lines().any(says_something) {
            return Err(CliError::usage(format!("{} is empty", self.name)));
        }
        let options = serde_yaml::options! {
            duplicate_keys: DuplicateKeyPolicy::Error,
            strict_booleans: true,
            with_snippet: false,
        };
        serde_yaml::from_str_with_options(&self.text, options)
            .map_err(|error| self.mistaken(&primitives::yaml::mistake(&self.text, &error)))
    }

    /// Refuses a key without a value, and a value of a list that is none: who wrote it meant one, and what is usual holds where
    /// the key is left out.
    ///
    /// # Errors
    /// With the key, and its place.
    pub fn has_all_values(&self) -> Result<(), CliError> {
        let Some(path) = without_value(&self.parse::<Value>()?) else { return Ok(()) };
        let keys: Vec<&str> =
            path.iter().map(String::as_str).filter(|key| key.parse::<usize>().is_err()).collect();
        let what = match path.last().is_some_and(|last| last.parse::<usize>().is_ok()) {
            true => "one of its values is missing",
            false => "it has no value",
        };
        let place = Outline::of(&self.text).and_then(|outline| outline.nearest(&path));
        let mistake = Mistake { place, ..Mistake::somewhere(format!("{}: {what}", keys.join("."))) };
        Err(self.mistaken(&mistake.hint("write one, or leave it out for what is usual")))
    }

    /// An error of this document, its place drawn if it has one, with the name that was meant.
    fn mistaken(&self, mistake: &Mistake) -> CliError {
        let mut shown = CliError::usage(mistake.told(&self.name));
        if let Some(Place { line, column }) = mistake.place.filter(|_| !self.text.is_empty()) {
            shown = shown.at(&self.name, &self.text, line, column.unwrap_or(1));
        }
        let known = || question(&mistake.what).or_else(|| advice(&mistake.what).map(str::to_owned));
        match mistake.hint.clone().or_else(known) {
            Some(hint) => shown.hint(hint),
            None => shown,
        }
    }

    /// An error at a place of this document.
    pub fn error_at(&self, line: u64, column: u64, message: impl AsRef<str>) -> CliError {
        self.mistaken(&Mistake::at(Place::new(line, column), message.as_ref()))
    }

    /// An error that a value of this document causes; what has a place of its own keeps it.
    pub fn blame(&self, line: u64, column: u64, who: &str, error: CliError) -> CliError {
        let told = |what: &str| Mistake::at(Place::new(line, column), what).told(&self.name);
        if error.has_place() {
            return error.context(told(&format!("{who} cannot run")));
        }
        let message = told(&format!("{who}: {}", error.message()));
        error.reworded(message).at(&self.name, &self.text, line, column)
    }

    /// An error within a value of this document, whose path is `to` it and then `refused`'s: where the text has that, else where
    /// the value begins.
    pub fn refuse<T>(&self, at: &Spanned<T>, to: &[&str], who: &str, refused: &Refused) -> CliError {
        let path: Vec<String> =
            to.iter().map(|&key| key.to_owned()).chain(refused.path.iter().cloned()).collect();
        let outline = Outline::of(&self.text).filter(|_| !refused.path.is_empty());
        let place = outline.and_then(|outline| outline.nearest(&path));
        let place = place.unwrap_or(Place::new(at.referenced.line(), at.referenced.column()));
        self.mistaken(&Mistake::at(place, format!("{who}: {refused}")))
    }

    /// An error at a value of this document.
    pub fn error<T>(&self, at: &Spanned<T>, message: impl AsRef<str>) -> CliError {
        self.error_at(at.referenced.line(), at.referenced.column(), message)
    }
}

/// Keys and numbers that lead to the first value which is none.
fn without_value(value: &Value) -> Option<Vec<String>> {
    let below = |(key, value): (String, &Value)| without_value(value).map(|path| [vec![key], path].concat());
    match value {
        Value::Null => Some(Vec::new()),
        Value::Object(keys) => keys.iter().map(|(key, value)| (key.clone(), value)).find_map(below),
        Value::Array(items) => {
            items.iter().enumerate().map(|(at, value)| (at.to_string(), value)).find_map(below)
        }
        _ => None,
    }
}

/// What a library that reads YAML by itself found wrong with the text of `origin`, as [`Document::parse`] would tell it: with the
/// place drawn where `origin` is a file.
pub fn placed(origin: &str, mistake: &Mistake) -> CliError {
    let text = Document::read(Path::new(origin)).map(|document| document.text).unwrap_or_default();
    Document { name: origin.to_owned(), text }.mistaken(mistake)
}

/// Parses text; `name` stands for the file in messages.
///
/// # Errors
/// With name, line and column.
pub fn from_str<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, CliError> {
    Document { name: name.to_owned(), text: text.to_owned() }.parse()
}

/// Writes a value as YAML.
///
/// # Errors
/// If the value has a form YAML cannot hold.
pub fn to_string<T: Serialize>(value: &T) -> Result<String, CliError> {
    serde_yaml::to_string(value).map_err(|e| CliError::check("cannot write YAML").caused_by(&e))
}

/// What to do about a text that has not the form it should have.
fn advice(message: &str) -> Option<&'static str> {
    match message {
        _ if message.contains("expected sequence start") => Some("write a list: [4]"),
        _ if message.contains("expected mapping start")
            && ["nic.", "cpu."].iter().any(|part| message.contains(part)) =>
        {
            Some("a number of a profile is {value: 300, unit: ns, source: assumed, ref: why}")
        }
        _ if message.contains("expected mapping start") => Some("write keys and values: {key: value}"),
        _ if message.contains("expected string scalar") => Some("write one value, and no list"),
        NO_TEXT => Some("write it as UTF-8"),
        TOO_LONG | TOO_DEEP | TOO_MUCH => {
            Some("name the file that was meant: what people write has a few levels and a few KiB")
        }
        _ => None,
    }
}

/// Whether another name was meant, where the message says what was found and what was expected: ``unknown field
/// `nods`, expected one of nodes, seed``.
fn question(message: &str) -> Option<String> {
    let (found, expected) = message.split_once("expected ")?;
    let found = found.split('`').nth(1)?;
    // Eight times apart, and one capital letter.
    let bits = ["b/s", "bps", "bit/s"].iter().any(|unit| found.to_lowercase().ends_with(unit))
        && !found.contains('B');
    if bits && expected.contains("GB/s") {
        return Some("rates are in bytes: a link of 100 Gb/s has 12.5 GB/s".to_owned());
    }
    if ["us", "µs", "ms", "s"].contains(&found) && expected.contains("ns/B") {
        return Some("times are in ns: 0.4 us are 400 ns".to_owned());
    }
    let names = expected.trim_start_matches("one of ").split(',').map(|name| name.trim().trim_matches('`'));
    meant(found, names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(serde::Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct Small {
        #[allow(dead_code)]
        nodes: u32,
    }

    fn message(text: &str) -> String {
        from_str::<Small>("a.yaml", text).unwrap_err().message().to_owned()
    }

    #[test]
    fn every_mistake_has_its_place() {
        for (text, place, says) in [
            ("nodes: 3\nnods: 4\n", "a.yaml:2:1", "nods"),
            ("nodes: 3\nnodes: 4\n", "a.yaml:2:1", "nodes"),
            ("nodes: many\n", "a.yaml:1:8", ""),
            ("nodes: -1\n", "a.yaml:1:8", ""),
            ("nodes: 99999999999999999999\n", "a.yaml:1:8", ""),
            ("nodes: [3\n", "a.yaml:", ""),
            ("nodes:\n\t- 3\n", "a.yaml:", ""),
            ("other: 3\n", "a.yaml:", ""),
            ("", "a.yaml", ""),
        ] {
            let got = message(text);
            assert!(got.starts_with(place) && got.contains(says), "{text:?}: {got}");
            assert_eq!(got.matches(" line ").count(), 0, "{got}");
        }
    }

    #[test]
    fn a_key_mistyped_finds_its_name() {
        let shown = from_str::<Small>("a.yaml", "nods: 3\n").unwrap_err().render(false);
        assert!(shown.contains("hint: did you mean `nodes`?"), "{shown}");
    }

    #[test]
    fn absurd_files_are_refused() {
        let hint = "hint: name the file that was meant";
        let endless = Document::read(Path::new("/dev/zero")).unwrap_err().render(false);
        assert!(endless.contains("/dev/zero: longer than 1 MiB") && endless.contains(hint), "{endless}");
        assert!(Document::read(Path::new("/")).unwrap_err().message().contains("cannot read /"));
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                    d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n\
                    g: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n";
        assert!(from_str::<BTreeMap<String, serde_json::Value>>("bomb.yaml", bomb).is_err());
        let deep = "[".repeat(100_000);
        let deep = from_str::<serde_json::Value>("deep.yaml", &deep).unwrap_err().render(false);
        assert!(deep.contains("deep.yaml:1:") && deep.contains(hint) && !deep.contains("Depth"), "{deep}");
        let dir = tempfile::tempdir().unwrap();
        let latin = dir.path().join("latin.yaml");
        std::fs::write(&latin, b"nodes: 3\n# caf\xe9\n").unwrap();
        let latin = Document::read(&latin).unwrap_err().render(false);
        assert!(
            latin.contains("latin.yaml:2:6: bytes that are not text") && latin.contains("UTF-8"),
            "{latin}"
        );
    }

    #[test]
    fn reads_what_it_writes() {
        let map = BTreeMap::from([("on".to_owned(), "no".to_owned()), ("x".to_owned(), "1e3".to_owned())]);
        let text = to_string(&map).unwrap();
        assert_eq!(from_str::<BTreeMap<String, String>>("x", &text).unwrap(), map);
    }
}
