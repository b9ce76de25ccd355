//! Plots hold what was to be drawn, in both forms, whatever that is.

use hdrhistogram::Histogram;

use super::*;
use crate::hdr::percentile_steps;

fn plots() -> [Plot; 3] {
    let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap();
    (1..10_000_u64).for_each(|value| histogram.record(value * 17).unwrap());
    let moment =
        |at: u64| Moment { at_s: at as f64, p50_ns: 9_000, p99_ns: 20_000 + at, p999_ns: 50_000, max_ns: 8_000_000 };
    let rate =
        |at: u64| RatePoint { per_second: at as f64 * 1e4, p50_ns: 9_000, p999_ns: 50_000 * at, max_ns: 900_000 };
    [
        Plot::Percentiles(vec![("one <run>".to_string(), percentile_steps(&histogram))]),
        Plot::Timeline((0..30).map(moment).collect()),
        Plot::Sweep((1..5).map(rate).collect()),
    ]
}

#[test]
fn every_plot_is_a_text_and_a_picture() {
    let names = ["latency by percentile", "latency over time", "latency by rate"];
    for (plot, name) in plots().iter().zip(names) {
        let svg = plot.svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(svg.contains(name) && svg.contains("<polyline"), "{svg}");
        assert!(!svg.contains("<run>"), "names are escaped");
        let png = plot.png().unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), SIZE);
        // White, and what is drawn on it.
        let dark = pixels.chunks(3).filter(|pixel| pixel.iter().any(|&part| part < 200)).count();
        assert!(dark > 1_000, "{dark}");
    }
}

#[test]
fn what_is_empty_or_alone_is_drawn_as_well() {
    let one = Moment { at_s: 5.0, p50_ns: 0, p99_ns: 0, p999_ns: 0, max_ns: 0 };
    for plot in [
        Plot::Percentiles(vec![]),
        Plot::Percentiles(vec![("none".to_string(), vec![])]),
        Plot::Timeline(vec![]),
        Plot::Timeline(vec![one]),
        Plot::Sweep(vec![]),
        Plot::Sweep(vec![RatePoint { per_second: 0.0, p50_ns: 1, p999_ns: 1, max_ns: u64::MAX }]),
    ] {
        assert!(plot.svg().unwrap().ends_with("</svg>\n"));
        assert!(!plot.png().unwrap().is_empty());
    }
}

#[test]
fn a_long_run_keeps_its_maxima() {
    let moment = |at: u64| Moment {
        at_s: at as f64,
        p50_ns: 1,
        p99_ns: 2,
        p999_ns: 3,
        max_ns: if at == 77_777 { 99 } else { 4 },
    };
    let thin = thinned(&(0..100_000).map(moment).collect::<Vec<_>>());
    assert!(thin.len() <= POINTS_MAX && thin.len() > POINTS_MAX / 2);
    assert_eq!(thin.iter().filter(|moment| moment.max_ns == 99).count(), 1);
}
