//! What an older page left beside the new one. A page says by its links which figures were drawn with it; those that the new page does
//! not have are removed. Nothing else in the folder is touched, nor what another page there links to.

use std::collections::BTreeSet;
use std::path::Path;

/// What every page of ours has in its head.
pub const MARK: &str = "<meta name=\"generator\" content=\"doorbell\">";

/// How a page begins the link to a figure's data. Text from files is escaped, so it cannot say this.
const LINK: &str = "<a href=\"figures/";

/// Extensions of a figure's files.
const EXTENSIONS: [&str; 3] = ["svg", "png", "csv"];

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

/// Removes the files of those `older` figures that are on no page in `beside`.
///
/// # Errors
/// With the file that cannot be removed.
pub fn remove(older: BTreeSet<String>, beside: &Path) -> Result<(), (std::path::PathBuf, std::io::Error)> {
    if older.is_empty() {
        return Ok(());
    }
    let here = std::fs::read_dir(beside).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let shown: BTreeSet<String> = here
        .filter(|path| path.extension().is_some_and(|is| is == "html") && path.is_file())
        .flat_map(|page| figures(&page))
        .collect();
    for id in older.difference(&shown) {
        for extension in EXTENSIONS {
            let file = beside.join("figures").join(format!("{id}.{extension}"));
            match std::fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err((file, error)),
                _ => {}
            }
        }
    }
    Ok(())
}
