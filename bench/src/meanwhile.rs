//! What else the machine did while a suite ran: without it, a bad figure can't be told from a busy machine.

use std::fmt;
use std::fs;
use std::time::Instant;

/// What the kernel counts processor time in, for programs, in ms.
const TICK_MS: u64 = 10;
/// Fields of the first line of /proc/stat that are time in which something ran: user, nice, system, irq, softirq.
const BUSY_FIELDS: [usize; 5] = [0, 1, 2, 5, 6];
/// And the one that is the host's.
const STOLEN_FIELD: usize = 7;
/// Fields of /proc/self/stat, counted behind the program's name: user and system time, its own and of processes that it waited for.
const OWN_FIELDS: [usize; 4] = [11, 12, 13, 14];

/// Processor time so far, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spent {
    busy: u64,
    stolen: u64,
    own: u64,
}

impl Spent {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?, &fs::read_to_string("/proc/self/stat").ok()?)
    }

    fn parse(stat: &str, own: &str) -> Option<Self> {
        let all = stat.lines().next()?.strip_prefix("cpu ")?;
        // The program's name may hold blanks and parentheses.
        let (_, own) = own.rsplit_once(')')?;
        let field = |line: &str, at: usize| line.split_whitespace().nth(at)?.parse::<u64>().ok();
        let sum = |line: &str, fields: &[usize]| fields.iter().map(|&at| field(line, at)).sum::<Option<u64>>();
        Some(Spent {
            busy: sum(all, &BUSY_FIELDS)? * TICK_MS,
            stolen: field(all, STOLEN_FIELD)? * TICK_MS,
            own: sum(own, &OWN_FIELDS)? * TICK_MS,
        })
    }
}

/// A look at the machine's time, to be compared with a later one.
pub struct Begun {
    spent: Option<Spent>,
    at: Instant,
}

/// What happened between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Meanwhile {
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Processor time of everything but this program, the kernel's own threads included, in ms; of all cores. `None` where the kernel does
    /// not say.
    pub others_ms: Option<u64>,
    /// Processor time that the host took, in ms; of all cores.
    pub stolen_ms: Option<u64>,
}

impl Begun {
    /// Looks now.
    pub fn now() -> Self {
        Begun { spent: Spent::read(), at: Instant::now() }
    }

    /// What has happened since.
    pub fn end(&self) -> Meanwhile {
        let seconds = self.at.elapsed().as_secs_f64();
        let Some((before, after)) = self.spent.zip(Spent::read()) else {
            return Meanwhile { seconds, ..Meanwhile::default() };
        };
        let since = |of: fn(&Spent) -> u64| of(&after).saturating_sub(of(&before));
        let others_ms = Some(since(|spent| spent.busy).saturating_sub(since(|spent| spent.own)));
        Meanwhile { seconds, others_ms, stolen_ms: Some(since(|spent| spent.stolen)) }
    }
}

impl fmt::Display for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s", self.seconds)?;
        let share = |ms: u64| ms as f64 / 1e3 / self.seconds.max(1e-3);
        if let Some(others) = self.others_ms {
            write!(f, "; other programs and the kernel's threads had {:.2} cores", share(others))?;
        }
        if let Some(stolen) = self.stolen_ms {
            write!(f, ", the host took {:.2}", share(stolen))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_told_apart_by_who_had_it() {
        let stat = "cpu  10 1 20 3000 4 2 3 7 0 0\ncpu0 1 2 3\n";
        let own = "77 (a (strange) name) S 1 77 77 0 -1 4194304 100 0 0 0 5 6 1 2 20 0 1 0 100 0 0";
        assert_eq!(Spent::parse(stat, own), Some(Spent { busy: 360, stolen: 70, own: 140 }));
        assert_eq!(Spent::parse("cpu  10 1", own), None);
        assert_eq!(Spent::parse(stat, "77 (name"), None);
    }

    #[test]
    fn shares_are_of_cores() {
        let meanwhile = Meanwhile { seconds: 2.0, others_ms: Some(3_000), stolen_ms: Some(100) };
        let said = "2.0 s; other programs and the kernel's threads had 1.50 cores, the host took 0.05";
        assert_eq!(meanwhile.to_string(), said);
        assert_eq!(Meanwhile { seconds: 1.0, ..Meanwhile::default() }.to_string(), "1.0 s");
    }
}
