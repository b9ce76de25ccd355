//! Two runs side by side.

use super::report::{CoreReport, Report};
use crate::Failure;
use crate::demo::COLUMNS;
use crate::hdr::Latency;
use crate::out::{plain, say};

/// Prints the cores that both have.
pub fn print(earlier: &Report, now: &Report) -> Result<(), Failure> {
    say!("\nbeside an earlier run: {}, {}", plain(&earlier.hostname), plain(&earlier.kernel))?;
    for difference in differences(earlier, now) {
        say!("differs        {}", plain(&difference))?;
    }
    for core in &now.cores {
        let Some(before) = earlier.cores.iter().find(|before| before.core == core.core) else {
            say!("core {}: not in the earlier run", core.core)?;
            continue;
        };
        say!("\ncore {}, µs {COLUMNS}", core.core)?;
        for ([then, now], before, after) in rows(before, core)? {
            say!("{}", crate::demo::row(&format!("{then} then"), &before))?;
            say!("{}", crate::demo::row(&format!("{now} now"), &after))?;
            say!("{}", ratios(&before, &after))?;
        }
        if core.gaps.is_some() && before.gaps.is_some() {
            let [then, now] = [before, core].map(|core| core.lost_ppm);
            say!("lost           {then:.1} ppm then, {now:.1} ppm now: {} times", ratio(then, now))?;
        }
    }
    Ok(())
}

/// What makes the two runs hard to compare.
fn differences(earlier: &Report, now: &Report) -> Vec<String> {
    let both = [
        ("processor", earlier.cpu_model.clone(), now.cpu_model.clone()),
        ("way", earlier.way(), now.way()),
        ("cores", order(earlier), order(now)),
        ("seconds", earlier.seconds.to_string(), now.seconds.to_string()),
    ];
    let different = both.into_iter().filter(|(_, then, now)| then != now);
    different.map(|(what, then, now)| format!("{what}: {then} then, {now} now")).collect()
}

/// How then and now are called, and both.
type Row = ([&'static str; 2], Latency, Latency);

/// Of one core there is no order.
fn order(report: &Report) -> String {
    match report.cores.len() {
        ..2 => "one",
        _ if report.together => "several at the same time",
        _ => "several one after the other",
    }
    .to_owned()
}

/// What stands for waiting: of a thread that spins, and of one that sleeps.
fn waits(core: &CoreReport) -> &'static str {
    if core.gaps.is_some() { "waits" } else { "late" }
}

/// Percentiles of both, from their histograms: those in a file are for people and scripts.
fn rows(before: &CoreReport, after: &CoreReport) -> Result<Vec<Row>, Failure> {
    let of = |core: &CoreReport| core.histograms().map_err(Failure::failed);
    let ((waits_before, gaps_before), (waits_after, gaps_after)) = (of(before)?, of(after)?);
    let gaps = gaps_before.zip(gaps_after).map(|(before, after)| (["gaps"; 2], before, after));
    let waits = Some(([before, after].map(waits), waits_before, waits_after));
    let both = gaps.into_iter().chain(waits);
    Ok(both.map(|(name, before, after)| (name, Latency::of(&before), Latency::of(&after))).collect())
}

fn ratios(before: &Latency, after: &Latency) -> String {
    let values = |of: &Latency| [of.p50_ns, of.p90_ns, of.p99_ns, of.p999_ns, of.p9999_ns, of.max_ns, of.count];
    let ratios = values(before).into_iter().zip(values(after));
    let ratios = ratios.map(|(before, after)| format!("{:>10}", ratio(before as f64, after as f64)));
    format!("{:11}{}", "  times", ratios.collect::<String>())
}

fn ratio(before: f64, after: f64) -> String {
    if before > 0.0 { format!("{:.2}", after / before) } else { "-".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_now_to_then() {
        let before = Latency { p50_ns: 10, p90_ns: 20, max_ns: 0, count: 4, ..Latency::default() };
        let after = Latency { p50_ns: 5, p90_ns: 50, max_ns: 7, count: 4, ..Latency::default() };
        let line = ratios(&before, &after);
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["times", "0.50", "2.50", "-", "-", "-", "-", "1.00"]);
    }
}
