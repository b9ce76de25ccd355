//! The page.

use std::fmt::Write as _;

use super::figures;
use super::found::{Found, Run};
use super::html::{escape, facts, table};
use crate::hdr::{Latency, Row};
use crate::load::summary::Summary;

/// Intervals that a table shows; the log has them all.
const ROWS_MAX: usize = 600;

const STYLE: &str = "body{font:14px/1.4 sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}\
    table{border-collapse:collapse;margin:.6em 0}td,th{padding:.15em .7em;border-bottom:1px solid #ddd;text-align:right}\
    th{background:#f4f4f4}td:first-child,th:first-child,.facts td{text-align:left}svg{max-width:100%;height:auto}\
    .note{color:#555}";

const OMISSION: &str = "Latencies of load count from when each message was meant to be sent, so what a stall held up is in them as often as \
    it was met (no coordinated omission). Messages that were never answered are in them with the time that they have waited. Jitter is what \
    a core that only spins lost to the box before the run.";

const PERCENTILES: [&str; 8] = ["µs", "p50", "p90", "p99", "p99.9", "p99.99", "max", "count"];

/// All of it.
pub fn page(found: &Found) -> String {
    let mut html = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    let _ = writeln!(html, "<title>ticktape report</title><style>{STYLE}</style></head><body>");
    html.push_str("<h1>Latency report</h1>\n");
    if found.runs.len() > 1 {
        let rows: Vec<_> = found.runs.iter().flat_map(all_latencies).collect();
        html += &table(&PERCENTILES, &rows);
        html += &figures::percentiles(&found.runs);
    }
    for run in &found.runs {
        html += &section(run, found.runs.len() == 1);
    }
    let _ = writeln!(html, "<p class=\"note\">{OMISSION}</p>");
    for why in &found.damaged {
        let _ = writeln!(html, "<p><b>Not read:</b> {}</p>", escape(why));
    }
    html.push_str("</body></html>\n");
    html
}

fn section(run: &Run, is_alone: bool) -> String {
    let mut html = format!("<h2>{}</h2>\n", escape(&run.name));
    let mut rows = all_latencies(run);
    if let Some(summary) = &run.summary {
        html += &facts(&summary_facts(summary));
        rows.push(latency_row("jitter", &summary.jitter));
    }
    html += &table(&PERCENTILES, &rows);
    if is_alone {
        html += &figures::percentiles(std::slice::from_ref(run));
    }
    html += &figures::timeline(&run.log);
    if let Some(summary) = run.summary.as_ref().filter(|summary| summary.parts.len() > 1) {
        html += &figures::sweep(summary);
        html += &parts(summary);
    }
    html + &intervals(&run.log.rows)
}

/// A row for each tag.
fn all_latencies(run: &Run) -> Vec<Vec<String>> {
    let name = |tag: &Option<String>| tag.as_ref().map_or(run.name.clone(), |tag| format!("{} [{tag}]", run.name));
    run.log.totals.iter().map(|(tag, total)| latency_row(&name(tag), &Latency::of(total))).collect()
}

fn us(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1e3)
}

fn latency_row(name: &str, latency: &Latency) -> Vec<String> {
    let Latency { p50_ns, p90_ns, p99_ns, p999_ns, p9999_ns, max_ns, count } = *latency;
    let mut row = vec![name.to_string()];
    row.extend([p50_ns, p90_ns, p99_ns, p999_ns, p9999_ns, max_ns].map(us));
    row.push(count.to_string());
    row
}

fn summary_facts(summary: &Summary) -> Vec<(&'static str, String)> {
    let Summary { options, host, counts, .. } = summary;
    let cores = host.cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let client = format!("{}, {}", options.idle, options.nic);
    vec![
        ("ended", summary.ended.clone()),
        ("load", format!("{}, {} client(s) of {} at {}", options.load, options.clients, options.service, options.to)),
        ("time", format!("{:.1} s after {:.1} s of warm-up", options.seconds, options.warmup_seconds)),
        ("rate", format!("{:.0}/s wanted, {:.0}/s answered", summary.rate_wanted, summary.rate_reached)),
        (
            "messages",
            format!(
                "{} wanted, {} sent, {} answered, {} lost, {} sent a millisecond or more late",
                counts.wanted, counts.sent, counts.answered, counts.lost, counts.late_sends
            ),
        ),
        ("client", options.core.map_or(client.clone(), |core| format!("{client}, on core {core}"))),
        ("host", format!("{}: {}, cores {cores}, {}", host.hostname, host.cpu_model, host.kernel)),
        ("version", format!("{}, commit {}", options.version, options.commit.as_deref().unwrap_or("unknown"))),
    ]
}

fn parts(summary: &Summary) -> String {
    let row = |part: &crate::load::summary::PartSummary| {
        let Latency { p50_ns, p99_ns, p999_ns, max_ns, .. } = part.latency;
        let mut row = vec![format!("{:.0}", part.rate_wanted), format!("{:.0}", part.rate_reached)];
        row.extend([p50_ns, p99_ns, p999_ns, max_ns].map(us));
        row.push(part.lost.to_string());
        row
    };
    let rows: Vec<_> = summary.parts.iter().map(row).collect();
    table(&["wanted/s", "answered/s", "p50 µs", "p99", "p99.9", "max", "lost"], &rows)
}

fn intervals(rows: &[Row]) -> String {
    let row = |row: &Row| {
        let Latency { p50_ns, p99_ns, p999_ns, max_ns, count, .. } = row.latency;
        let tag = row.tag.as_ref().map_or(String::new(), |tag| format!(" [{tag}]"));
        let mut cells = vec![format!("{:.3}{tag}", row.start.as_secs_f64()), count.to_string()];
        cells.extend([p50_ns, p99_ns, p999_ns, max_ns].map(us));
        cells
    };
    let shown: Vec<_> = rows.iter().take(ROWS_MAX).map(row).collect();
    let more = rows.len() - shown.len();
    let note = if more > 0 { format!("<p class=\"note\">and {more} more in the log</p>\n") } else { String::new() };
    let table = table(&["second", "count", "p50 µs", "p99", "p99.9", "max"], &shown);
    format!("<details><summary>{} intervals</summary>\n{table}{note}</details>\n", rows.len())
}
