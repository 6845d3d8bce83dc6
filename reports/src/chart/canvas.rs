//! The only file that calls plotters. A [`Canvas`] offers a dozen strokes in CSS pixels; underneath, plotters
//! draws to SVG or to a bitmap.
//!
//! Two of plotters' habits are worked around here. Its coordinates are whole pixels, so figures are drawn
//! several times larger and scaled down by the view box, or curves would show steps. And its SVG backend
//! divides font sizes by 1.24 (the height of a line), so sizes are multiplied by that first.

use image::codecs::png::PngEncoder;
use image::{ColorType, ImageEncoder};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};
use std::sync::OnceLock;

use crate::ink::Ink;

const FAMILY: &str = "sans-serif";
const LINE_TO_EM: f64 = 1.24;

/// Steps per CSS pixel in SVG: enough that rounding to whole steps cannot be seen.
pub const SVG_STEPS: f64 = 10.0;
/// Pixels per CSS pixel in PNG: sharp on a dense screen and in print.
pub const PNG_STEPS: f64 = 2.0;

/// Paper around a figure that stands alone; on the page the text column gives the margin.
const PNG_MARGIN: f64 = 16.0;

/// By which share of their size texts are lowered in PNG, where plotters centres the line box and not the letters in it.
const PNG_DROP: f64 = 0.22;

/// Which side of its position a text is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// It begins there.
    Start,
    /// It is centred there.
    Middle,
    /// It ends there.
    End,
}

/// How a text looks.
#[derive(Clone, Copy, Debug)]
pub struct Type {
    /// Size in CSS pixels.
    pub size: f64,
    /// Colour.
    pub ink: Ink,
    /// Alignment.
    pub align: Align,
    /// Bold in SVG; the bundled font has one weight, so a PNG shows it as regular.
    pub bold: bool,
}

impl Type {
    /// Regular text of `size` that begins at its position.
    pub fn new(size: f64, ink: Ink) -> Type {
        Type { size, ink, align: Align::Start, bold: false }
    }

    /// The same, aligned otherwise.
    pub fn align(self, align: Align) -> Type {
        Type { align, ..self }
    }

    /// The same, bold.
    pub fn bold(self) -> Type {
        Type { bold: true, ..self }
    }
}

/// Registers the bundled font, once per process; plotters can neither measure nor draw text without one.
fn font() -> Result<(), String> {
    static DONE: OnceLock<bool> = OnceLock::new();
    let bytes = include_bytes!("../../assets/DejaVuSans.ttf");
    match DONE.get_or_init(|| register_font(FAMILY, FontStyle::Normal, bytes).is_ok()) {
        true => Ok(()),
        false => Err("the bundled font cannot be read".to_owned()),
    }
}

/// How wide `text` is at `size`, in CSS pixels; a guess if it cannot be measured.
pub fn width_of(text: &str, size: f64) -> f64 {
    let guess = text.chars().count() as f64 * size * 0.6;
    if font().is_err() {
        return guess;
    }
    // Measured large, because plotters answers in whole pixels.
    let large = (FAMILY, 100.0 * LINE_TO_EM).into_font().box_size(text);
    large.map_or(guess, |(width, _)| f64::from(width) * size / 100.0)
}

/// A place to draw on.
pub trait Canvas {
    /// A line through `points`.
    fn line(&mut self, points: &[(f64, f64)], ink: Ink, width: f64);
    /// A filled rectangle.
    fn rect(&mut self, x0: f64, y0: f64, x1: f64, y1: f64, ink: Ink);
    /// A filled circle.
    fn dot(&mut self, x: f64, y: f64, radius: f64, ink: Ink);
    /// A circle filled with paper.
    fn ring(&mut self, x: f64, y: f64, radius: f64, ink: Ink);
    /// A text whose middle line is at `y`.
    fn text(&mut self, x: f64, y: f64, text: &str, style: Type);
}

struct Paper<'a, B: DrawingBackend> {
    area: &'a DrawingArea<B, Shift>,
    margin: f64,
    steps: f64,
    /// By which share of their size texts are lowered.
    drop: f64,
    failed: Option<String>,
}

impl<B: DrawingBackend> Paper<'_, B> {
    fn at(&self, x: f64, y: f64) -> (i32, i32) {
        // Saturating casts: a position far off the paper is clipped, not wrapped.
        let at = |v: f64| ((v + self.margin) * self.steps).round() as i32;
        (at(x), at(y))
    }

    fn size(&self, width: f64) -> u32 {
        ((width * self.steps).round() as u32).max(1)
    }

    fn color(ink: Ink) -> RGBColor {
        let (r, g, b) = ink.rgb();
        RGBColor(r, g, b)
    }

    fn done<T, E: std::fmt::Display>(&mut self, result: Result<T, E>) {
        if let Err(error) = result {
            self.failed.get_or_insert_with(|| error.to_string());
        }
    }
}

impl<B: DrawingBackend> Canvas for Paper<'_, B> {
    fn line(&mut self, points: &[(f64, f64)], ink: Ink, width: f64) {
        let mut path: Vec<(i32, i32)> = points.iter().map(|(x, y)| self.at(*x, *y)).collect();
        path.dedup();
        if path.len() >= 2 {
            let style = Self::color(ink).stroke_width(self.size(width));
            let result = self.area.draw(&PathElement::new(path, style));
            self.done(result);
        }
    }

    fn rect(&mut self, x0: f64, y0: f64, x1: f64, y1: f64, ink: Ink) {
        let corners = [self.at(x0.min(x1), y0.min(y1)), self.at(x0.max(x1), y0.max(y1))];
        let result = self.area.draw(&Rectangle::new(corners, Self::color(ink).filled()));
        self.done(result);
    }

    fn dot(&mut self, x: f64, y: f64, radius: f64, ink: Ink) {
        let circle = Circle::new(self.at(x, y), self.size(radius), Self::color(ink).filled());
        let result = self.area.draw(&circle);
        self.done(result);
    }

    fn ring(&mut self, x: f64, y: f64, radius: f64, ink: Ink) {
        self.dot(x, y, radius + 0.8, ink);
        self.dot(x, y, radius - 0.8, Ink::Paper);
    }

    fn text(&mut self, x: f64, y: f64, text: &str, style: Type) {
        let weight = if style.bold { FontStyle::Bold } else { FontStyle::Normal };
        let font = FontDesc::new(FontFamily::SansSerif, style.size * LINE_TO_EM * self.steps, weight);
        let side = match style.align {
            Align::Start => HPos::Left,
            Align::Middle => HPos::Center,
            Align::End => HPos::Right,
        };
        let look = font.color(&Self::color(style.ink)).pos(Pos::new(side, VPos::Center));
        let at = self.at(x, y + self.drop * style.size);
        let result = self.area.draw(&Text::new(text.to_owned(), at, look));
        self.done(result);
    }
}

fn draw_on<B: DrawingBackend>(
    backend: B,
    steps: f64,
    margin: f64,
    drop: f64,
    draw: impl FnOnce(&mut dyn Canvas),
) -> Result<(), String> {
    let area = backend.into_drawing_area();
    let (r, g, b) = Ink::Paper.rgb();
    area.fill(&RGBColor(r, g, b)).map_err(|error| error.to_string())?;
    let mut paper = Paper { area: &area, margin, steps, drop, failed: None };
    draw(&mut paper);
    match paper.failed {
        Some(reason) => Err(reason),
        None => area.present().map_err(|error| error.to_string()),
    }
}

/// Draws to an SVG document of `width` × `height` CSS pixels whose accessible name is `label`.
pub fn svg(
    width: f64,
    height: f64,
    label: &str,
    draw: impl FnOnce(&mut dyn Canvas),
) -> Result<String, String> {
    font()?;
    let mut out = String::new();
    let size = ((width * SVG_STEPS) as u32, (height * SVG_STEPS) as u32);
    draw_on(SVGBackend::with_string(&mut out, size), SVG_STEPS, 0.0, 0.0, draw)?;
    // plotters sizes the document in steps; the reader wants CSS pixels, a name, and real fonts.
    let Some((_, body)) = out.split_once('\n') else {
        return Err("plotters wrote no document".to_owned());
    };
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {} {}\" \
         font-family=\"{FONT_STACK}\" role=\"img\" aria-label=\"{}\">\n{}",
        size.0,
        size.1,
        escape(label),
        body.replace(" font-family=\"sans-serif\"", "").replace(" opacity=\"1\"", "")
    ))
}

/// Fonts that look at home on the usual systems, ending in what every reader has.
const FONT_STACK: &str =
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Draws a PNG of `width` × `height` CSS pixels.
pub fn png(width: f64, height: f64, draw: impl FnOnce(&mut dyn Canvas)) -> Result<Vec<u8>, String> {
    font()?;
    let steps = |length: f64| ((length + 2.0 * PNG_MARGIN) * PNG_STEPS) as u32;
    let (wide, high) = (steps(width), steps(height));
    let mut pixels = vec![0; wide as usize * high as usize * 3];
    draw_on(BitMapBackend::with_buffer(&mut pixels, (wide, high)), PNG_STEPS, PNG_MARGIN, PNG_DROP, draw)?;
    let mut bytes = Vec::new();
    PngEncoder::new(&mut bytes)
        .write_image(&pixels, wide, high, ColorType::Rgb8)
        .map_err(|error| error.to_string())?;
    Ok(bytes)
}
