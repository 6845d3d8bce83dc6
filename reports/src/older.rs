//! What an older page left beside the new one. A page says by its links which figures were drawn with it; those that the new page does
//! not have are named, so that nobody takes them for its own.

use std::collections::BTreeSet;
use std::path::Path;

/// What every page of ours has in its head.
pub const MARK: &str = "<meta name=\"generator\" content=\"doorbell\">";

/// How a page begins the link to a figure's data. Text from files is escaped, so it cannot say this.
const LINK: &str = "<a href=\"figures/";

/// The figures that a page of ours links to; none of any other file.
pub fn figures(page: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(page).unwrap_or_default();
    if !text.contains(MARK) {
        return BTreeSet::new();
    }
    let id = |link: &str| link.split_once(".csv\"").map(|(id, _)| id.to_owned());
    // As we name them: nothing that leads out of the folder.
    let ours = |id: &String| !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    text.split(LINK).skip(1).filter_map(id).filter(ours).collect()
}

/// What to say of figures of an `older` page that the new one, of `figures`, does not have. They stay: somebody may use them.
pub fn left(older: BTreeSet<String>, figures: &[String], folder: &Path) -> Option<String> {
    let there = |id: &&String| folder.join(format!("{id}.csv")).exists();
    let left: Vec<&str> =
        older.iter().filter(|id| !figures.contains(id)).filter(there).map(String::as_str).collect();
    (!left.is_empty()).then(|| {
        format!(
            "{} still has figures of the page that was there before, which this one does not have: {}",
            folder.display(),
            left.join(", ")
        )
    })
}
