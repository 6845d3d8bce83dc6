//! Where a text is wrong, told in one way everywhere: `FILE:LINE:COLUMN: what`, as compilers do and editors follow.

use std::fmt::Display;

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// From 1.
    pub line: u64,
    /// From 1, where it is known.
    pub column: Option<u64>,
}

impl Place {
    /// A line and a column. Readers that stop before a line's first character say column 0, which is its first.
    pub fn new(line: u64, column: u64) -> Place {
        Place { line: line.max(1), column: Some(column.max(1)) }
    }

    /// The place behind a text.
    pub fn behind(text: &str) -> Place {
        let column = text.rsplit('\n').next().unwrap_or_default().chars().count() as u64 + 1;
        Place::new(text.matches('\n').count() as u64 + 1, column)
    }

    /// A line as a whole.
    pub fn line(line: u64) -> Place {
        Place { line: line.max(1), column: None }
    }
}

/// What is wrong with bytes that are not UTF-8.
pub const NO_TEXT: &str = "bytes that are not text";

/// What is wrong with a text, and where if that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where.
    pub place: Option<Place>,
    /// What, without the place.
    pub what: String,
    /// What to do about it, where that is known.
    pub hint: Option<String>,
}

impl Mistake {
    /// A mistake at a place.
    pub fn at(place: Place, what: impl Into<String>) -> Mistake {
        Mistake { place: Some(place), what: what.into(), hint: None }
    }

    /// A mistake of the text as a whole.
    pub fn somewhere(what: impl Into<String>) -> Mistake {
        Mistake { place: None, what: what.into(), hint: None }
    }

    /// With advice.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Mistake {
        Mistake { hint: Some(hint.into()), ..self }
    }

    /// Bytes of which only the first `good` are text.
    pub fn no_text(bytes: &[u8], good: usize) -> Mistake {
        Mistake::at(Place::behind(&String::from_utf8_lossy(&bytes[..good])), NO_TEXT)
    }

    /// What serde_json found wrong.
    pub fn of_json(error: &serde_json::Error) -> Mistake {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let what = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
        match line {
            0 => Mistake::somewhere(what),
            _ => Mistake::at(Place::new(line as u64, column as u64), what),
        }
    }

    /// For people: `origin` is the file, or the name of a text that is none.
    pub fn told(&self, origin: impl Display) -> String {
        let what = &self.what;
        match self.place {
            None => format!("{origin}: {what}"),
            Some(Place { line, column: None }) => format!("{origin}:{line}: {what}"),
            Some(Place { line, column: Some(column) }) => format!("{origin}:{line}:{column}: {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_as_far_as_it_is_known() {
        for (mistake, told) in [
            (Mistake::at(Place::new(2, 7), "bent"), "a.yaml:2:7: bent"),
            (Mistake::at(Place::new(2, 0), "bent"), "a.yaml:2:1: bent"),
            (Mistake::at(Place::line(3), "bent"), "a.yaml:3: bent"),
            (Mistake::somewhere("bent"), "a.yaml: bent"),
        ] {
            assert_eq!(mistake.told("a.yaml"), told);
        }
    }

    #[test]
    fn json_says_where_once() {
        let told =
            |text| Mistake::of_json(&serde_json::from_str::<Vec<u8>>(text).unwrap_err()).told("a.json");
        assert_eq!(told("[1,\n x]"), "a.json:2:2: expected value");
        assert!(told("").starts_with("a.json:1:1: EOF"), "{}", told(""));
        assert_eq!(told("[1] 2"), "a.json:1:5: trailing characters");
    }
}
