//! Results, for people.

use std::fmt::Write as _;

use crate::latency::{Percentiles, QUANTILES};
use crate::row::Row;
use crate::suites::Outcome;

/// A suite's tables and notes.
pub fn render(outcome: &Outcome) -> String {
    let mut out = String::new();
    rows(&mut out, &outcome.rows);
    if !outcome.percentiles.is_empty() {
        percentiles(&mut out, &outcome.percentiles);
    }
    for note in &outcome.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

/// A row's cells: name, ours, worst, floor, peer, unit, ratio, budget, verdict, hop and the peer's name.
pub fn cells(row: &Row) -> [String; 10] {
    let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    let peer = row.peer.as_ref();
    [
        row.row.clone(),
        number(row.ours.median()),
        number(row.ours.worst(row.better)),
        optional(row.floor.as_ref().map(|floor| floor.median())),
        optional(peer.map(|peer| peer.rounds.median())),
        row.unit.to_owned(),
        row.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
        row.budget_text().unwrap_or_default(),
        row.holds().map_or("", |holds| if holds { "yes" } else { "SHORT" }).to_owned(),
        format!(
            "{}{}",
            row.hop.as_ref().map(ToString::to_string).unwrap_or_default(),
            peer.map(|peer| format!("  [peer: {}]", peer.name)).unwrap_or_default()
        ),
    ]
}

fn rows(out: &mut String, rows: &[Row]) {
    let name_width = rows.iter().map(|row| row.row.chars().count()).max().unwrap_or(0).max(3);
    let heads = ["row", "ours", "worst", "floor", "peer", "unit", "ratio", "budget", "holds", "hop"].map(str::to_owned);
    for cells in [heads].into_iter().chain(rows.iter().map(cells)) {
        let [name, ours, worst, floor, peer, unit, ratio, budget, holds, hop] = cells;
        let _ = writeln!(
            out,
            "{name:name_width$} {ours:>9} {worst:>9} {floor:>9} {peer:>9} {unit:>6} {ratio:>6}  {budget:<22} {holds:<6} {hop}"
        );
    }
}

fn percentiles(out: &mut String, all: &[Percentiles]) {
    let width = |text: fn(&Percentiles) -> &str| all.iter().map(|p| text(p).chars().count()).max().unwrap_or(0);
    let (row_width, whose_width) = (width(|p| &p.row), width(|p| &p.whose));
    let _ = write!(out, "\n{:row_width$} {:whose_width$} {:>10}", "ns, all rounds", "", "mean");
    QUANTILES.iter().for_each(|(name, _)| {
        let _ = write!(out, " {name:>10}");
    });
    let _ = writeln!(out, " {:>10}", "max");
    for Percentiles { row, whose, mean, quantiles, max } in all {
        let _ = write!(out, "{row:row_width$} {whose:whose_width$} {:>10}", number(*mean));
        for &value in quantiles.iter().chain([max]) {
            let _ = write!(out, " {:>10}", number(value));
        }
        out.push('\n');
    }
}

/// About four digits, whatever the size.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        small if small < 0.01 => format!("{value:.1e}"),
        small if small < 100.0 => format!("{value:.2}"),
        middle if middle < 10_000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Budget, Row};

    #[test]
    fn a_row_shows_its_verdict_and_its_peer() {
        let row = Row::higher("ring", "burst 1", "M/s", [80.0, 70.0, 90.0].into_iter().collect())
            .peer("disruptor", Some([64.0; 3].into_iter().collect()))
            .budget(Budget::OfPeer(1.3));
        let table = render(&Outcome { rows: vec![row], ..Outcome::default() });
        let line = table.lines().nth(1).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let expected = "burst 1 80.00 70.00 - 64.00 M/s 1.25 >= 1.3 x disruptor SHORT [peer: disruptor]";
        assert_eq!(words, expected.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn numbers_keep_about_four_digits() {
        let cases = [(0.0, "0"), (0.0001, "1.0e-4"), (1.234, "1.23"), (123.45, "123.5"), (123_456.7, "123457")];
        assert!(cases.into_iter().all(|(value, text)| number(value) == text));
    }
}
