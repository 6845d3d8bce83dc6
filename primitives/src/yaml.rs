//! Reading YAML files, and what is wrong with a YAML text, for people.
//!
//! The reader knows the place where it stopped. What stands there, and in which mapping, is looked up in the text's
//! [`Outline`]: so the message names the field, and a field that is missing is told where its mapping begins.

use crate::place::{Mistake, Place};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::{DuplicateKeyPolicy, Error, RenderOptions, SnippetMode, Spanned, UserMessageFormatter};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Longest file read. Specs, plans and profiles are a few KiB; this bounds what a device or a wrong file
/// can make us swallow.
const MAX_BYTES: u64 = 1 << 20;

/// What is said of files that nobody wrote.
pub const TOO_LONG: &str = "longer than 1 MiB";
/// See [`TOO_LONG`].
pub const TOO_DEEP: &str = "nested too deep";
/// See [`TOO_LONG`].
pub const TOO_MUCH: &str = "too many nodes, aliases or repeated values";

/// Why there is no text.
#[derive(Debug)]
pub enum Unread {
    /// The file cannot be read.
    Io(io::Error),
    /// What is in it is no text, or none that anybody wrote.
    Mistake(Mistake),
}

/// The text of a file that somebody wrote: an experiment, a plan, a profile.
///
/// # Errors
/// If it cannot be read, is longer than 1 MiB or is not UTF-8.
pub fn read(path: &Path) -> Result<String, Unread> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(Unread::Io)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Unread::Mistake(Mistake::somewhere(TOO_LONG)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        Unread::Mistake(Mistake::no_text(error.as_bytes(), good))
    })
}

/// The error that a text was refused with, with its place, where it has one. The lines that draw the place are left to whoever
/// shows the text.
pub fn mistake(text: &str, error: &Error) -> Mistake {
    let mut options = RenderOptions::new(&UserMessageFormatter);
    options.snippets = SnippetMode::Off;
    let whole = error.render_with_options(options);
    let what = whole.split(" at line ").next().unwrap_or(&whole).trim_start_matches("error: ").trim();
    // The library counts what it reads, and stops where that is beyond what anybody writes.
    let what = match what.split_once("limits breached: ") {
        Some((_, limit)) if limit.starts_with("Depth") => TOO_DEEP,
        Some(_) => TOO_MUCH,
        None if what == "recursion limit exceeded" => TOO_DEEP,
        None => what,
    };
    let Some(at) = error.location() else { return Mistake::somewhere(what) };
    let place = Place::new(at.line(), at.column());
    let outline = Outline::of(text).unwrap_or_default();
    match error.without_snippet() {
        // The reader stops behind the mapping's last key.
        Error::SerdeMissingField { .. } => match outline.mapping_around(place) {
            Some(mapping) => Mistake::at(mapping.start(), format!("{}{what}", mapping.named())),
            None => Mistake::at(place, what),
        },
        Error::DuplicateMappingKey { key, .. } => {
            let told =
                key.as_ref().map_or_else(|| what.to_owned(), |key| format!("duplicate mapping key: {key}"));
            let told = Mistake::at(place, told);
            match outline.first_like(place) {
                Some(first) => told.hint(format!("line {} has it already: keep one of the two", first.line)),
                None => told,
            }
        }
        Error::InvalidScalar { ty, .. } => {
            let what = wanted(ty).unwrap_or_else(|| what.to_owned());
            Mistake::at(
                place,
                outline.value_at(place).map_or_else(String::new, |value| value.named()) + &what,
            )
        }
        // An unknown key is named by the reader.
        Error::SerdeUnknownField { .. } => Mistake::at(place, what),
        _ => match outline.value_at(place) {
            Some(value) => Mistake::at(place, format!("{}{what}", value.named())),
            None => Mistake::at(place, what),
        },
    }
}

/// What belongs where a value of a type of Rust is read, the name of which says nothing to who writes files.
fn wanted(ty: &str) -> Option<String> {
    let most = match ty {
        "u8" => u8::MAX.into(),
        "u16" => u16::MAX.into(),
        "u32" => u32::MAX,
        "u64" | "u128" => return Some("a whole number that is not negative belongs here".to_owned()),
        "floating point" => return Some("a number belongs here".to_owned()),
        "boolean" => return Some("true or false belongs here".to_owned()),
        _ => return None,
    };
    Some(format!("a whole number from 0 to {most} belongs here"))
}

/// Where a text has its values: all of them, each by its path.
#[derive(Clone, Debug, Default)]
pub struct Outline(Vec<Written>);

/// A value of a text.
#[derive(Clone, Debug)]
struct Written {
    /// Keys that lead to it, and numbers in lists.
    path: Vec<String>,
    /// Where its key stands, if it has one.
    key: Option<Place>,
    /// Where it begins.
    value: Place,
    /// Whether it is a mapping.
    mapping: bool,
}

impl Outline {
    /// Of a text; `None` if it is no YAML.
    pub fn of(text: &str) -> Option<Outline> {
        let options =
            serde_yaml::options! { duplicate_keys: DuplicateKeyPolicy::LastWins, with_snippet: false };
        let root: Spanned<Node> = serde_yaml::from_str_with_options(text, options).ok()?;
        let mut outline = Outline::default();
        outline.add(Vec::new(), None, &root);
        Some(outline)
    }

    fn add(&mut self, path: Vec<String>, key: Option<Place>, node: &Spanned<Node>) {
        let mapping = matches!(node.value, Node::Map(_));
        self.0.push(Written { path: path.clone(), key, value: place_of(node), mapping });
        let below = |part: &str| path.iter().cloned().chain([part.to_owned()]).collect::<Vec<_>>();
        match &node.value {
            Node::Leaf => {}
            Node::Map(entries) => {
                entries.iter().for_each(|(key, node)| self.add(below(&key.value), Some(place_of(key)), node));
            }
            Node::List(nodes) => {
                nodes.iter().enumerate().for_each(|(n, node)| self.add(below(&n.to_string()), None, node));
            }
        }
    }

    /// Where the value with this path stands, if the text has it.
    pub fn value(&self, path: &[&str]) -> Option<Place> {
        self.0.iter().find(|written| written.path == path).map(|written| written.value)
    }

    /// Where the value with this path begins, at its key if it has one; or the nearest around it that the text has.
    pub fn nearest(&self, path: &[String]) -> Option<Place> {
        let around = self.0.iter().filter(|written| path.starts_with(&written.path));
        around.max_by_key(|written| written.path.len()).map(Written::start)
    }

    /// The path of the innermost value or key at a place.
    pub fn path_at(&self, place: Place) -> Option<&[String]> {
        let at = |written: &&Written| written.key == Some(place) || written.value == place;
        self.0.iter().filter(at).max_by_key(|written| written.path.len()).map(|written| &written.path[..])
    }

    /// The innermost value that begins at a place.
    fn value_at(&self, place: Place) -> Option<&Written> {
        self.0.iter().filter(|written| written.value == place).max_by_key(|written| written.path.len())
    }

    /// The mapping that has a key at a place, or begins there without any.
    fn mapping_around(&self, place: Place) -> Option<&Written> {
        let of_key = self.0.iter().find(|written| written.key == Some(place)).and_then(|written| {
            let above = written.path.split_last()?.1;
            self.0.iter().rfind(|other| other.path == above && other.value <= place)
        });
        of_key.or_else(|| self.0.iter().find(|written| written.mapping && written.value == place))
    }

    /// Where the key at a place stands for the first time in its mapping.
    fn first_like(&self, place: Place) -> Option<Place> {
        let twice = self.0.iter().find(|written| written.key == Some(place))?;
        self.0.iter().find(|written| written.path == twice.path && written.key < twice.key)?.key
    }
}

impl Written {
    /// Where somebody who reads the text sees it begin: at its key.
    fn start(&self) -> Place {
        self.key.unwrap_or(self.value)
    }

    /// `nic.mtu.value: `; nothing for the whole text.
    fn named(&self) -> String {
        if self.path.is_empty() { String::new() } else { format!("{}: ", self.path.join(".")) }
    }
}

fn place_of<T>(value: &Spanned<T>) -> Place {
    Place::new(value.referenced.line(), value.referenced.column())
}

/// What a value is made of.
enum Node {
    Leaf,
    List(Vec<Spanned<Node>>),
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Node;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }
            fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_i128<E>(self, _: i128) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_u128<E>(self, _: u128) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_str<E>(self, _: &str) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
                let mut nodes = Vec::new();
                while let Some(node) = list.next_element()? {
                    nodes.push(node);
                }
                Ok(Node::List(nodes))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Node::Map(entries))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Small {
        #[expect(dead_code)]
        nodes: u32,
        #[expect(dead_code)]
        #[serde(default)]
        inner: Option<Inner>,
        #[expect(dead_code)]
        #[serde(default)]
        list: Vec<Inner>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[expect(dead_code)]
        a: u32,
        #[expect(dead_code)]
        b: u32,
    }

    fn refused(text: &str) -> Mistake {
        mistake(text, &serde_yaml::from_str::<Small>(text).unwrap_err())
    }

    #[test]
    fn what_nobody_wrote_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.yaml");
        let told = |path: &Path| match read(path) {
            Err(Unread::Mistake(mistake)) => mistake.told("a.yaml"),
            other => panic!("{other:?}"),
        };
        assert_eq!(told(Path::new("/dev/zero")), "a.yaml: longer than 1 MiB");
        std::fs::write(&path, b"nodes: 3\nset: \xff\n").unwrap();
        assert_eq!(told(&path), "a.yaml:2:6: bytes that are not text");
        assert!(matches!(read(dir.path()), Err(Unread::Io(_))));
        std::fs::write(&path, "nodes: 3\n").unwrap();
        assert!(read(&path).is_ok_and(|text| text == "nodes: 3\n"));
    }

    #[test]
    fn limits_of_the_library_are_told_in_words() {
        let told = |text: &str| mistake(text, &serde_yaml::from_str::<serde_json::Value>(text).unwrap_err());
        for levels in [70, 1000] {
            let deep = told(&("[".repeat(levels) + &"]".repeat(levels)));
            assert!(deep.what == TOO_DEEP && deep.place.is_some(), "{levels}: {deep:?}");
        }
        let nine = |of: &str| [of; 9].join(",");
        let bomb = ('b'..='i').zip('a'..).fold(format!("a: &a [{}]\n", nine("x")), |text, (name, last)| {
            format!("{text}{name}: &{name} [{}]\n", nine(&format!("*{last}")))
        });
        assert_eq!(told(&bomb).what, TOO_MUCH);
    }

    #[test]
    fn mistakes_are_told_with_their_place_and_nothing_of_the_library() {
        for (text, says) in [
            ("nodes: 1\nnodes: 2\n", "a.yaml:2:1: duplicate mapping key: nodes"),
            ("nods: 1\n", "a.yaml:1:1: unknown field `nods`, expected one of nodes"),
            ("nodes: few\n", "a.yaml:1:8: nodes: "),
            ("nodes: 1\ninner: {a: 1, b: x}\n", "a.yaml:2:18: inner.b: "),
            ("nodes: 1\nlist:\n  - {a: 1, b: 2}\n  - a: []\n", "a.yaml:4:8: list.1.a: "),
        ] {
            let told = refused(text).told("a.yaml");
            assert!(told.starts_with(says) && !told.contains("Policy") && !told.contains('\n'), "{told}");
        }
    }

    #[test]
    fn what_is_missing_is_told_where_its_mapping_begins() {
        for (text, says) in [
            ("nodes: 1\ninner:\n  # a comment\n  b: 1\n", "a.yaml:2:1: inner: missing field `a`"),
            ("nodes: 1\ninner: {a: 1}\n", "a.yaml:2:1: inner: missing field `b`"),
            ("nodes: 1\ninner: {}\n", "a.yaml:2:1: inner: missing field `a`"),
            ("nodes: 1\nlist:\n  - {a: 1, b: 2}\n  - b: 1\n", "a.yaml:4:5: list.1: missing field `a`"),
            ("# a comment\ninner: {a: 1, b: 1}\nlist: []\n", "a.yaml:2:1: missing field `nodes`"),
        ] {
            assert_eq!(refused(text).told("a.yaml"), says, "{text}");
        }
    }

    #[test]
    fn a_key_that_is_there_twice_is_told_with_the_line_that_has_it_already() {
        let twice = refused("nodes: 1\ninner:\n  a: 1\n  b: 1\n  a: 2\n");
        assert_eq!(twice.told("a.yaml"), "a.yaml:5:3: duplicate mapping key: a");
        assert_eq!(twice.hint.as_deref(), Some("line 3 has it already: keep one of the two"));
    }

    #[test]
    fn values_are_found_by_their_path() {
        let outline = Outline::of("grid:\n  plan:\n    - one\n    - {name: x, lock: {via: y}}\n").unwrap();
        let path = |path: &str| path.split('.').map(str::to_owned).collect::<Vec<_>>();
        let at = |wanted: &str| outline.nearest(&path(wanted));
        assert_eq!(at("grid.plan.1.lock.via"), Some(Place::new(4, 24)));
        assert_eq!(at("grid.plan.1.log"), Some(Place::new(4, 7)), "what is not there: around it");
        assert_eq!(outline.value(&["grid", "plan", "1", "lock", "via"]), Some(Place::new(4, 29)));
        assert_eq!(outline.value(&["grid", "plan", "2"]), None);
        assert_eq!(outline.path_at(Place::new(4, 24)).unwrap().join("."), "grid.plan.1.lock.via");
    }
}
