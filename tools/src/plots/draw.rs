//! The drawing itself, for any backend.

use plotters::chart::SeriesLabelPosition;
use plotters::coord::Shift;
use plotters::prelude::{
    BLACK, ChartBuilder, Circle, Color, DrawingArea, DrawingAreaErrorKind, DrawingBackend, IntoLogRange, LineSeries,
    PathElement, RGBColor, WHITE,
};

use super::{Moment, RatePoint};
use crate::hdr::Step;

type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;
type Area<B> = DrawingArea<B, Shift>;
/// A line's name, its color, whether its points are marked, and where it goes.
struct Line {
    name: String,
    color: RGBColor,
    is_marked: bool,
    points: Vec<(f64, f64)>,
}

/// Told apart by those who see no difference between red and green, too.
const COLORS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];
const MAX_COLOR: RGBColor = RGBColor(190, 30, 45);

const FONT: (&str, u32) = ("sans-serif", 13);
const CAPTION_FONT: (&str, u32) = ("sans-serif", 16);

/// Draws lines and their legend: each chart has a type of its own, by its axes.
macro_rules! plot_lines {
    ($chart:expr, $lines:expr) => {
        for line in &$lines {
            let color = line.color;
            let legend = move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2));
            let series = LineSeries::new(line.points.iter().copied(), color.stroke_width(2));
            $chart.draw_series(series)?.label(line.name.as_str()).legend(legend);
            if line.is_marked {
                $chart.draw_series(line.points.iter().map(|&point| Circle::new(point, 3, color.filled())))?;
            }
        }
        let mut legend = $chart.configure_series_labels();
        legend.position(SeriesLabelPosition::UpperLeft).label_font(FONT);
        legend.background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.2)).draw()?;
    };
}

fn us(ns: u64) -> f64 {
    ns.max(1) as f64 / 1e3
}

/// From a bit below the lowest to a bit above the highest, on a logarithmic axis.
fn latency_range(lines: &[Line]) -> (f64, f64) {
    let ys = || lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
    let (low, high) = (ys().fold(f64::INFINITY, f64::min), ys().fold(0.0, f64::max));
    if low.is_finite() { (low / 1.3, high * 1.3) } else { (1.0, 10.0) }
}

fn latency_label(us: &f64) -> String {
    match *us {
        us if us >= 1e6 => format!("{} s", us / 1e6),
        us if us >= 1e3 => format!("{} ms", us / 1e3),
        us => format!("{us} µs"),
    }
}

/// 90 %, 99 %, 99.9 % for 10, 100, 1000.
fn percent_label(inverse: &f64) -> String {
    let nines = inverse.log10().round() as usize;
    match nines {
        0 => "0%".to_string(),
        1 => "90%".to_string(),
        _ => format!("{:.*}%", nines - 2, 100.0 - 100.0 / inverse),
    }
}

/// Curves over 1/(1-p).
pub(super) fn percentiles<B: DrawingBackend>(area: &Area<B>, curves: &[(String, Vec<Step>)]) -> Drawn<B> {
    area.fill(&WHITE)?;
    let mut lines = Vec::new();
    let mut right = 100.0_f64;
    for (i, (name, steps)) in curves.iter().enumerate() {
        // The last one has no place on the axis: it is where the count ends.
        let total = steps.last().map_or(1, |step| step.count).max(1) as f64;
        let points = steps.iter().map(|step| (step.inverse().min(total), us(step.value))).collect();
        right = right.max(total);
        lines.push(Line { name: name.clone(), color: COLORS[i % COLORS.len()], is_marked: false, points });
    }
    let (low, high) = latency_range(&lines);
    let mut chart = chart(area, "latency by percentile")
        .build_cartesian_2d((1.0..right * 1.2).log_scale(), (low..high).log_scale())?;
    let mut mesh = chart.configure_mesh();
    mesh.x_label_formatter(&percent_label).y_label_formatter(&latency_label).label_style(FONT);
    mesh.x_desc("percentile").light_line_style(WHITE).draw()?;
    plot_lines!(chart, lines);
    Ok(())
}

/// Percentiles and maxima of intervals over time.
pub(super) fn timeline<B: DrawingBackend>(area: &Area<B>, moments: &[Moment]) -> Drawn<B> {
    area.fill(&WHITE)?;
    let line = |name: &str, color: RGBColor, of: fn(&Moment) -> u64| Line {
        name: name.to_string(),
        color,
        is_marked: name == "max",
        points: moments.iter().map(|moment| (moment.at_s, us(of(moment)))).collect(),
    };
    let lines = [
        line("p50", COLORS[0], |moment| moment.p50_ns),
        line("p99", COLORS[2], |moment| moment.p99_ns),
        line("p99.9", COLORS[1], |moment| moment.p999_ns),
        line("max", MAX_COLOR, |moment| moment.max_ns),
    ];
    let (low, high) = latency_range(&lines);
    let from = moments.first().map_or(0.0, |moment| moment.at_s);
    let to = moments.last().map_or(1.0, |moment| moment.at_s).max(from + 1.0);
    let mut chart = chart(area, "latency over time").build_cartesian_2d(from..to, (low..high).log_scale())?;
    let mut mesh = chart.configure_mesh();
    mesh.y_label_formatter(&latency_label).x_label_formatter(&|at_s| format!("{at_s:.0}")).label_style(FONT);
    mesh.x_desc("seconds").light_line_style(WHITE).draw()?;
    plot_lines!(chart, lines);
    Ok(())
}

/// Percentiles and maxima by the rate reached.
pub(super) fn sweep<B: DrawingBackend>(area: &Area<B>, points: &[RatePoint]) -> Drawn<B> {
    area.fill(&WHITE)?;
    let line = |name: &str, color: RGBColor, of: fn(&RatePoint) -> u64| Line {
        name: name.to_string(),
        color,
        is_marked: true,
        points: points.iter().map(|point| (point.per_second, us(of(point)))).collect(),
    };
    let lines = [
        line("p50", COLORS[0], |point| point.p50_ns),
        line("p99.9", COLORS[1], |point| point.p999_ns),
        line("max", MAX_COLOR, |point| point.max_ns),
    ];
    let (low, high) = latency_range(&lines);
    let right = points.iter().map(|point| point.per_second).fold(1.0, f64::max) * 1.05;
    let mut chart = chart(area, "latency by rate").build_cartesian_2d(0.0..right, (low..high).log_scale())?;
    let mut mesh = chart.configure_mesh();
    mesh.y_label_formatter(&latency_label).x_label_formatter(&|rate| format!("{rate:.0}")).label_style(FONT);
    mesh.x_desc("answered messages a second").light_line_style(WHITE).draw()?;
    plot_lines!(chart, lines);
    Ok(())
}

fn chart<'a, 'b, B: DrawingBackend>(area: &'a Area<B>, caption: &str) -> ChartBuilder<'a, 'b, B> {
    let mut builder = ChartBuilder::on(area);
    builder.caption(caption, CAPTION_FONT).margin(12).x_label_area_size(42).y_label_area_size(70);
    builder
}
