//! What the kernel, the host and the firmware count of one core, and of the thread that looks at it.

use std::collections::BTreeMap;

use crate::facts::{cpu_list, value};
use crate::root::{Root, Unread};

/// The words for what is not an interrupt of some name.
const TAKEN_OFF: &str = "the thread was taken off the core";
const SLEPT: &str = "the thread slept";
const STOLEN: &str = "ms that the host ran something else";
const FIRMWARE: &str = "system management interrupts (firmware)";

/// What every core has all the time, and what follows from it: the tick, and the work that it hands on.
const ANYWAY: [&str; 5] = ["interrupt LOC:", "softirq TIMER", "softirq RCU", "softirq SCHED", "softirq HRTIMER"];

/// How far down it stands among what came.
fn rank(what: &str) -> u8 {
    match what {
        TAKEN_OFF | STOLEN | FIRMWARE => 0,
        SLEPT => 1,
        what if ANYWAY.iter().any(|anyway| what.starts_with(anyway)) => 3,
        _ => 2,
    }
}

/// What came, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// In words, with the kernel's own name.
    pub what: String,
    /// How often; milliseconds where `what` says so.
    pub count: u64,
}

/// All counters at one moment. Reading them takes some tenths of a millisecond, more on a large box.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    counts: BTreeMap<String, u64>,
    unread: Vec<Unread>,
}

impl Counts {
    /// Reads those of `core`, and of the calling thread.
    pub fn read(root: &Root, core: usize) -> Counts {
        let mut all = Counts::default();
        all.add(of_columns(root, "proc/interrupts", "interrupt", core));
        all.add(of_columns(root, "proc/softirqs", "softirq", core));
        all.add(switches(root));
        all.add(stolen(root, core));
        let firmware = root.firmware_interrupts(core).and_then(|text| {
            let count = text.parse().map_err(|_| Unread::malformed("dev/cpu", "the count is no number"))?;
            Ok(vec![(FIRMWARE.to_owned(), count)])
        });
        all.add(firmware);
        all
    }

    /// Counters by name, as a test has them.
    #[cfg(test)]
    pub(super) fn of(counts: &[(&str, u64)]) -> Counts {
        let counts = counts.iter().map(|&(what, count)| (what.to_owned(), count)).collect();
        Counts { counts, unread: Vec::new() }
    }

    /// What could not be read, and why.
    pub fn unread(&self) -> &[Unread] {
        &self.unread
    }

    /// What has come since `earlier`: what keeps a thread off its core first, what comes anyway last, and in each the most frequent first. A counter that went back is of another boot, or wrapped: it tells nothing.
    pub fn since(&self, earlier: &Counts) -> Vec<Cause> {
        let came = |(what, &count): (&String, &u64)| {
            // An interrupt that nobody had before has its line only now.
            let count = count.saturating_sub(earlier.counts.get(what).copied().unwrap_or(0));
            (count > 0).then(|| Cause { what: what.clone(), count })
        };
        let mut causes: Vec<Cause> = self.counts.iter().filter_map(came).collect();
        causes.sort_by_key(|cause| (rank(&cause.what), std::cmp::Reverse(cause.count)));
        causes
    }

    fn add(&mut self, found: Result<Vec<(String, u64)>, Unread>) {
        match found {
            Ok(found) => self.counts.extend(found),
            Err(unread) => self.unread.push(unread),
        }
    }
}

/// The column of `core` in a file whose first line names the cores, as `/proc/interrupts`.
fn of_columns(root: &Root, path: &str, kind: &str, core: usize) -> Result<Vec<(String, u64)>, Unread> {
    let text = root.text(path)?;
    let mut lines = text.lines();
    let mut head = lines.next().unwrap_or_default().split_whitespace();
    let name = format!("CPU{core}");
    let column = head.position(|word| word == name).filter(|column| *column < cpu_list::CORES_MAX);
    let column = column.ok_or_else(|| Unread::malformed(path, format!("its first line does not name {name}")))?;
    // What stands behind the counts of all cores is the name.
    let columns = column + 1 + head.count();
    let row = |line: &str| {
        let (short, rest) = line.split_once(':')?;
        let count = rest.split_whitespace().nth(column)?.parse().ok()?;
        let long = rest.split_whitespace().skip(columns).collect::<Vec<_>>().join(" ");
        let short = short.trim();
        Some((if long.is_empty() { format!("{kind} {short}") } else { format!("{kind} {short}: {long}") }, count))
    };
    // Rows of one count are of the whole box: errors.
    Ok(lines.filter(|line| line.split_whitespace().count() > 2 || columns == 1).filter_map(row).collect())
}

/// How often the calling thread lost its core, and gave it up.
fn switches(root: &Root) -> Result<Vec<(String, u64)>, Unread> {
    let path = "proc/thread-self/status";
    let text = root.text(path)?;
    let count = |key: &str, what: &str| {
        let count = value(&text, key).and_then(|count| count.parse().ok());
        count.map(|count| (what.to_owned(), count)).ok_or_else(|| Unread::malformed(path, format!("no {key} in it")))
    };
    Ok(vec![count("nonvoluntary_ctxt_switches", TAKEN_OFF)?, count("voluntary_ctxt_switches", SLEPT)?])
}

fn stolen(root: &Root, core: usize) -> Result<Vec<(String, u64)>, Unread> {
    let text = root.text("proc/stat")?;
    let stolen = super::stolen(&text, Some(core));
    let stolen = stolen.ok_or_else(|| Unread::malformed("proc/stat", format!("no stolen time of cpu{core} in it")))?;
    Ok(vec![(STOLEN.to_owned(), stolen)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::root::Recording;

    const BOX: &str = "\
== proc/interrupts
           CPU0       CPU2
 24:          1          7  IO-APIC   5-edge      virtio1-req.0
LOC:        100        200   Local timer interrupts
ERR:          9
== proc/softirqs
                    CPU0       CPU2
          HI:          0          3
       TIMER:         11         22
== proc/stat
cpu  1 2 3 4 5 6 7 8 9 10
cpu2 1 2 3 4 5 6 7 8 9 10
== proc/thread-self/status
Name:\tx
voluntary_ctxt_switches:\t4
nonvoluntary_ctxt_switches:\t5
";

    fn counts(text: &str, core: usize) -> Counts {
        Counts::read(&Root::recorded(text.parse().unwrap()), core)
    }

    fn cause(what: &str, count: u64) -> Cause {
        Cause { what: what.to_owned(), count }
    }

    #[test]
    fn what_has_come_between_two_moments_is_told_and_what_explains_a_gap_first() {
        let before = counts(BOX, 2);
        let later = BOX
            .replace("7  IO-APIC", "9  IO-APIC")
            .replace("200   Local", "450   Local")
            .replace("TIMER:         11         22", "TIMER:         99         22")
            .replace("nonvoluntary_ctxt_switches:\t5", "nonvoluntary_ctxt_switches:\t8")
            .replace("cpu2 1 2 3 4 5 6 7 8", "cpu2 1 2 3 4 5 6 7 9");
        let expected = [
            cause(STOLEN, 10),
            cause(TAKEN_OFF, 3),
            cause("interrupt 24: IO-APIC 5-edge virtio1-req.0", 2),
            cause("interrupt LOC: Local timer interrupts", 250),
        ];
        assert_eq!(counts(&later, 2).since(&before), expected);
        assert_eq!(before.since(&counts(&later, 2)), [], "counters that went back");
        // The firmware's count is in no file of this box.
        assert_eq!(before.unread().len(), 1, "{before:?}");
    }

    #[test]
    fn an_interrupt_that_came_for_the_first_time_is_told() {
        let later = BOX.replace("LOC:", " 25:  0  6  PCI-MSIX  nvme0q1\nLOC:");
        let came = counts(&later, 2).since(&counts(BOX, 2));
        assert_eq!(came, [cause("interrupt 25: PCI-MSIX nvme0q1", 6)]);
    }

    #[test]
    fn what_firmware_took_is_told_where_it_can_be_read() {
        let [before, later] = [5, 7].map(|n| counts(&format!("{BOX}== ticktape/firmware-interrupts-2.txt\n{n}\n"), 2));
        assert_eq!((later.since(&before), later.unread()), (vec![cause(FIRMWARE, 2)], &[][..]));
    }

    #[test]
    fn what_can_not_be_read_is_named_and_the_rest_is_there() {
        let gone = counts(BOX, 1);
        let said: Vec<String> = gone.unread().iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 4, "{said:?}");
        assert!(said[0].contains("does not name CPU1") && said[2].contains("cpu1"), "{said:?}");
        assert_eq!(Counts::read(&Root::recorded(Recording::default()), 0).unread().len(), 5);
    }

    proptest! {
        #[test]
        fn garbage_is_left_out(text in "[ -~\n:CPU0-9]{0,200}", core in 0..4_usize) {
            let files = ["interrupts", "softirqs", "stat", "thread-self/status"];
            let line = text.replace("==", "=");
            let all: String = files.iter().map(|file| format!("== proc/{file}\n{line}\n")).collect();
            if let Ok(recording) = all.parse::<Recording>() {
                let counts = Counts::read(&Root::recorded(recording), core);
                prop_assert_eq!(counts.since(&counts), []);
            }
        }
    }
}
