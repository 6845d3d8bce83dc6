//! Pages that tests draw, and what must hold for every one.

#![allow(dead_code, reason = "each test uses a part")]

use reports::{Options, Report, render};
use std::path::PathBuf;

/// A page and the directory that it was drawn into.
pub struct Rendered {
    pub dir: tempfile::TempDir,
    pub report: Report,
    pub html: String,
}

pub fn draw(dirs: &[PathBuf], dir: tempfile::TempDir) -> Rendered {
    let out = dir.path().join("out");
    let options = Options { skip_png: true, ..Options::default() };
    let report = render(dirs, &out, &options).expect("a page");
    let html = std::fs::read_to_string(&report.page).expect("the page");
    Rendered { dir, report, html }
}

pub fn fresh() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// The part of the page from a figure's opening to its closing tag.
pub fn figure<'a>(html: &'a str, id: &str) -> &'a str {
    let start = html.find(&format!("<figure id=\"{id}\">")).unwrap_or_else(|| panic!("no figure {id}"));
    let end = html[start..].find("</figure>").expect("it closes");
    &html[start..start + end]
}

/// What must hold for every page whatever it was made from.
pub fn assert_sound(rendered: &Rendered) {
    let html = &rendered.html;
    for word in ["NaN", ">inf", " inf ", "infinity"] {
        assert!(!html.contains(word), "the page says {word:?}");
    }
    for word in ["<script", "src=", "@import", "url(", "<link", "onerror=\"", "javascript:"] {
        assert!(!html.contains(word), "the page holds {word:?}");
    }
    for id in &rendered.report.figures {
        let part = figure(html, id);
        assert!(part.contains("<svg "), "{id} has no drawing");
        assert!(
            part.contains("<figcaption>") && !part.contains("<figcaption></figcaption>"),
            "{id} has no caption"
        );
        let provenance = part.split("class=\"provenance\"").nth(1).expect("a provenance block");
        assert!(
            ["measured", "simulated", "forecast"].iter().any(|of| provenance.contains(&format!("chip {of}"))),
            "{id} is not attributed"
        );
        assert!(html.contains(&format!("href=\"#{id}\"")), "{id} is not in the contents");
        for extension in ["svg", "csv"] {
            let file = rendered.dir.path().join("out/figures").join(format!("{id}.{extension}"));
            assert!(std::fs::metadata(&file).is_ok_and(|m| m.len() > 0), "{} is missing", file.display());
        }
    }
}
