//! YAML, read strictly, with the place of every mistake. The one module that knows which library reads it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use primitives::place::{Mistake, Place};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_yaml::DuplicateKeyPolicy;

pub use serde_yaml::Spanned;

use crate::error::CliError;
use crate::names::meant;

/// Longest file read. Specs, plans and profiles are a few KiB; this bounds what a device or a wrong file
/// can make us swallow.
const MAX_BYTES: u64 = 1 << 20;

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
        let cannot = |error: std::io::Error| CliError::usage(format!("cannot read {name}")).caused_by(&error);
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text))
            .map_err(cannot)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(CliError::usage(format!("{name} is longer than 1 MiB: hardly what was meant")));
        }
        Ok(Document { name, text })
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
            .map_err(|error| self.mistaken(&primitives::yaml::mistake(&error)))
    }

    /// An error of this document, its place drawn if it has one, with the name that was meant.
    fn mistaken(&self, mistake: &Mistake) -> CliError {
        let mut shown = CliError::usage(mistake.told(&self.name));
        if let Some(Place { line, column }) = mistake.place.filter(|_| !self.text.is_empty()) {
            shown = shown.at(&self.name, &self.text, line, column.unwrap_or(1));
        }
        match question(&mistake.what) {
            Some(question) => shown.hint(question),
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

    /// An error at a value of this document.
    pub fn error<T>(&self, at: &Spanned<T>, message: impl AsRef<str>) -> CliError {
        self.error_at(at.referenced.line(), at.referenced.column(), message)
    }
}

/// What a library that reads YAML by itself found wrong with the text of `origin`, as [`Document::parse`] would tell it: with the
/// place drawn where `origin` is a file.
pub fn placed(origin: &str, mistake: &Mistake) -> CliError {
    let text = Document::read(Path::new(origin)).map(|document| document.text).unwrap_or_default();
    Document { name: origin.to_owned(), text }.mistaken(mistake)
}

/// Reads and parses a file.
///
/// # Errors
/// With file, line and column.
pub fn from_path<T: DeserializeOwned>(path: &Path) -> Result<T, CliError> {
    Document::read(path)?.parse()
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

/// Whether another name was meant, where the message says what was found and what was expected: ``unknown field
/// `nods`, expected one of nodes, seed``.
fn question(message: &str) -> Option<String> {
    let (found, expected) = message.split_once("expected ")?;
    let found = found.split('`').nth(1)?;
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
        assert!(Document::read(Path::new("/dev/zero")).unwrap_err().message().contains("1 MiB"));
        assert!(Document::read(Path::new("/")).unwrap_err().message().contains("cannot read /"));
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                    d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n\
                    g: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n";
        assert!(from_str::<BTreeMap<String, serde_json::Value>>("bomb.yaml", bomb).is_err());
        let deep = "[".repeat(100_000);
        assert!(from_str::<serde_json::Value>("deep.yaml", &deep).is_err());
    }

    #[test]
    fn reads_what_it_writes() {
        let map = BTreeMap::from([("on".to_owned(), "no".to_owned()), ("x".to_owned(), "1e3".to_owned())]);
        let text = to_string(&map).unwrap();
        assert_eq!(from_str::<BTreeMap<String, String>>("x", &text).unwrap(), map);
    }
}
