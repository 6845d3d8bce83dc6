//! One error for every command: what happened, why, what to do, and the exit code.

use std::error::Error;
use std::fmt::Write as _;
use std::io;

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};
use primitives::measure::ResultError;

/// How the process ends. The numbers are part of the command line's contract. Where several processes hear of one cause, all of
/// them end with its number, and not with that of where they heard of it ([`primitives::mesh::Blame`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 1: it ran, and a check failed.
    Check,
    /// 2: flags, spec or files are not usable.
    Usage,
    /// 3: the machine lacks something: a device, space, a permission of the kernel, or a part of this build.
    Machine,
    /// 130: ended by Ctrl-C, as shells expect, or by SIGTERM or SIGHUP; what was measured is kept.
    Interrupted,
}

impl Exit {
    /// The process exit code.
    pub const fn code(self) -> u8 {
        match self {
            Exit::Check => 1,
            Exit::Usage => 2,
            Exit::Machine => 3,
            Exit::Interrupted => 130,
        }
    }
}

/// A place in a source file.
#[derive(Debug)]
struct Snippet {
    name: String,
    text: String,
    /// Byte offset.
    offset: usize,
}

/// Why a command did not do what was asked.
#[derive(Debug)]
pub struct CliError {
    exit: Exit,
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
    snippet: Option<Box<Snippet>>,
    for_all: bool,
}

impl CliError {
    /// An error that ends the process with `exit`.
    pub fn new(exit: Exit, message: impl Into<String>) -> CliError {
        let message = message.into();
        CliError { exit, message, causes: Vec::new(), hint: None, snippet: None, for_all: false }
    }

    /// Bad flags, spec or files: exit code 2.
    pub fn usage(message: impl Into<String>) -> CliError {
        CliError::new(Exit::Usage, message)
    }

    /// The machine lacks something: exit code 3.
    pub fn machine(message: impl Into<String>) -> CliError {
        CliError::new(Exit::Machine, message)
    }

    /// It ran, and a check failed: exit code 1.
    pub fn check(message: impl Into<String>) -> CliError {
        CliError::new(Exit::Check, message)
    }

    /// A point that Ctrl-C ended before it was measured.
    pub fn interrupted() -> CliError {
        CliError::new(Exit::Interrupted, "interrupted")
    }

    /// With advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> CliError {
        self.hint = Some(hint.into());
        self
    }

    /// With one more piece of advice.
    #[must_use]
    pub fn also(self, hint: impl std::fmt::Display) -> CliError {
        let hint = self.hint.as_ref().map_or_else(|| hint.to_string(), |first| format!("{first}; {hint}"));
        self.hint(hint)
    }

    /// As what ends all points of a sweep, and not the one alone that it came from.
    #[must_use]
    pub fn for_all(self) -> CliError {
        CliError { for_all: true, ..self }
    }

    /// Whether no other point of a sweep can be measured either.
    pub fn is_for_all(&self) -> bool {
        self.for_all
    }

    /// With the error underneath, and those under it.
    #[must_use]
    pub fn caused_by(mut self, cause: &dyn Error) -> CliError {
        let mut next = Some(cause);
        while let Some(cause) = next {
            let told = cause.to_string();
            // Some errors end with their cause's words: nobody reads them twice.
            let before = self.causes.last().unwrap_or(&self.message);
            if !before.ends_with(&told) {
                self.causes.push(told);
            }
            next = cause.source();
        }
        self
    }

    /// With a new first line; the old one becomes its cause.
    #[must_use]
    pub fn context(mut self, message: impl Into<String>) -> CliError {
        let old = std::mem::replace(&mut self.message, message.into());
        self.causes.insert(0, old);
        self
    }

    /// With other words for its first line.
    #[must_use]
    pub fn reworded(mut self, message: impl Into<String>) -> CliError {
        self.message = message.into();
        self
    }

    /// With a place in a file: `line` and `column` count from 1, in characters.
    #[must_use]
    pub fn at(mut self, name: impl Into<String>, text: &str, line: u64, column: u64) -> CliError {
        let text = text.to_owned();
        let offset = offset_of(&text, line, column);
        self.snippet = Some(Box::new(Snippet { name: name.into(), text, offset }));
        self
    }

    /// How the process ends.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Whether it has a place in a file.
    pub fn has_place(&self) -> bool {
        self.snippet.is_some()
    }

    /// Whether there is advice.
    pub fn has_hint(&self) -> bool {
        self.hint.is_some()
    }

    /// The first line.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What is shown on stderr; empty if there is nothing to say.
    pub fn render(&self, color: bool) -> String {
        if self.message.is_empty() {
            return String::new();
        }
        let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
        let mut text = match (self.exit, color) {
            (Exit::Interrupted, _) => String::new(),
            (_, true) => "\u{1b}[1;31merror:\u{1b}[0m ".to_owned(),
            (_, false) => "error: ".to_owned(),
        };
        let _ = writeln!(text, "{}", short(&self.message));
        // The message has the place anyway; lines that no terminal can show help nobody.
        if let Some(snippet) =
            self.snippet.as_ref().filter(|s| s.text.lines().all(|line| line.len() <= LONGEST))
        {
            let shown = Shown(NamedSource::new(&snippet.name, snippet.text.clone()), snippet.offset);
            let mut drawn = String::new();
            let handler = GraphicalReportHandler::new_themed(theme).with_context_lines(1);
            if handler.render_report(&mut drawn, &shown).is_ok() {
                // The first lines repeat the message, which is empty here.
                let body: Vec<&str> = drawn.lines().skip_while(|line| !line.contains('╭')).collect();
                let _ = writeln!(text, "{}", body.join("\n").trim_end());
            }
        }
        for cause in &self.causes {
            let _ = writeln!(text, "  because: {}", short(cause));
        }
        if let Some(hint) = &self.hint {
            let _ = writeln!(text, "  hint: {}", short(hint));
        }
        text
    }
}

impl std::fmt::Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for CliError {}

/// What is wrong with results, in the words of flags and experiment files.
fn told(error: &ResultError) -> String {
    match error {
        ResultError::OtherRun { path, differs } => {
            let differs = crate::differs::told(differs);
            format!("{} holds the results of another run: {differs}", path.display())
        }
        ResultError::OtherBuild { why, theirs, ours } => {
            format!("{}; build {theirs} wrote it, and this is build {ours}", told(why))
        }
        error => error.to_string(),
    }
}

impl From<ResultError> for CliError {
    fn from(error: ResultError) -> CliError {
        let exit = match &error {
            _ if error.is_full() => Exit::Machine,
            ResultError::NoColumn { .. } | ResultError::NotMissing { .. } => Exit::Check,
            _ => Exit::Usage,
        };
        let mut shown = CliError::new(exit, told(&error)).hint(error.hint());
        if let Some(cause) = error.source() {
            shown = shown.caused_by(cause);
        }
        shown
    }
}

/// Writing to stdout failed.
impl From<io::Error> for CliError {
    fn from(error: io::Error) -> CliError {
        match error.kind() {
            io::ErrorKind::StorageFull => CliError::machine("cannot write to stdout")
                .caused_by(&error)
                .hint("make room, or write elsewhere"),
            _ => CliError::usage("cannot write to stdout").caused_by(&error),
        }
    }
}

/// Most characters of a message, and of a file's line: what a file says may be in it, and can be as long as the file.
const LONGEST: usize = 2000;

/// A message without its middle, if it is too long to be read.
fn short(text: &str) -> std::borrow::Cow<'_, str> {
    if text.len() <= LONGEST {
        return text.into();
    }
    let from = |least: usize| text.char_indices().map(|(at, _)| at).find(|&at| at >= least).unwrap_or(0);
    let (head, tail) = (from(300), from(text.len() - 300));
    format!("{} … {}", &text[..head], &text[tail..]).into()
}

/// Byte offset of a line and column, held within the text.
fn offset_of(text: &str, line: u64, column: u64) -> usize {
    let skip = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    let start: usize = text.split_inclusive('\n').take(skip).map(str::len).sum();
    let rest = text.get(start..).unwrap_or_default().lines().next().unwrap_or_default();
    let column = usize::try_from(column.saturating_sub(1)).unwrap_or(usize::MAX);
    start + rest.char_indices().nth(column).map_or(rest.len(), |(offset, _)| offset)
}

/// A snippet as miette wants it.
#[derive(Debug)]
struct Shown(NamedSource<String>, usize);

impl std::fmt::Display for Shown {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}

impl Error for Shown {}

impl Diagnostic for Shown {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.0)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let text = self.0.inner();
        let word = text[self.1..].find(|c: char| c.is_whitespace() || ",:]}".contains(c)).unwrap_or(0);
        Some(Box::new(std::iter::once(LabeledSpan::new(Some("here".to_owned()), self.1, word))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_place_cause_and_hint_without_color() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let text = CliError::usage("unknown key `nods`")
            .at("a.yaml", "question: why\nnods: 3\n", 2, 1)
            .caused_by(&full)
            .hint("did you mean `nodes`?")
            .render(false);
        assert!(text.starts_with("error: unknown key `nods`\n"), "{text}");
        for part in ["a.yaml:2:1", "nods: 3", "  because: no storage space", "  hint: did you mean `nodes`?"]
        {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn what_the_message_ends_with_is_no_cause_of_its_own() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let text = CliError::usage(format!("cannot read a.yaml: {full}")).caused_by(&full).render(false);
        assert_eq!(text.matches("no storage space").count(), 1, "{text}");
    }

    #[test]
    fn what_no_terminal_can_show_is_left_out() {
        let long = "é".repeat(100_000);
        let text = CliError::usage(format!("unknown key `{long}` of many"))
            .at("a.yaml", &format!("question: why\n{long}: 3\n"), 2, 1)
            .render(false);
        assert!(text.len() < 1000 && text.contains('…') && text.ends_with(" of many\n"), "{text}");
    }

    #[test]
    fn places_outside_the_text_do_not_panic() {
        for (line, column) in [(0, 0), (1, 1), (1, 99), (99, 1), (u64::MAX, u64::MAX)] {
            for text in ["", "é", "a: ü\nb", "\n\n"] {
                let shown = CliError::usage("x").at("f", text, line, column).render(false);
                assert!(shown.starts_with("error: x"), "{shown}");
            }
        }
    }

    #[test]
    fn a_full_disk_is_the_machines_matter() {
        assert_eq!(CliError::from(io::Error::from(io::ErrorKind::StorageFull)).exit(), Exit::Machine);
    }
}
