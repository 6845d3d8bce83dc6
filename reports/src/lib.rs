//! Results to pages: directories of result files become polars frames, frames become plotters figures, and figures
//! become one self-contained HTML page with SVG, PNG and CSV files beside it.
//!
//! Invariants. Measured and simulated numbers never share an axis, and every figure names its origin. Captions
//! are computed from the frame that was drawn. Whatever is missing or damaged is said on the page; it never
//! panics and never becomes a zero.
//!
//! Read in this order: [`load`] (what a directory holds), [`figures`] (what is asked of it), [`chart`] (how a figure
//! is drawn), [`page`] (how it is told).

pub mod chart;
pub mod doubt;
pub mod error;
pub mod figures;
pub mod frame;
pub mod headline;
pub mod human;
pub mod ink;
pub mod load;
pub mod older;
pub mod page;
pub mod plan;

pub use error::{LoadError, ReportError};

use askama::Template;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use chart::canvas::{self, Canvas};
use chart::source::Source;
use doubt::Doubt;
use figures::{Drawn, Section};
use load::Results;
use page::{Chapter, Page, Picture, RunLine};
use serde::Serialize;

/// What a caller may choose.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Title of the page; made from the results where empty.
    pub title: String,
    /// Command that makes the page again; `doorbell report DIR…` where empty.
    pub command: String,
    /// Commit of the binary that draws the page.
    pub commit: String,
    /// Join shards of one experiment even if they were not measured alike.
    pub mixed: bool,
    /// Leave out the PNG files.
    pub skip_png: bool,
}

/// What was written.
#[derive(Debug)]
pub struct Report {
    /// The page.
    pub page: PathBuf,
    /// Identifiers of its figures: `figures/<id>.svg`, `.png` and `.csv` beside the page.
    pub figures: Vec<String>,
    /// The answers at the top, as plain sentences for a terminal.
    pub answers: Vec<String>,
    /// What a person at a terminal should know: files cut off, runs that are partial. The page says so too.
    pub notes: Vec<String>,
    /// Experiments that were joined, and from which shards. The page says so too.
    pub joined: Vec<String>,
    /// The runs that lack points. The page says so too.
    pub unfinished: Vec<Unfinished>,
    /// Directories and files that were left out, and why. The page says so too.
    pub problems: Vec<LoadError>,
}

/// A run, or an experiment joined from shards, without some of its points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unfinished {
    /// Its directory, or what its shards' have in common.
    pub run: String,
    /// Points that are there.
    pub points: u64,
    /// Points of the whole; 0 where nobody knows.
    pub of: u64,
}

impl Unfinished {
    fn of(results: &Results) -> Option<Unfinished> {
        let (points, of) = (results.points.height() as u64, results.record.points_expected);
        let lacks = points < of || results.record.partial(points).is_some();
        lacks.then(|| Unfinished { run: results.label.clone(), points, of })
    }
}

/// Reads result directories (or directories of them) and writes a page with `figures/` beside it: `out` itself where it
/// names an `.html` file, else `report.html` in the directory `out`, which is made if need be. Figures of the page that was there
/// before stay, and are told if the new one does not have them ([`older`]).
///
/// One unreadable directory among several, or a damaged file beside good points, becomes a note on the page and an entry in
/// [`Report::problems`]; if no directory can be read there is no page.
///
/// # Errors
/// See [`ReportError`].
pub fn render(dirs: &[PathBuf], out: &Path, options: &Options) -> Result<Report, ReportError> {
    if dirs.is_empty() {
        return Err(ReportError::NoInput);
    }
    let (results, problems) = load_all(dirs);
    if results.is_empty() {
        return Err(ReportError::NothingLoaded(problems));
    }
    let results = load::shards::join(load::same::once(results)?, options.mixed)?;
    let page_path = match out.extension() {
        Some(extension) if extension == "html" => out.to_owned(),
        _ => out.join("report.html"),
    };
    let beside = page_path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = beside.join("figures");
    std::fs::create_dir_all(&folder)
        .map_err(|source| ReportError::Unwritable { path: folder.clone(), source })?;
    let mut chapters: Vec<Chapter> = Vec::new();
    let mut ids = Vec::new();
    let drawn = figures::draw(&results)?;
    for section in Section::ALL {
        let mut pictures = Vec::new();
        for figure in drawn.iter().filter(|d| d.section == section) {
            pictures.push(write_figure(figure, &folder, options)?);
            ids.push(figure.id.clone());
        }
        if !pictures.is_empty() {
            chapters.push(Chapter { section, pictures });
        }
    }
    let (answers, also) = headline::answers(&results)?;
    let told = answers
        .iter()
        .map(|a| format!("{}: {} {}; {} ({})", a.subject, a.number, a.unit, a.detail, a.provenance.name()));
    let told = told.chain(also.iter().cloned()).collect();
    let runs = results.iter().map(RunLine::new).collect::<Result<Vec<_>, _>>()?;
    let command = match options.command.is_empty() {
        true => format!("doorbell report {}", list(dirs)),
        false => options.command.clone(),
    };
    let commands = results.iter().flat_map(|results| results.commands.iter().cloned());
    let commands = frame::distinct(commands.chain([command]));
    let page = Page {
        status: page::status(&runs),
        transactions: page::transactions(&results),
        title: title(&results, options),
        answers,
        also,
        chapters,
        runs,
        problems: problems.iter().map(LoadError::to_string).collect(),
        css: Page::style(),
        commands,
        commit: options.commit.clone(),
    };
    let before = older::figures(&page_path);
    write(&page_path, page.render()?.as_bytes())?;
    let mut notes = notes(&results);
    notes.extend(older::left(before, &ids, &folder));
    let unfinished = results.iter().filter_map(Unfinished::of).collect();
    let joined =
        results.iter().filter_map(|r| Some(format!("{}: {}", r.label, r.joined.as_ref()?))).collect();
    Ok(Report { page: page_path, figures: ids, answers: told, notes, joined, unfinished, problems })
}

fn load_all(dirs: &[PathBuf]) -> (Vec<Results>, Vec<LoadError>) {
    let (mut results, mut problems): (Vec<Results>, _) = (Vec::new(), Vec::new());
    // What is named twice is read once.
    let real = |dir: &Path| dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let (mut named, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for given in dirs.iter().filter(|given| named.insert(real(given))) {
        match load::find(given) {
            Ok(found) => {
                for dir in found.into_iter().filter(|dir| seen.insert(real(dir))) {
                    match load::read(&dir) {
                        Ok(read) => results.push(read),
                        Err(error) => problems.push(error),
                    }
                }
            }
            Err(error) => problems.push(error),
        }
    }
    problems.extend(results.iter_mut().flat_map(|results| results.damaged.drain(..)));
    (results, problems)
}

fn notes(results: &[Results]) -> Vec<String> {
    let said = results.iter().flat_map(|r| {
        let points = r.points.height();
        let doubtful = Doubt::ALL.into_iter().filter_map(move |doubt| match doubt.count(&r.points) {
            0 => None,
            count => Some(doubt.told(count, &human::count(points as u64, "point"))),
        });
        let partial = r.record.partial(points as u64);
        let all = partial.into_iter().chain(doubtful).chain(r.notes.iter().cloned());
        // The page says it of all.
        let wide = load::precision(&r.points).filter(|precision| precision.wide);
        let all = all.chain(wide.map(|precision| precision.told));
        all.map(|note| format!("{}: {note}", r.label))
    });
    said.collect()
}

fn list(dirs: &[PathBuf]) -> String {
    dirs.iter().map(|d| d.display().to_string()).collect::<Vec<_>>().join(" ")
}

fn title(results: &[Results], options: &Options) -> String {
    if !options.title.is_empty() {
        return options.title.clone();
    }
    match results {
        [one] if !one.record.title.is_empty() => one.record.title.clone(),
        _ => "Which RDMA primitive should carry each phase?".to_owned(),
    }
}

/// Whole or not at all: what was there stays if there is no room for the new one.
fn write(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    std::fs::write(&part, bytes).and_then(|()| std::fs::rename(&part, path)).map_err(|source| {
        // It may not be there, and what is wrong has been told.
        let _ = std::fs::remove_file(&part);
        ReportError::Unwritable { path: path.to_owned(), source }
    })
}

fn write_figure(drawn: &Drawn, folder: &Path, options: &Options) -> Result<Picture, ReportError> {
    let fail = |reason| ReportError::Draw { figure: drawn.id.clone(), reason };
    let file = |extension: &str| folder.join(format!("{}.{extension}", drawn.id));
    let height = drawn.figure.height();
    let label = format!("{}. {}", drawn.title, drawn.caption);
    // Below a drawing the page says where it comes from; a file goes where there is no page.
    let told = drawn.provenance.iter().map(|(provenance, line)| format!("{} · {line}", provenance.name()));
    let source = Source::of(told);
    let tall = height + source.height();
    let whole = |canvas: &mut dyn Canvas| {
        drawn.figure.draw(canvas);
        source.draw(canvas, height);
    };
    let alone = canvas::svg(chart::WIDTH, tall, &label, whole).map_err(fail)?;
    write(&file("svg"), alone.as_bytes())?;
    write(&file("csv"), &frame::to_csv(&drawn.frame)?)?;
    if !options.skip_png {
        write(&file("png"), &canvas::png(chart::WIDTH, tall, whole).map_err(fail)?)?;
    }
    let svg = canvas::svg(chart::WIDTH, height, &label, |canvas| drawn.figure.draw(canvas)).map_err(fail)?;
    Ok(Picture::new(drawn, svg)?)
}
