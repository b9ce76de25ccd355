//! Results as a document: what was measured, where, by which command, and what else the machine did meanwhile.

use std::fmt::Write as _;

use crate::budgets::{self, HEADS, Line};
use crate::header::Header;
use crate::latency::QUANTILES;
use crate::meanwhile::Meanwhile;
use crate::row::Row;
use crate::suites::{Outcome, Suite};
use crate::table::{cells, number};

/// What one suite came to.
#[derive(Debug)]
pub struct Section {
    /// Which.
    pub suite: Suite,
    /// Its tables.
    pub outcome: Outcome,
    /// How long it took, and what else ran.
    pub meanwhile: Meanwhile,
}

/// What runs this program, built as it is here, before its own arguments.
pub fn cargo_run() -> String {
    let asked_for = [("iceoryx2", cfg!(feature = "iceoryx2")), ("mimalloc", cfg!(feature = "mimalloc"))];
    let features: Vec<&str> = asked_for.into_iter().filter_map(|(name, has)| has.then_some(name)).collect();
    let features = if features.is_empty() { String::new() } else { format!(" --features {}", features.join(",")) };
    format!("cargo run --release -p ticktape-bench{features} -- ")
}

/// The document. `command` is what was asked of the program, `options` those of its options that each suite has to be given, too.
pub fn document(header: &Header, command: &str, options: &str, sections: &[Section]) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "# Measured\n\nWritten by `{command}`; edits are lost.\n");
    for line in header.to_string().lines() {
        let _ = writeln!(out, "- {}", escape(line));
    }
    let seconds: f64 = sections.iter().map(|section| section.meanwhile.seconds).sum();
    let _ =
        writeln!(out, "- all of it took {seconds:.0} s; beside each suite stands what else had the cores meanwhile\n");
    let _ = writeln!(
        out,
        "`ours`, `floor` and `peer` are medians over interleaved rounds, `worst` is our worst round, `ratio` is the median of the rounds' own \
         ratios; `hop` is what a cache line took between the two cores.\n"
    );
    budget_table(&mut out, sections);
    for section in sections {
        suite(&mut out, section, options);
    }
    out
}

fn budget_table(out: &mut String, sections: &[Section]) {
    let suites: Vec<Suite> = sections.iter().map(|section| section.suite).collect();
    let rows: Vec<Row> = sections.iter().flat_map(|section| section.outcome.rows.iter().cloned()).collect();
    let lines = budgets::lines(&suites, &rows);
    let _ = writeln!(out, "## Budgets\n\n{}.\n", budgets::sum(&lines));
    table(out, &HEADS, lines.iter().map(Line::cells));
    for line in budgets::short(&rows) {
        let _ = writeln!(out, "- short: {}", escape(&line));
    }
    out.push('\n');
}

fn suite(out: &mut String, section: &Section, options: &str) {
    let Section { suite, outcome, meanwhile } = section;
    let name = suite.name();
    let command = format!("{}{name}{options}", cargo_run());
    let _ = writeln!(out, "## {name}\n\n`{command}` ({meanwhile})\n");
    let heads = ["row", "ours", "worst", "floor", "peer", "unit", "ratio", "budget", "holds", "hop"];
    table(out, &heads, outcome.rows.iter().map(cells));
    if !outcome.percentiles.is_empty() {
        let quantiles = QUANTILES.iter().map(|&(name, _)| name);
        let heads: Vec<&str> =
            ["ns, all rounds", "whose", "mean"].into_iter().chain(quantiles).chain(["max"]).collect();
        let values = outcome.percentiles.iter().map(|all| {
            let numbers = [all.mean].into_iter().chain(all.quantiles).chain([all.max]).map(number);
            [all.row.clone(), all.whose.clone()].into_iter().chain(numbers).collect::<Vec<String>>()
        });
        table(out, &heads, values);
    }
    for note in &outcome.notes {
        let _ = writeln!(out, "- {}", escape(note));
    }
    out.push('\n');
}

fn table<C: AsRef<[String]>>(out: &mut String, heads: &[&str], rows: impl Iterator<Item = C>) {
    let line = |cells: &mut dyn Iterator<Item = String>| format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
    out.push_str(&line(&mut heads.iter().map(|head| (*head).to_owned())));
    out.push_str(&line(&mut heads.iter().map(|_| "---".to_owned())));
    for row in rows {
        out.push_str(&line(&mut row.as_ref().iter().map(|cell| escape(cell))));
    }
    out.push('\n');
}

/// What would be markup.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*").replace('_', "\\_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Budget;

    fn section() -> Section {
        let row = Row::lower("core", "frame: seal in place | 64 B", "ns", [16.0].into_iter().collect());
        let outcome = Outcome {
            rows: vec![row.floor([8.0].into_iter().collect()).budget(Budget::Value(15.0)).spends("in a_b")],
            notes: vec!["a <note>".to_owned()],
            ..Outcome::default()
        };
        Section { suite: Suite::Core, outcome, meanwhile: Meanwhile { seconds: 1.5, ..Meanwhile::default() } }
    }

    #[test]
    fn a_suite_has_its_command_its_rows_and_its_notes() {
        let mut out = String::new();
        suite(&mut out, &section(), " --rounds 3");
        assert!(out.contains(&format!("`{}core --rounds 3` (1.5 s)", cargo_run())), "{out}");
        let row = "| frame: seal in place \\| 64 B | 16.00 | 16.00 | 8.00 | - | ns | 2.00 | &lt;= 15 ns | SHORT |  |";
        assert!(out.contains(row), "{out}");
        assert!(out.contains("- a &lt;note>\n"), "{out}");
    }

    #[test]
    fn every_table_has_as_many_cells_in_each_line() {
        let mut out = String::new();
        budget_table(&mut out, &[section()]);
        suite(&mut out, &section(), "");
        let cells = |line: &str| line.replace("\\|", "").matches('|').count();
        let tables: Vec<&str> = out.lines().filter(|line| line.starts_with('|')).collect();
        assert!(tables.len() >= 7, "{out}");
        for pair in
            out.lines().collect::<Vec<_>>().windows(2).filter(|pair| pair.iter().all(|line| line.starts_with('|')))
        {
            assert_eq!(cells(pair[0]), cells(pair[1]), "{pair:?}");
        }
        assert!(out.contains("- short: core: frame: seal in place \\| 64 B: in a\\_b\n"), "{out}");
    }
}
