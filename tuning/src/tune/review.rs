//! What needs a reboot, a service manager or a person, as files to review. They are the profiles of `tuning/profiles/`, with this box's
//! cores and devices in them, and only those paragraphs that a check asks for.
//!
//! A paragraph of a profile ends its comment with the checks that ask for it, in parentheses. One without is always there.

use std::path::Path;

use super::changes::{Selection, others};
use crate::doctor::network::feeds;
use crate::doctor::{Plan, Report, Verdict, checks};
use crate::facts::Facts;
use crate::facts::cpu_list::{sorted, union, without};
use crate::pin;

/// The profiles, by the names of the files that come of them.
pub const PROFILES: [(&str, &str); 7] = [
    ("90-ticktape.sysctl.conf", include_str!("../../profiles/sysctl.conf")),
    ("90-ticktape.grub.cfg", include_str!("../../profiles/cmdline.cfg")),
    ("ethtool.sh", include_str!("../../profiles/ethtool.sh")),
    ("60-ticktape.rules", include_str!("../../profiles/60-ticktape.rules")),
    ("ticktape.service", include_str!("../../profiles/ticktape.service")),
    ("ticktape.service.d/cores.conf", include_str!("../../profiles/ticktape-cores.conf")),
    ("ticktape-tune.service", include_str!("../../profiles/ticktape-tune.service")),
];

/// What an appliance with AF_XDP needs, and one without.
const CAPABILITIES_XDP: &str = "CAP_NET_RAW CAP_NET_ADMIN CAP_BPF CAP_PERFMON CAP_SYS_NICE CAP_IPC_LOCK";
const CAPABILITIES: &str = "CAP_SYS_NICE CAP_IPC_LOCK";

/// Ports from here on anybody may listen at, unless the box says otherwise.
const PORT_UNPRIVILEGED: u16 = 1_024;

/// A receive ring that takes a burst, where the card has as much.
const RX_RING: u64 = 1_024;

const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// A file to review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewFile {
    /// Its name, below the directory that it goes to.
    pub name: &'static str,
    /// Its text.
    pub text: String,
}

/// What is reviewed, and for whom.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The box.
    pub facts: &'a Facts,
    /// The plan.
    pub plan: &'a Plan,
    /// What the checks found.
    pub report: &'a Report,
    /// The checks that may ask for something.
    pub selection: &'a Selection,
    /// Checks that an apply has answered already: what they ask for is still to outlive a reboot.
    pub answered: &'a [String],
    /// The program that units run.
    pub program: &'a str,
    /// The appliance's file.
    pub config: &'a str,
    /// Where the names in that file that are not absolute begin.
    pub working_directory: &'a str,
}

/// The files, but for those in which nothing would stand.
pub fn files(subject: &Subject<'_>) -> Vec<ReviewFile> {
    let values = values(subject);
    let file = |(name, profile): (&'static str, &str)| {
        let paragraphs: Vec<(bool, String)> =
            profile.split("\n\n").filter_map(|text| paragraph(subject, &values, text)).collect();
        // Where nobody asks for anything, the head alone is no file. Units are made of paragraphs for everybody.
        let says_something = paragraphs.iter().any(|(is_asked, _)| *is_asked)
            || !profile.split("\n\n").any(|text| !asked_by(text).is_empty());
        let text = paragraphs.iter().map(|(_, text)| text.trim_end()).collect::<Vec<_>>().join("\n\n");
        says_something.then(|| ReviewFile { name, text: format!("{text}\n") })
    };
    PROFILES.into_iter().filter_map(file).collect()
}

/// A paragraph with its values, if it belongs there; and whether a check asks for it, or the plan does.
fn paragraph(subject: &Subject<'_>, values: &[(&str, Option<String>)], text: &str) -> Option<(bool, String)> {
    let checks = asked_by(text);
    let is_wrong = |id: &&str| {
        let mut outcomes = subject.report.outcomes().iter();
        outcomes.any(|outcome| outcome.check.id == *id && outcome.finding.verdict >= Verdict::Warn)
            || subject.answered.iter().any(|answered| answered == id)
    };
    if !checks.is_empty() && !checks.iter().any(|id| subject.selection.has(id) && is_wrong(id)) {
        return None;
    }
    let mut filled = each_feed(subject, text)?;
    let mut is_own = !checks.is_empty();
    for (name, value) in values {
        if filled.contains(name) {
            filled = filled.replace(name, value.as_deref()?);
            is_own = true;
        }
    }
    Some((is_own, filled))
}

/// The text with its lines about a feed's interface once for each; `None` where there are such lines and no such interface.
fn each_feed(subject: &Subject<'_>, text: &str) -> Option<String> {
    const NAME: &str = "@FEED_INTERFACE@";
    if !text.contains(NAME) {
        return Some(text.to_owned());
    }
    let names: Vec<&str> = feeds(subject.facts, subject.plan).iter().map(|feed| feed.name.as_str()).collect();
    let lines = text.lines().flat_map(|line| {
        let times = if line.contains(NAME) { &names[..] } else { &[""] };
        times.iter().map(move |name| line.replace(NAME, name))
    });
    (!names.is_empty()).then(|| lines.collect::<Vec<_>>().join("\n"))
}

/// The checks in the parentheses that end a paragraph's comment.
pub(super) fn asked_by(paragraph: &str) -> Vec<&'static str> {
    let comment = paragraph.lines().take_while(|line| line.starts_with('#')).last().unwrap_or_default();
    let Some((_, names)) = comment.strip_suffix(')').and_then(|line| line.rsplit_once('(')) else { return Vec::new() };
    let check = |name: &str| checks().find(|check| check.id == name.trim()).map(|check| check.id);
    names.split(',').map(check).collect::<Option<_>>().unwrap_or_default()
}

/// A path as a unit takes it: one word, in which nothing stands for something else.
fn quoted(path: &str) -> String {
    let path = path.replace('%', "%%");
    let is_plain = !path.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | ';'));
    if is_plain { path } else { format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\"")) }
}

/// Where the appliance writes: its journal, its ring and its metrics in shared memory, and what it captures.
fn written(plan: &Plan) -> String {
    let shm = Path::new("/dev/shm");
    let others = [plan.ring_dir.as_deref(), plan.capture_dir.as_deref()].into_iter().flatten();
    let mut paths = vec![&*plan.directory, shm];
    for path in others.filter(|path| ![&*plan.directory, shm].contains(path)) {
        paths.push(path);
    }
    paths.into_iter().map(|path| quoted(&path.display().to_string())).collect::<Vec<_>>().join(" ")
}

/// What stands for the names in profiles; `None` where this box or this plan has none.
fn values(subject: &Subject<'_>) -> Vec<(&'static str, Option<String>)> {
    let Subject { facts, plan, .. } = subject;
    let others = others(facts, plan);
    let list = |cores: &[usize]| (!cores.is_empty()).then(|| pin::list(&sorted(cores.to_vec())));
    // Cores that are kept from everybody: only where somebody has others.
    let online = facts.cores.online.as_deref().unwrap_or_default();
    let kept = |cores: &[usize]| list(cores).filter(|_| !without(online, cores).is_empty());
    let isolated = union(&plan.spinning, facts.cores.isolated.as_deref().unwrap_or_default());
    let pages = plan.umem_bytes.div_ceil(HUGE_PAGE_BYTES);
    // Never fewer than there are: others may want them, too.
    let pages = facts.memory.huge_pages.as_ref().map_or(pages, |(free, all)| (*all).max(all - free.min(all) + pages));
    let ring = facts.network.as_ref().and_then(|network| network.rx_ring().ok());
    let capabilities = if plan.bypass_queue.is_some() { CAPABILITIES_XDP } else { CAPABILITIES };
    // Port 0 is whichever is free.
    let low_port = if (1..PORT_UNPRIVILEGED).contains(&plan.port) { " CAP_NET_BIND_SERVICE" } else { "" };
    vec![
        ("@SPINNING_CORES@", kept(&plan.spinning)),
        ("@ISOLATED_CORES@", kept(&isolated).filter(|_| !plan.spinning.is_empty())),
        ("@OTHER_CORES@", list(&others)),
        ("@ALL_CORES@", list(&union(&plan.critical, &others))),
        ("@INTERFACE@", plan.interface.clone()),
        ("@QUEUE@", plan.bypass_queue.map(|queue| queue.to_string())),
        ("@RX_RING@", ring.map(|(max, _)| max.min(RX_RING).to_string())),
        ("@DISK@", facts.disk.name.clone().ok()),
        ("@HOLD_US@", plan.runtime.hold_cpu_latency_us.map(|us| us.to_string())),
        ("@HUGE_PAGES@", Some(pages.to_string())),
        ("@SOCKET_BUFFER_BYTES@", Some(plan.socket_buffer_bytes.to_string())),
        ("@CAPABILITIES@", Some(format!("{capabilities}{low_port}"))),
        ("@DIRECTORY@", Some(quoted(&plan.directory.display().to_string()))),
        ("@WRITTEN@", Some(written(plan))),
        // The one setting that takes all of its line for a path.
        ("@WORKING_DIRECTORY@", Some(subject.working_directory.replace('%', "%%"))),
        ("@PROGRAM@", Some(quoted(subject.program))),
        // Among a program's arguments variables are looked for.
        ("@CONFIG@", Some(quoted(subject.config).replace('$', "$$"))),
    ]
}
