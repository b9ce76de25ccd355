//! The recorded boxes: what would be changed there, and which cores they offer.

use std::io::Write;
use std::process::Command;

use super::super::changes::{Selection, propose};
use super::super::cores::choose;
use super::super::review::{PROFILES, ReviewFile, Subject, asked_by, files};
use super::*;
use crate::doctor::tests::{MISTAKES, OTHERS, boxes, fixture, plan};
use crate::doctor::{Plan, Report, Verdict, examine};
use crate::facts::Facts;
use crate::facts::cpu_list::{common, without};
use crate::root::{Recording, Root};

fn looked_at(recording: &Recording, plan: &Plan) -> (Root, Facts, Report) {
    let root = Root::recorded(recording.clone());
    let facts = plan.look(&root);
    let report = examine(&facts, plan);
    (root, facts, report)
}

fn proposed(recording: &Recording, plan: &Plan, selection: &Selection) -> Vec<Change> {
    let (root, facts, report) = looked_at(recording, plan);
    propose(&root, &facts, plan, &report, selection).changes
}

/// A tuned box with mistakes in it, one at a time, and all boxes that there are.
fn cases() -> Vec<(Recording, Plan)> {
    let tuned = fixture("intel-tuned");
    let changes = OTHERS.iter().copied().chain(MISTAKES.iter().map(|(.., change)| *change));
    let mistaken = changes.map(|change| (tuned.clone().with(&change.parse().unwrap()), plan()));
    let recorded = boxes().map(|(name, plan)| (fixture(name), plan));
    let waiting = Plan { spinning: Vec::new(), ..plan() };
    let asleep = (fixture("intel-untuned"), waiting);
    let never = "== sys/kernel/mm/transparent_hugepage/enabled\nalways madvise [never]\n".parse().unwrap();
    let alone = (fixture("intel-tuned").with(&never), Plan { ring_dir: None, ..plan() });
    mistaken.chain(recorded).chain([asleep, alone]).collect()
}

/// What each box would have changed, to be compared with what is kept beside it.
#[test]
fn each_box_has_its_changes() {
    for (name, plan) in boxes() {
        let line = |change: &Change| {
            let old = change.old.escape_ascii();
            format!("{:24} {} \"{old}\" => {}\n", change.check, change.path, change.new)
        };
        let found: String = proposed(&fixture(name), &plan, &Selection::default()).iter().map(line).collect();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/{name}.changes"));
        if env_writes_golden() {
            fs::write(&path, &found).unwrap();
        }
        assert_eq!(found, fs::read_to_string(&path).unwrap(), "{name}");
    }
}

fn env_writes_golden() -> bool {
    std::env::var_os("TICKTAPE_WRITE_GOLDEN").is_some()
}

#[test]
fn a_tuned_box_is_left_alone() {
    assert_eq!(proposed(&fixture("intel-tuned"), &plan(), &Selection::default()), []);
}

#[test]
fn what_is_changed_is_wrong_by_a_check_and_right_after() {
    for (recording, plan) in cases() {
        let (root, facts, report) = looked_at(&recording, &plan);
        let found = propose(&root, &facts, &plan, &report, &Selection::default());
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("proc")).unwrap();
        for change in &found.changes {
            put(dir.path(), &change.path, std::str::from_utf8(&change.old).unwrap());
        }
        let before = tree(dir.path());
        fs::create_dir_all(dir.path().join("sys")).unwrap();
        let settings = DirectorySettings::open(dir.path()).unwrap();
        let store = Store::new(dir.path().join("var/tune.undo"));
        let place = Place::of("box", &settings);
        let applied = apply(&settings, &store, &place, &found.changes, false).unwrap();
        assert_eq!((applied.changed.len(), applied.refused.len()), (found.changes.len(), 0), "{applied:?}");

        let after = after(&recording, &found.changes, dir.path());
        let (_, _, again) = looked_at(&after, &plan);
        let verdict =
            |report: &Report, id: &str| report.outcomes().iter().find(|o| o.check.id == id).unwrap().finding.verdict;
        for change in found.changes.iter().filter(|change| change.form != Form::Kept) {
            assert!(verdict(&report, change.check) >= Verdict::Warn, "{change:?}");
            assert!(verdict(&again, change.check) <= Verdict::Ok, "{change:?}: {:?}", again.worst_first());
        }
        if !found.changes.is_empty() {
            assert!(undo(&settings, &store, &place, false).unwrap().is_done);
        }
        assert_eq!(tree(dir.path()), before);
    }
}

/// The recording with its settings as they are in the directory, and what the kernel makes of them.
fn after(recording: &Recording, changes: &[Change], dir: &Path) -> Recording {
    let mut text = String::new();
    for change in changes {
        let now = fs::read_to_string(dir.join(&change.path)).unwrap();
        text += &format!("== {}\n{now}\n", change.path);
        if let Some(irq) = change.path.strip_suffix("/smp_affinity_list") {
            text += &format!("== {irq}/effective_affinity_list\n{}\n", now.trim().split([',', '-']).next().unwrap());
        }
        if change.path.ends_with("nr_hugepages") {
            text += &format!("== {}\n{now}\n", change.path.replace("nr_hugepages", "free_hugepages"));
        }
    }
    recording.clone().with(&text.parse().unwrap())
}

#[test]
fn a_recording_that_is_laid_out_is_the_same_box() {
    let dir = tempfile::tempdir().unwrap();
    fixture("intel-untuned").unpack(dir.path()).unwrap();
    let root = Root::open(dir.path()).unwrap();
    let facts = Facts::read(&root, Some("eth1"), &plan().directory);
    let report = examine(&facts, &plan());
    let (_, _, recorded) = looked_at(&fixture("intel-untuned"), &plan());
    for (laid_out, recorded) in report.outcomes().iter().zip(recorded.outcomes()) {
        assert_eq!(laid_out.finding, recorded.finding, "{}", recorded.check.id);
    }
    let changes = propose(&root, &facts, &plan(), &report, &Selection::default()).changes;
    assert_eq!(changes, proposed(&fixture("intel-untuned"), &plan(), &Selection::default()));
    let outside: Recording = "== sys/a -> ../../../../../../../../../outside\n== sys/a/b\n1\n".parse().unwrap();
    assert!(outside.unpack(dir.path()).unwrap_err().to_string().contains("leads out of the box"));
}

#[test]
fn only_what_was_asked_for_is_touched() {
    let untuned = fixture("intel-untuned");
    let names = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    let only = Selection::new(&names(&["memory-thp", "power-governor"]), &[]).unwrap();
    let checks: BTreeSet<_> = proposed(&untuned, &plan(), &only).iter().map(|change| change.check).collect();
    assert_eq!(checks, BTreeSet::from(["memory-thp", "power-governor"]));
    let all = proposed(&untuned, &plan(), &Selection::default());
    let skip = Selection::new(&[], &names(&["memory-thp"])).unwrap();
    let rest = proposed(&untuned, &plan(), &skip);
    assert_eq!(rest.len() + 1, all.len());
    assert!(rest.iter().all(|change| change.check != "memory-thp"));
    assert!(Selection::new(&names(&["memory-thq"]), &[]).unwrap_err().contains("\"memory-thq\" is no check"));
}

#[test]
fn a_check_that_can_be_mended_by_nobody_but_a_person_is_left_to_one() {
    let (root, facts, report) = looked_at(&fixture("intel-untuned"), &plan());
    let found = propose(&root, &facts, &plan(), &report, &Selection::default());
    let by_hand: Vec<_> = found.by_hand.iter().map(|outcome| outcome.check.id).collect();
    assert!(by_hand.contains(&"memory-swap") && by_hand.contains(&"cores-isolated"), "{by_hand:?}");
    let mended: BTreeSet<_> = found.changes.iter().map(|change| change.check).collect();
    assert!(by_hand.iter().all(|id| !mended.contains(id)), "{by_hand:?} {mended:?}");
}

#[test]
fn stages_get_cores_of_one_cache_near_the_devices_and_away_from_the_disks_interrupts() {
    let chosen = |name: &str, plan: &Plan| {
        let (_, facts, _) = looked_at(&fixture(name), plan);
        let choice = choose(&facts).unwrap();
        (choice.stages, choice.may_spin)
    };
    let all: BTreeMap<&str, (Vec<usize>, bool)> =
        boxes().iter().map(|(name, plan)| (*name, chosen(name, plan))).collect();
    assert_eq!(all["intel-tuned"].0, [4, 5, 6, 7], "isolated ones, on the devices' node");
    assert_eq!(
        all["intel-untuned"].0,
        [1, 2, 4, 5],
        "neither core 0 nor 3, where the disk's interrupts come of what others write"
    );
    assert_eq!(all["guest"], (Vec::new(), false), "two cores: none to give away");
    assert_eq!(all["container"], (Vec::new(), false), "two cores, and a share of time");
    let unbound = fixture("container").with(&"== sys/fs/cgroup/cpu.max\nmax 100000\n".parse().unwrap());
    let choice = |recording: &Recording| choose(&looked_at(recording, &plan()).1).unwrap();
    assert_eq!(
        choice(&unbound).stages,
        Vec::<usize>::new(),
        "core 0 is somebody else's: one of two is left for the rest"
    );
    for (name, plan) in boxes() {
        let (stages, _) = &all[name];
        let (_, facts, _) = looked_at(&fixture(name), &plan);
        // As of four stages' threads the third is the journaler's.
        let writing: Vec<usize> = stages.iter().skip(2).take(1).copied().collect();
        let (critical, spinning) =
            (stages.clone(), without(stages, &common(&writing, &choose(&facts).unwrap().own_queue)));
        let proposed = Plan { critical, spinning, writing, ..plan };
        assert_eq!(proposed.check(&facts), Ok(()), "{name}");
        if stages.is_empty() {
            continue;
        }
        let (_, _, report) = looked_at(&fixture(name), &proposed);
        for id in ["cores-one-l3", "cores-one-node", "cores-first", "interrupts-disk", "cores-left"] {
            let outcome = report.outcomes().iter().find(|outcome| outcome.check.id == id).unwrap();
            assert!(outcome.finding.verdict <= Verdict::CantTell, "{name} {id}: {:?}", outcome.finding);
        }
    }
}

fn subject<'a>(facts: &'a Facts, plan: &'a Plan, report: &'a Report, selection: &'a Selection) -> Subject<'a> {
    Subject {
        facts,
        plan,
        report,
        selection,
        answered: &[],
        program: "/bin/true",
        config: "/etc/ticktape/appliance.toml",
        working_directory: "/etc/ticktape",
    }
}

fn reviewed(recording: &Recording, plan: &Plan) -> Vec<ReviewFile> {
    let (_, facts, report) = looked_at(recording, plan);
    files(&subject(&facts, plan, &report, &Selection::default()))
}

#[test]
fn pages_that_are_there_already_are_not_given_up_by_a_review() {
    let huge = "== sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages\n100\n== sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages\n";
    for (free, pages) in [(100, 100), (92, 100), (3, 105), (0, 108)] {
        let recording = fixture("intel-tuned").with(&format!("{huge}{free}\n").parse().unwrap());
        let (_, facts, report) = looked_at(&recording, &plan());
        let answered = ["memory-huge-pages".to_owned()];
        let (plan, selection) = (plan(), Selection::default());
        let reviewed = files(&Subject { answered: &answered, ..subject(&facts, &plan, &report, &selection) });
        let sysctl = reviewed.iter().find(|file| file.name.ends_with("sysctl.conf")).unwrap();
        assert!(sysctl.text.contains(&format!("\nvm.nr_hugepages = {pages}\n")), "{free}: {}", sysctl.text);
    }
}

#[test]
fn what_is_generated_is_of_the_profiles_line_by_line() {
    for (recording, plan) in cases() {
        for ReviewFile { name, text } in reviewed(&recording, &plan) {
            assert!(!text.contains('@'), "{name}: {text}");
            let profile = PROFILES.iter().find(|(known, _)| *known == name).unwrap().1;
            for line in text.lines() {
                let is_of = |of: &str| {
                    // Between the names that stand for values, all is as in the profile.
                    let mut rest = line;
                    of.split('@').step_by(2).all(|part| {
                        let at = rest.find(part);
                        rest = at.map_or(rest, |at| &rest[at + part.len()..]);
                        at.is_some()
                    })
                };
                assert!(profile.lines().any(is_of), "{name}: {line}");
            }
        }
    }
}

#[test]
fn each_setting_of_the_kernel_that_is_changed_outlives_a_reboot_by_the_profiles() {
    let mut seen = BTreeSet::new();
    for (recording, plan) in cases() {
        let sysctl = reviewed(&recording, &plan).into_iter().find(|file| file.name.ends_with("sysctl.conf"));
        let text = sysctl.map(|file| file.text).unwrap_or_default();
        for change in
            proposed(&recording, &plan, &Selection::default()).iter().filter(|change| change.form != Form::Kept)
        {
            let name = match change.path.strip_prefix("proc/sys/") {
                Some(name) if name.starts_with("net/ipv4/conf/") => name.to_owned(),
                Some(name) => name.replace('/', "."),
                None if change.path.ends_with("nr_hugepages") => "vm.nr_hugepages".to_owned(),
                None => continue,
            };
            let line = format!("{name} = {}", change.new);
            assert!(text.lines().any(|known| known == line), "{line} is not in {text}");
            seen.insert(name);
        }
    }
    let profile = PROFILES[0].1;
    let keys = profile.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "));
    let unseen: Vec<_> =
        keys.map(|(key, _)| key.replace("@FEED_INTERFACE@", "eth1")).filter(|key| !seen.contains(key)).collect();
    assert!(unseen.is_empty(), "in the profile and never asked for: {unseen:?}");
}

#[test]
fn every_line_of_a_profile_has_its_reason() {
    for (name, profile) in PROFILES {
        for paragraph in profile.split("\n\n") {
            let mut lines = paragraph.lines().filter(|line| !line.is_empty());
            let first = lines.next().unwrap();
            let is_told = first.starts_with('#') || first.starts_with('[') || first.starts_with("#!");
            assert!(is_told, "{name}: {paragraph}");
            // Names in parentheses at a comment's end are checks; a mistyped one would always be left in.
            let comment = paragraph.lines().take_while(|line| line.starts_with('#')).last().unwrap_or_default();
            let claims = comment.ends_with(')') && comment.contains("-") && !name.ends_with("service");
            assert!(!claims || !asked_by(paragraph).is_empty(), "{name}: {comment}");
        }
    }
}

#[test]
fn what_the_plan_asks_for_is_in_the_files_and_in_no_others() {
    let rules = |plan: &Plan| {
        let files = reviewed(&fixture("intel-tuned"), plan);
        files.into_iter().find(|file| file.name.ends_with(".rules")).map(|file| file.text)
    };
    assert_eq!(rules(&plan()), None);
    let runtime = crate::doctor::Wishes { hold_cpu_latency_us: Some(5), ..Default::default() };
    let text = rules(&Plan { runtime, ..plan() }).unwrap();
    assert!(text.contains("within 5 µs") && text.contains("KERNEL==\"cpu_dma_latency\""), "{text}");

    let strict = "== proc/sys/net/ipv4/conf/eth2.5/rp_filter\n1\n== proc/sys/net/ipv4/conf/all/rp_filter\n0\n== sys/class/net/eth2.5/operstate\nup\n";
    let feeds = Some(vec!["eth1".to_owned(), "eth2.5".to_owned()]);
    let files =
        reviewed(&fixture("intel-tuned").with(&strict.parse().unwrap()), &Plan { feed_interfaces: feeds, ..plan() });
    let sysctl = &files.iter().find(|file| file.name.ends_with("sysctl.conf")).unwrap().text;
    assert!(sysctl.contains("\nnet/ipv4/conf/eth1/rp_filter = 2\nnet/ipv4/conf/eth2.5/rp_filter = 2\n"), "{sysctl}");

    let (everywhere, box_of_two) =
        (Plan { critical: vec![0, 1], spinning: vec![0, 1], ..boxes()[5].1.clone() }, fixture("guest"));
    for file in reviewed(&box_of_two, &everywhere) {
        assert!(!file.text.contains("isolcpus=") && !file.text.contains("nohz_full="), "{}", file.text);
    }
    for (port, more) in
        [(7_001, ""), (0, ""), (443, " CAP_NET_BIND_SERVICE"), (1_023, " CAP_NET_BIND_SERVICE"), (1_024, "")]
    {
        let units = reviewed(&fixture("intel-tuned"), &Plan { port, ..plan() });
        let unit = &units.iter().find(|file| file.name == "ticktape.service").unwrap().text;
        for set in ["AmbientCapabilities", "CapabilityBoundingSet"] {
            let line =
                format!("\n{set}=CAP_NET_RAW CAP_NET_ADMIN CAP_BPF CAP_PERFMON CAP_SYS_NICE CAP_IPC_LOCK{more}\n");
            assert!(unit.contains(&line), "{port}: {unit}");
        }
    }
}

#[test]
fn an_appliance_that_does_not_start_is_not_started_for_ever() {
    let unit = PROFILES.iter().find(|(name, _)| *name == "ticktape.service").unwrap().1;
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap();
    let number = |key: &str| value(key).parse::<u64>().unwrap();
    assert!(
        number("RestartSec") * number("StartLimitBurst") < number("StartLimitIntervalSec"),
        "the limit is never met"
    );
    // What the commands' exit code for a mistake in what was asked is.
    assert_eq!(value("RestartPreventExitStatus"), "2");
    let tune = PROFILES.iter().find(|(name, _)| *name == "ticktape-tune.service").unwrap().1;
    assert!(tune.contains("\nAfter=network-online.target\n") && tune.contains("\nWants=network-online.target\n"));
}

#[test]
fn systemd_takes_the_units() {
    let dir = tempfile::tempdir().unwrap();
    let capture_dir = Some(PathBuf::from("/data/captured here"));
    let awkward = Plan { directory: PathBuf::from("/data/a b%c$d"), capture_dir, ..plan() };
    let (_, facts, report) = looked_at(&fixture("intel-untuned"), &awkward);
    let selection = Selection::default();
    let config = "/etc/ticktape/a b%c$d.toml";
    let working_directory = "/etc/a b%c";
    for ReviewFile { name, text } in
        files(&Subject { config, working_directory, ..subject(&facts, &awkward, &report, &selection) })
    {
        if name == "ticktape.service" {
            assert!(text.contains(" run --config \"/etc/ticktape/a b%%c$$d.toml\"\n"), "{text}");
            assert!(text.contains("\nReadWritePaths=\"/data/a b%%c$d\" /dev/shm \"/data/captured here\"\n"), "{text}");
        }
        if name.contains(".service") {
            let begins = text.contains("\nWorkingDirectory=/etc/a b%%c\n");
            assert_eq!(begins, name.ends_with(".service"), "{name}: {text}");
            let at = dir.path().join(name);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, text).unwrap();
        }
    }
    for unit in ["ticktape.service", "ticktape-tune.service"] {
        let run = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(dir.path().join(unit)).output();
        let Ok(output) = run else {
            let _ = writeln!(std::io::stderr(), "skipped: no systemd-analyze here");
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // It also speaks of other units of the box.
        let own: Vec<&str> = said.lines().filter(|line| line.contains("ticktape")).collect();
        assert!(own.is_empty(), "{unit}: {said}");
    }
}
