//! A core, for people.

use super::report::{Came, CoreReport};
use crate::Failure;
use crate::demo::{COLUMNS, row};
use crate::out::say;

/// Interruptions that are printed; the file has more.
const LONGEST_MAX: usize = 10;
/// Causes that are printed of one, and of all.
const CAUSES_MAX: usize = 4;
const TOTALS_MAX: usize = 8;

/// Prints it.
pub fn print(core: &CoreReport) -> Result<(), Failure> {
    let seconds = core.watched_ns as f64 / 1e9;
    let a_second = |count: u64| count as f64 / seconds.max(1e-9);
    say!("\ncore {}", core.core)?;
    say!("µs         {COLUMNS}")?;
    if let Some(gaps) = &core.gaps {
        say!("{}", row("gaps", gaps))?;
        say!("{}", row("waits", &core.waits))?;
        say!(
            "lost           {:.1} ppm of the time, in {:.1} gaps a second; a round of the loop takes {} ns",
            core.lost_ppm,
            a_second(gaps.count),
            core.step_ns
        )?;
    } else {
        say!("{}", row("late", &core.waits))?;
        say!("woken          {} times; {} times had passed by then", core.readings, core.missed)?;
    }
    let looking = core.looking_ns as f64 / 1e6;
    say!("watched        {seconds:.3} s, beside {looking:.3} ms in which counters were read")?;
    say!("came           {}", words(&core.came, TOTALS_MAX))?;
    for (at, longest) in core.longest.iter().take(LONGEST_MAX).enumerate() {
        let why = longest.came.as_ref().zip(longest.came_over_ns).map_or_else(String::new, |(came, over_ns)| {
            format!("; in the {:.3} ms up to its end: {}", over_ns as f64 / 1e6, words(came, CAUSES_MAX))
        });
        say!(
            "{:14} {:.1} µs at {:.6} s, {}{why}",
            if at == 0 { "longest" } else { "" },
            longest.length_ns as f64 / 1e3,
            longest.at_ns as f64 / 1e9,
            date(longest.unix_ns)
        )?;
    }
    for unread in &core.not_counted {
        say!("not counted    {unread}")?;
    }
    Ok(())
}

fn words(came: &[Came], most: usize) -> String {
    if came.is_empty() {
        return "nothing that is counted".to_owned();
    }
    let mut words: Vec<String> = came.iter().take(most).map(|Came { what, count }| format!("{count} {what}")).collect();
    if came.len() > most {
        words.push(format!("{} more", came.len() - most));
    }
    words.join("; ")
}

/// Nanoseconds since the Unix epoch as a date and a time in UTC, to the microsecond.
fn date(unix_ns: u64) -> String {
    let (seconds, micros) = (unix_ns / 1_000_000_000, unix_ns / 1_000 % 1_000_000);
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z", month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_dates() {
        for (unix_ns, expected) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_001_999, "2000-02-29T00:00:00.000001Z"),
            (1_767_225_599_999_999_999, "2025-12-31T23:59:59.999999Z"),
            (u64::MAX, "2554-07-21T23:34:33.709551Z"),
        ] {
            assert_eq!(date(unix_ns), expected);
        }
    }

    #[test]
    fn the_most_frequent_are_named_and_the_rest_counted() {
        let came = |n: u64| (0..n).map(|n| Came { what: format!("x{n}"), count: 9 - n }).collect::<Vec<_>>();
        assert_eq!(words(&came(0), 2), "nothing that is counted");
        assert_eq!(words(&came(2), 2), "9 x0; 8 x1");
        assert_eq!(words(&came(5), 2), "9 x0; 8 x1; 3 more");
    }
}
