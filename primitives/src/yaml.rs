//! What is wrong with a YAML text, for people.

use serde_yaml::{Error, RenderOptions, SnippetMode, UserMessageFormatter};

/// The error as `line 3 column 5: what is wrong`, or without a place where it has none. The lines that draw the place are left to
/// whoever shows the text.
pub fn told(error: &Error) -> String {
    let mut options = RenderOptions::new(&UserMessageFormatter);
    options.snippets = SnippetMode::Off;
    let whole = error.render_with_options(options);
    let what = whole.split(" at line ").next().unwrap_or(&whole).trim_start_matches("error: ").trim();
    match error.location() {
        Some(at) => format!("line {} column {}: {what}", at.line(), at.column()),
        None => what.to_owned(),
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
    }

    #[test]
    fn mistakes_are_told_with_their_place_and_nothing_of_the_library() {
        for (text, says) in [
            ("nodes: 1\nnodes: 2\n", "line 2 column 1: duplicate mapping key: nodes"),
            ("nods: 1\n", "line 1 column 1: unknown field `nods`, expected one of nodes"),
            ("nodes: few\n", "line 1 column 8: "),
        ] {
            let told = told(&serde_yaml::from_str::<Small>(text).unwrap_err());
            assert!(told.starts_with(says) && !told.contains("Policy") && !told.contains('\n'), "{told}");
        }
    }
}
