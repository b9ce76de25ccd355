//! The budgets of the design, one by one: by which rows each is judged, and what came of it.

use std::fmt::Write as _;

use crate::row::Row;
use crate::suites::Suite;
use crate::table::number;

/// Something that the design promises.
#[derive(Debug)]
pub struct Promise {
    /// In words.
    pub what: &'static str,
    suite: Suite,
    /// What the names of its rows begin with.
    rows: &'static [&'static str],
}

const fn promise(what: &'static str, suite: Suite, rows: &'static [&'static str]) -> Promise {
    Promise { what, suite, rows }
}

/// Each budget of the design.
pub const PROMISES: [Promise; 22] = [
    promise("ring hop, one to one, 64 B", Suite::Ring, &["hop one to one"]),
    promise("ring throughput", Suite::Ring, &["throughput"]),
    promise("sealing a frame", Suite::Core, &["frame: seal in place"]),
    promise("stage histograms", Suite::Core, &["stage histograms"]),
    promise("follower hop, other process", Suite::Shm, &["follower hop"]),
    promise("hops beside a stopped follower", Suite::Shm, &["hop one to one beside"]),
    promise("durable append, one at a time", Suite::Journal, &["64 x 128 B, one at a time"]),
    promise("durable append, saturated", Suite::Journal, &["saturated"]),
    promise("packet path over veth", Suite::Nic, &["echo"]),
    promise("wire to reply, tier memory", Suite::E2e, &["round trip p50, tier memory", "round trip p50 over"]),
    promise("wire to reply, tier local", Suite::E2e, &["round trip p50, tier local"]),
    promise("sequence + journal + apply + publish", Suite::E2e, &["sequence + journal + apply + publish"]),
    promise("embedded submit, no sync", Suite::Node, &["submit"]),
    promise("embedded batch of 64, synced", Suite::Node, &["batch"]),
    promise("recovery", Suite::Recover, &["reading the log"]),
    promise("snapshot of 100 MiB, tier memory", Suite::Recover, &["snapshot, tier memory, 100 MiB"]),
    promise("snapshot of 100 MiB, tier local", Suite::Recover, &["snapshot, tier local, 100 MiB"]),
    promise("snapshot of 1 GiB", Suite::Recover, &["snapshot, tier memory, 1024 MiB"]),
    promise("no allocation: link", Suite::Link, &["link: allocations"]),
    promise("no allocation: order book", Suite::Book, &["book: allocations"]),
    promise("no allocation: an order's whole way", Suite::E2e, &["software path of one order: allocations"]),
    promise("simulator, faster than real time", Suite::Sim, &["1000 inputs and 10 timers"]),
];

impl Promise {
    fn judges(&self, row: &Row) -> bool {
        row.suite == self.suite.name() && row.budget.is_some() && self.rows.iter().any(|name| row.row.starts_with(name))
    }
}

/// What came of one row with a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It does not.
    Short,
    /// What it compares with was not there.
    Unjudged,
}

impl Verdict {
    /// Of a row that has a budget.
    pub fn of(row: &Row) -> Self {
        match row.holds() {
            Some(true) => Verdict::Holds,
            Some(false) => Verdict::Short,
            None => Verdict::Unjudged,
        }
    }

    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Short => "SHORT",
            Verdict::Unjudged => "not judged",
        }
    }
}

/// One line of the table of budgets.
#[derive(Debug)]
pub struct Line<'a> {
    /// What the design calls it; other budgets are the suites' own.
    pub promise: &'static str,
    /// The row; `None` where the suite ran, and left it out.
    pub row: Option<&'a Row>,
    /// The suite.
    pub suite: &'static str,
}

/// The budgets of these suites in the design's order, then the suites' own.
pub fn lines<'a>(suites: &[Suite], rows: &'a [Row]) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for promise in PROMISES.iter().filter(|promise| suites.contains(&promise.suite)) {
        let before = lines.len();
        let (what, suite) = (promise.what, promise.suite.name());
        lines.extend(rows.iter().filter(|row| promise.judges(row)).map(|row| Line {
            promise: what,
            row: Some(row),
            suite,
        }));
        if lines.len() == before {
            lines.push(Line { promise: what, row: None, suite });
        }
    }
    let own = rows.iter().filter(|row| row.budget.is_some() && !PROMISES.iter().any(|promise| promise.judges(row)));
    lines.extend(own.map(|row| Line { promise: "(the suite's own)", row: Some(row), suite: row.suite }));
    lines
}

impl Line<'_> {
    /// Its cells: promise, row, ours, what it is compared with, the budget, the verdict.
    pub fn cells(&self) -> [String; 6] {
        let Some(row) = self.row else {
            let why = format!("not in this run: ticktape-bench {}", self.suite);
            return [
                self.promise.to_owned(),
                why,
                "-".to_owned(),
                "-".to_owned(),
                String::new(),
                "not judged".to_owned(),
            ];
        };
        let ours = format!("{} {}", number(row.ours.median()), row.unit);
        let other = row.compared_with().map_or_else(|| "-".to_owned(), |other| number(other.median()));
        let budget = row.budget_text().unwrap_or_default();
        let name = format!("{}: {}", row.suite, row.row);
        [self.promise.to_owned(), name, ours.trim_end().to_owned(), other, budget, Verdict::of(row).word().to_owned()]
    }
}

/// The heads of [`Line::cells`].
pub const HEADS: [&str; 6] = ["budget", "row", "ours", "beside", "asked for", "verdict"];

/// In one line: how many hold.
pub fn sum(lines: &[Line<'_>]) -> String {
    let rows = || lines.iter().filter_map(|line| line.row);
    let count = |verdict| rows().filter(|row| Verdict::of(row) == verdict).count();
    let (holds, short) = (count(Verdict::Holds), count(Verdict::Short));
    let unjudged = count(Verdict::Unjudged) + lines.iter().filter(|line| line.row.is_none()).count();
    format!("budgets: {holds} of {} hold, {unjudged} not judged", holds + short)
}

/// The rows that fall short, each with where its time goes.
pub fn short(rows: &[Row]) -> Vec<String> {
    let short = rows.iter().filter(|row| row.budget.is_some() && Verdict::of(row) == Verdict::Short);
    short.map(|row| format!("{}: {}: {}", row.suite, row.row, spends(row))).collect()
}

fn spends(row: &Row) -> String {
    row.spends.clone().unwrap_or_else(|| {
        format!("profile it: perf record -g target/release/ticktape-bench {} --rounds 1 && perf report", row.suite)
    })
}

/// The table, for people.
pub fn render(suites: &[Suite], rows: &[Row]) -> String {
    let lines = lines(suites, rows);
    let mut out = String::new();
    if lines.is_empty() {
        return out;
    }
    let cells: Vec<[String; 6]> = [HEADS.map(str::to_owned)].into_iter().chain(lines.iter().map(Line::cells)).collect();
    let widths: [usize; 6] =
        std::array::from_fn(|at| cells.iter().map(|cells| cells[at].chars().count()).max().unwrap_or(0));
    for cells in &cells {
        let padded: Vec<String> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(out, "{}", padded.join("  ").trim_end());
    }
    let _ = writeln!(out, "{}", sum(&lines));
    for line in short(rows) {
        let _ = writeln!(out, "  short: {line}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Budget;

    fn seal(ns: f64) -> Row {
        Row::lower("core", "frame: seal in place, 64 B payload", "ns", [ns].into_iter().collect())
            .budget(Budget::Value(15.0))
    }

    #[test]
    fn each_budget_of_the_suites_that_ran_has_its_line() {
        let rows = [seal(5.0), Row::lower("core", "own", "ns", [2.0].into_iter().collect()).budget(Budget::Value(1.0))];
        let lines = lines(&[Suite::Core], &rows);
        let cells: Vec<[String; 6]> = lines.iter().map(Line::cells).collect();
        assert_eq!(cells[0][0], "sealing a frame");
        assert_eq!(cells[0][2..], ["5.00 ns", "-", "<= 15 ns", "holds"].map(str::to_owned));
        assert_eq!((cells[1][0].as_str(), cells[1][5].as_str()), ("stage histograms", "not judged"));
        assert_eq!((cells[2][0].as_str(), cells[2][5].as_str()), ("(the suite's own)", "SHORT"));
        assert_eq!(sum(&lines), "budgets: 1 of 2 hold, 1 not judged");
    }

    #[test]
    fn what_falls_short_says_where_the_time_goes_or_how_to_find_out() {
        assert_eq!(short(&[seal(5.0)]), Vec::<String>::new());
        let said = short(&[seal(16.0), seal(16.0).spends("in its checksums")]);
        assert!(said[0].contains("perf record") && said[0].contains("ticktape-bench core"), "{said:?}");
        assert_eq!(said[1], "core: frame: seal in place, 64 B payload: in its checksums");
    }

    #[test]
    fn a_row_without_its_peer_is_not_judged() {
        let row = Row::lower("shm", "follower hop: p50", "ns", [1.0].into_iter().collect()).peer("other", None);
        assert_eq!(Verdict::of(&row.budget(Budget::OfPeer(0.3))), Verdict::Unjudged);
    }

    #[test]
    fn every_promise_is_its_own() {
        for (at, one) in PROMISES.iter().enumerate() {
            for other in &PROMISES[at + 1..] {
                let overlap = one.rows.iter().any(|a| other.rows.iter().any(|b| a.starts_with(b) || b.starts_with(a)));
                assert!(one.suite != other.suite || !overlap, "{} and {} judge the same row", one.what, other.what);
            }
        }
    }
}
