//! Rubbish in any file that a check goes by is no reason for it to be content.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// What no file of a box says: nothing, words, a number that is none of the kernel's, one below zero, and what is no text.
const RUBBISH: [&str; 6] =
    ["", "all is well", "99999999999999999999999", "9223372036854775807", "-7", "\u{1}\u{2}\u{7f}"];

/// What may stand in a file of which the recordings have one value only: so it is seen which checks go by it.
const VALUES: [&str; 9] = ["0", "1", "2", "6000", "0-1", "max", "on", "0 100000", "member"];

/// Files that a tuned box has not, with what they say where all is well.
const MORE: &str = "== sys/fs/cgroup/cpu.max\nmax 100000\n== sys/fs/cgroup/memory.max\nmax\n== sys/fs/cgroup/cpuset.cpus.effective\n0-31\n\
    == sys/fs/cgroup/cpuset.cpus.isolated\n4-7\n== proc/self/cgroup\n0::/\n";

/// A file of which this rubbish is a value, or says nothing to a check that is content by another file: path, check, rubbish, why.
const EXEMPT: [(&str, &str, &[&str], &str); 9] = [
    ("proc/cmdline", "kernel-audit", &RUBBISH, "any words are a command line, and auditd does not run"),
    ("proc/cpuinfo", "power-sleep", &RUBBISH, "it adds a word on the host, and the sleep states decide"),
    ("isolated", "cores-isolated", &[""], "empty is none, and another file has all of them"),
    ("nohz_full", "cores-rcu", &[""], "empty is none, and the command line has all of them"),
    ("memory.max", "limits-memory", &["9223372036854775807"], "beyond any memory is no limit"),
    ("memory.limit_in_bytes", "limits-memory", &["9223372036854775807"], "version 1 says so where there is no limit"),
    ("node1/cpulist", "cores-one-node", &RUBBISH, "a node without cores, and the plan's are on the other one"),
    ("node1/cpulist", "memory-disk-node", &RUBBISH, "as above"),
    ("node1/cpulist", "memory-nic-node", &RUBBISH, "as above"),
];

/// The texts of a recording, by path.
fn texts(recording: &Recording) -> BTreeMap<String, String> {
    let text = recording.to_string();
    let entries = text.split("== ").skip(1).filter_map(|entry| {
        let (head, text) = entry.split_once('\n').unwrap_or((entry, ""));
        let is_text = !head.ends_with('/') && !head.contains(" !") && !head.contains(" -> ") && !head.contains('{');
        is_text.then(|| (head.to_owned(), text.to_owned()))
    });
    entries.collect()
}

type Findings = BTreeMap<&'static str, (Verdict, String)>;

fn findings(recording: Recording, plan: &Plan) -> Findings {
    let root = Root::recorded(recording);
    let facts = plan.look(&root);
    let outcomes = examine(&facts, plan).outcomes().to_vec();
    outcomes.into_iter().map(|outcome| (outcome.check.id, (outcome.finding.verdict, outcome.finding.read))).collect()
}

/// One file of each kind will do: of the cores the plan's first alone.
fn is_taken(path: &str, plan: &Plan) -> bool {
    let core = path.strip_prefix("sys/devices/system/cpu/cpu").and_then(|rest| rest.split_once('/')?.0.parse().ok());
    core.is_none_or(|core: usize| plan.critical.first() == Some(&core))
}

#[test]
fn no_check_is_content_for_what_it_can_not_read() {
    let others: Vec<Recording> = OTHERS
        .iter()
        .copied()
        .chain(MISTAKES.iter().map(|(.., change)| *change))
        .map(|change| change.parse().unwrap())
        .collect();
    let recorded = boxes().map(|(name, plan)| (name, fixture(name), plan));
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for recording in others.iter().chain(recorded.iter().map(|(_, recording, _)| recording)) {
        for (path, text) in texts(recording) {
            known.entry(path).or_default().insert(text);
        }
    }
    let (mut content, mut pairs, mut exempted) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for (name, recording, plan) in recorded.into_iter().filter(|(name, ..)| matches!(*name, "intel-tuned" | "guest")) {
        let recording = if name == "intel-tuned" { recording.with(&MORE.parse().unwrap()) } else { recording };
        let looked_at = Root::recorded(recording.clone());
        plan.look(&looked_at);
        let base = findings(recording.clone(), &plan);
        for path in texts(&looked_at.seen()).into_keys().filter(|path| is_taken(path, &plan)) {
            let with =
                |text: &str| findings(recording.clone().with(&format!("== {path}\n{text}\n").parse().unwrap()), &plan);
            let told = known.get(&path).into_iter().flatten().map(String::as_str).chain(VALUES);
            let mut goes_by: BTreeSet<&str> = BTreeSet::new();
            for text in told {
                goes_by.extend(with(text).into_iter().filter(|(id, found)| base[id] != *found).map(|(id, _)| id));
            }
            for rubbish in RUBBISH {
                let found = with(rubbish);
                for id in &goes_by {
                    // A container may have no thread that is pinned, and shows none of the kernel's.
                    let has_none = rubbish.is_empty() && path.ends_with("threads.txt");
                    pairs.insert((path.clone(), *id));
                    if found[id].0 != Verdict::Ok || has_none {
                        continue;
                    }
                    let exemption = EXEMPT
                        .iter()
                        .find(|(file, check, of, _)| path.ends_with(file) && id == check && of.contains(&rubbish));
                    match exemption {
                        Some((file, check, ..)) => _ = exempted.insert((*file, *check, rubbish)),
                        None => content.push(format!("{name} {id} {path} {rubbish:?}: {}", found[id].1)),
                    }
                }
            }
        }
    }
    assert!(pairs.len() > 100, "{}", pairs.len());
    assert!(content.is_empty(), "{} of {}:\n{}", content.len(), pairs.len(), content.join("\n"));
    let all = EXEMPT.iter().flat_map(|&(file, check, of, _)| of.iter().map(move |&rubbish| (file, check, rubbish)));
    let needless: Vec<_> = all.filter(|exemption| !exempted.contains(exemption)).collect();
    assert!(needless.is_empty(), "no check needs these: {needless:?}");
}
