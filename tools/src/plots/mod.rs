//! Curves: by percentile, over time, and over the rate. Each as SVG text or as PNG bytes.
//!
//! Latencies are drawn in µs, on a logarithmic axis: the median and a maximum a thousand times as high are both to be seen.

mod draw;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use plotters::backend::{BitMapBackend, SVGBackend};
use plotters::prelude::{DrawingBackend, IntoDrawingArea};
use plotters::style::{FontStyle, register_font};

use crate::hdr::Step;

/// Of every plot, in pixels.
const SIZE: (u32, u32) = (960, 480);

/// Points that a line is drawn through at most: more than there are pixels.
const POINTS_MAX: usize = 2000;

/// Why there is no plot, in a line.
#[derive(Debug)]
pub struct PlotError(String);

impl std::fmt::Display for PlotError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "plot: {}", self.0)
    }
}

impl std::error::Error for PlotError {}

/// One interval's figures, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// When it began, in seconds.
    pub at_s: f64,
    /// Its percentiles …
    pub p50_ns: u64,
    /// …
    pub p99_ns: u64,
    /// …
    pub p999_ns: u64,
    /// … and its longest.
    pub max_ns: u64,
}

/// One rate's figures, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatePoint {
    /// Messages a second.
    pub per_second: f64,
    /// Its percentiles …
    pub p50_ns: u64,
    /// …
    pub p999_ns: u64,
    /// … and its longest.
    pub max_ns: u64,
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum Plot {
    /// Percentile tables by name, over 1/(1-p).
    Percentiles(Vec<(String, Vec<Step>)>),
    /// A run's intervals.
    Timeline(Vec<Moment>),
    /// A run's rates.
    Sweep(Vec<RatePoint>),
}

impl Plot {
    /// As text.
    ///
    /// # Errors
    /// The library's.
    pub fn svg(&self) -> Result<String, PlotError> {
        let mut text = String::new();
        self.draw(SVGBackend::with_string(&mut text, SIZE))?;
        Ok(text)
    }

    /// As a file's bytes.
    ///
    /// # Errors
    /// The library's.
    pub fn png(&self) -> Result<Vec<u8>, PlotError> {
        let (width, height) = SIZE;
        let mut pixels = vec![0; width as usize * height as usize * 3];
        self.draw(BitMapBackend::with_buffer(&mut pixels, SIZE))?;
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(png::ColorType::Rgb);
        let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels));
        written.map_err(|error| PlotError(error.to_string()))?;
        Ok(file)
    }

    fn draw<B: DrawingBackend>(&self, backend: B) -> Result<(), PlotError> {
        if !has_font() {
            return Err(PlotError("its font can't be read".to_string()));
        }
        let area = backend.into_drawing_area();
        let drawn = match self {
            Plot::Percentiles(curves) => draw::percentiles(&area, curves),
            Plot::Timeline(moments) => draw::timeline(&area, &thinned(moments)),
            Plot::Sweep(points) => draw::sweep(&area, points),
        };
        drawn.and_then(|()| area.present()).map_err(|error| PlotError(error.to_string()))
    }
}

/// The library finds no font by itself.
fn has_font() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let register = || register_font("sans-serif", FontStyle::Normal, epaint_default_fonts::HACK_REGULAR).is_ok();
    *REGISTERED.get_or_init(register)
}

/// At most as many as are drawn: of several, the highest of each figure, so that no maximum is lost.
fn thinned(moments: &[Moment]) -> Vec<Moment> {
    let each = moments.len().div_ceil(POINTS_MAX).max(1);
    let highest = |group: &[Moment]| {
        let max = |of: fn(&Moment) -> u64| group.iter().map(of).max().unwrap_or(0);
        Moment {
            at_s: group[0].at_s,
            p50_ns: max(|moment| moment.p50_ns),
            p99_ns: max(|moment| moment.p99_ns),
            p999_ns: max(|moment| moment.p999_ns),
            max_ns: max(|moment| moment.max_ns),
        }
    };
    moments.chunks(each).map(highest).collect()
}
