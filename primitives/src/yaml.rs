//! What is wrong with a YAML text, for people.

use crate::place::{Mistake, Place};
use serde_yaml::{Error, RenderOptions, SnippetMode, UserMessageFormatter};

/// The error with its place, where it has one. The lines that draw the place are left to whoever shows the text.
pub fn mistake(error: &Error) -> Mistake {
    let mut options = RenderOptions::new(&UserMessageFormatter);
    options.snippets = SnippetMode::Off;
    let whole = error.render_with_options(options);
    let what = whole.split(" at line ").next().unwrap_or(&whole).trim_start_matches("error: ").trim();
    let place = error.location().map(|at| Place::new(at.line(), at.column()));
    Mistake { place, what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Small {
        #[expect(dead_code)]
        nodes: u32,
    }

    #[test]
    fn mistakes_are_told_with_their_place_and_nothing_of_the_library() {
        for (text, says) in [
            ("nodes: 1\nnodes: 2\n", "a.yaml:2:1: duplicate mapping key: nodes"),
            ("nods: 1\n", "a.yaml:1:1: unknown field `nods`, expected one of nodes"),
            ("nodes: few\n", "a.yaml:1:8: "),
        ] {
            let told = mistake(&serde_yaml::from_str::<Small>(text).unwrap_err()).told("a.yaml");
            assert!(told.starts_with(says) && !told.contains("Policy") && !told.contains('\n'), "{told}");
        }
    }
}
