//! Draws a page from made-up results, to look at the design: `cargo run -p doorbell-reports --example sample_page [DIR]`.
//! With further arguments, draws those result directories instead.

use std::path::PathBuf;

#[path = "../tests/sample/mod.rs"]
mod sample;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1).map(PathBuf::from);
    let out = args.next().unwrap_or_else(|| std::env::temp_dir().join("doorbell-sample"));
    let mut dirs: Vec<PathBuf> = args.collect();
    if dirs.is_empty() {
        dirs = sample::everything(&out.join("results"));
    }
    let options = reports::Options { command: "doorbell report sample/*".to_owned(), ..Default::default() };
    let report = reports::render(&dirs, &out, &options)?;
    for answer in &report.answers {
        println!("{answer}");
    }
    for note in &report.notes {
        eprintln!("{note}");
    }
    println!("{}", report.page.display());
    Ok(())
}
