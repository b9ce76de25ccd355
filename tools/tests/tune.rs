//! `ticktape tune`, as an operator meets it, on boxes that are directories.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const SPINNING: &str = "sequencer,executor,egress@4:spin|journaler,publisher@5:spin";
const THP: &str = "sys/kernel/mm/transparent_hugepage/enabled";

/// A box of `tuning/fixtures`, laid out as a directory, with a configuration for it, and where its undo file goes.
struct Laid {
    dir: tempfile::TempDir,
}

impl Laid {
    fn out(name: &str) -> Laid {
        let dir = tempfile::tempdir().unwrap();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tuning/fixtures/{name}.txt"));
        let recording: ticktape_tuning::root::Recording = fs::read_to_string(path).unwrap().parse().unwrap();
        recording.unpack(&dir.path().join("box")).unwrap();
        Laid { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn config(&self, cores: &str, interface: &str) -> String {
        let path = self.path("appliance.toml");
        let text = format!(
            "dir = \"/data/journal\"\nlisten = \"10.0.0.1:7001\"\ncores = {cores:?}\nbusy_poll_us = 50\n[xdp]\ninterface = {interface:?}\n"
        );
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn command(&self, step: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ticktape"));
        command.args(["tune", step, "--root"]).arg(self.path("box")).arg("--undo").arg(self.path("state/tune.undo"));
        command.args(args).stdin(Stdio::null());
        command
    }

    fn tune(&self, step: &str, args: &[&str]) -> Output {
        self.command(step, args).output().unwrap()
    }

    fn tree(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        tree(&self.path("box"))
    }
}

fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            found.extend(tree(&path));
        } else if path.is_file() {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

/// The exit code, and what was said on stderr, which is a line at most.
fn said(output: &Output) -> (i32, String) {
    let errors = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(errors.lines().count() <= 1, "{errors}");
    (output.status.code().unwrap(), errors)
}

#[test]
fn plan_apply_check_and_undo_leave_a_box_as_it_was() {
    let laid = Laid::out("intel-untuned");
    let config = laid.config(SPINNING, "eth1");
    let before = laid.tree();
    let planned = json(&laid.tune("plan", &["--config", &config, "--json"]));
    assert_eq!((&planned["cores"], &planned["proposed"]), (&serde_json::json!([4, 5]), &Value::Null));
    assert_eq!(laid.tree(), before, "a plan changes nothing");
    let changes = planned["changes"].as_array().unwrap();
    assert!(changes.len() > 15, "{planned}");

    let applied = laid.tune("apply", &["--config", &config]);
    assert_eq!(said(&applied), (0, String::new()));
    let after = laid.tree();
    for change in changes {
        let path = laid.path("box").join(change["path"].as_str().unwrap().trim_start_matches('/'));
        let now = fs::read_to_string(&path).unwrap();
        assert_eq!(now.trim(), change["new"].as_str().unwrap(), "{change}");
    }
    let touched = before.iter().filter(|(path, bytes)| after[*path] != **bytes).count();
    let changed = changes.iter().filter(|change| change["kept"] == false).count();
    assert_eq!((touched, before.len()), (changed, after.len()), "nothing but what the plan named");

    assert_eq!(said(&laid.tune("check", &[])), (0, String::new()));
    let (code, error) = said(&laid.tune("apply", &["--config", &config]));
    assert!(code == 2 && error.contains("tune undo gives back what was before"), "{error}");
    fs::write(laid.path("box").join(THP), "never\n").unwrap();
    let drifted = laid.tune("check", &["--json"]);
    assert_eq!((drifted.status.code(), &json(&drifted)["drifted"][0]["path"]), (Some(1), &format!("/{THP}").into()));
    let (code, error) = said(&laid.tune("undo", &[]));
    assert!(code == 1 && error.contains("--force") && error.contains("tune.undo"), "{error}");
    assert_eq!(fs::read_to_string(laid.path("box").join(THP)).unwrap(), "never\n");
    assert_eq!(said(&laid.tune("undo", &["--force"])), (0, String::new()));
    assert_eq!(laid.tree(), before);
    assert!(!laid.path("state/tune.undo").exists());
    for step in ["check", "undo"] {
        let (code, error) = said(&laid.tune(step, &[]));
        assert!(code == 2 && error.contains("nothing is applied"), "{error}");
    }
}

#[test]
fn without_a_file_cores_are_proposed_as_an_appliances_file_takes_them() {
    let laid = Laid::out("intel-untuned");
    let planned = json(&laid.tune("plan", &["--iface", "eth1", "--dir", "/data/journal", "--json"]));
    let proposed = planned["proposed"].as_str().unwrap().to_owned();
    assert_eq!(proposed, "sequencer@1:spin|executor@2:spin|journaler,publisher@4:spin|egress@5:spin");
    let config = laid.config(&proposed, "eth1");
    let taken = json(&laid.tune("plan", &["--config", &config, "--json"]));
    assert_eq!((&taken["cores"], &taken["spinning"]), (&planned["cores"], &planned["spinning"]));
    let text = String::from_utf8(laid.tune("plan", &["--interface", "eth1"]).stdout).unwrap();
    assert!(text.contains("  # the disk's interrupts come to 3: nothing spins there\n"), "{text}");
    assert!(text.contains("left to a reboot or a person"), "{text}");
}

#[test]
fn a_share_of_time_leaves_nothing_to_spin_with_however_many_cores_there_are() {
    let laid = Laid::out("intel-untuned");
    let quota = laid.path("box/sys/fs/cgroup/cpu.max");
    fs::create_dir_all(quota.parent().unwrap()).unwrap();
    fs::write(quota, "150000 100000\n").unwrap();
    let planned = json(&laid.tune("plan", &["--interface", "eth1", "--dir", "/data/journal", "--json"]));
    let proposed = planned["proposed"].as_str().unwrap().to_owned();
    assert_eq!(planned["spinning"], serde_json::json!([]), "{proposed}");
    let taken = json(&laid.tune("plan", &["--config", &laid.config(&proposed, "eth1"), "--json"]));
    assert_eq!(taken["spinning"], serde_json::json!([]), "{proposed}: as an appliance's file takes it");
}

#[test]
fn what_a_box_can_not_have_is_refused_and_nothing_half_done() {
    let laid = Laid::out("intel-untuned");
    let before = laid.tree();
    let all = "sequencer,executor,egress@CORE|journaler,publisher@5";
    let gone = laid.path("gone");
    let recording = laid.path("box.txt");
    fs::write(&recording, "== proc/a\n1\n").unwrap();
    for (cores, interface, more, wrong) in [
        (all.replace("CORE", "99"), "eth1", vec![], "core 99 is not in this box"),
        (all.replace("CORE", "5"), "eth1", vec![], "names core 5 twice"),
        (SPINNING.to_owned(), "eth9", vec![], "no interface eth9"),
        (SPINNING.to_owned(), "eth1", vec!["--only", "memory-thq"], "\"memory-thq\" is no check"),
        (SPINNING.to_owned(), "eth1", vec!["--root", gone.to_str().unwrap()], "no box"),
        (SPINNING.to_owned(), "eth1", vec!["--root", recording.to_str().unwrap()], "a recording"),
    ] {
        let config = laid.config(&cores, interface);
        // Without a word kernel UDP would take the place of an interface that is not there.
        let text = fs::read_to_string(&config).unwrap();
        fs::write(&config, format!("nic = \"xdp\"\n{text}")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ticktape"));
        command.args(["tune", "apply", "--config", &config]).arg("--undo").arg(laid.path("state/tune.undo"));
        if !more.contains(&"--root") {
            command.arg("--root").arg(laid.path("box"));
        }
        let (code, error) = said(&command.args(more).output().unwrap());
        assert!(code == 2 && error.contains(wrong), "{wrong}: {error}");
        assert!(laid.tree() == before && !laid.path("state").exists(), "{wrong}");
    }
    let offline = Laid::out("intel-tuned");
    let config = offline.config(&all.replace("CORE", "40"), "eth1");
    let (code, error) = said(&offline.tune("apply", &["--config", &config]));
    assert!(code == 2 && error.contains("core 40 is offline"), "{error}");
    let (code, error) = said(
        &Command::new(env!("CARGO_BIN_EXE_ticktape"))
            .args(["tune", "plan", "--dir", "/no/such/place"])
            .output()
            .unwrap(),
    );
    assert!(code == 2 && error.contains("no directory /no/such/place"), "{error}");
}

#[test]
fn an_undo_file_that_was_edited_is_refused_by_name() {
    let laid = Laid::out("intel-untuned");
    let config = laid.config(SPINNING, "eth1");
    assert_eq!(laid.tune("apply", &["--config", &config]).status.code(), Some(0));
    let tuned = laid.tree();
    let undo = laid.path("state/tune.undo");
    let text = fs::read_to_string(&undo).unwrap();
    fs::write(&undo, text.replace("old \"1\\n\"", "old \"9\\n\"")).unwrap();
    for step in ["undo", "check"] {
        let (code, error) = said(&laid.tune(step, &[]));
        assert!(code == 2 && error.contains("tune.undo: edited or damaged"), "{error}");
    }
    assert_eq!(laid.tree(), tuned);
}

#[test]
fn only_what_was_asked_for_is_touched_and_one_tune_runs_at_a_time() {
    let laid = Laid::out("intel-untuned");
    let config = laid.config(SPINNING, "eth1");
    let before = laid.tree();
    let lock = File::open(laid.path("box/sys")).unwrap();
    lock.try_lock().unwrap();
    let (code, error) = said(&laid.tune("apply", &["--config", &config, "--only", "memory-thp"]));
    assert!(code == 2 && error.contains("another ticktape tune is changing this box"), "{error}");
    drop(lock);
    assert_eq!(said(&laid.tune("apply", &["--config", &config, "--only", "memory-thp"])), (0, String::new()));
    let after = laid.tree();
    let touched: Vec<_> =
        before.iter().filter(|(path, bytes)| after[*path] != **bytes).map(|(path, _)| path.clone()).collect();
    assert_eq!(touched, [laid.path("box").join(THP)]);
    assert_eq!(laid.tune("undo", &[]).status.code(), Some(0));
    assert_eq!(laid.tree(), before);
}

#[test]
fn what_needs_a_reboot_is_only_ever_a_file_to_review() {
    let laid = Laid::out("intel-untuned");
    let config = laid.config(SPINNING, "eth1");
    let before = laid.tree();
    let mut command = laid.command("plan", &["--config", &config, "--out"]);
    assert!(command.current_dir(laid.dir.path()).output().unwrap().status.success());
    assert_eq!(laid.tree(), before);
    let read = |name: &str| fs::read_to_string(laid.path("tune-review").join(name)).unwrap();
    assert!(read("90-ticktape.grub.cfg").contains("isolcpus=managed_irq,domain,4-5\"\n"));
    assert!(read("90-ticktape.sysctl.conf").contains("\nvm.stat_interval = 120\n"));
    assert!(read("ticktape.service.d/cores.conf").contains("\nCPUAffinity=0-35,38-63\n"));
    let unit = read("ticktape.service");
    assert!(
        unit.contains(&format!(" run --config {config}\n")) && unit.contains("CapabilityBoundingSet=CAP_NET_RAW"),
        "{unit}"
    );
    // What apply has set stays in them: it is still to outlive a reboot.
    assert_eq!(laid.tune("apply", &["--config", &config]).status.code(), Some(0));
    // A kernel would have found the pages.
    fs::write(laid.path("box/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"), "10\n").unwrap();
    let first = read("90-ticktape.sysctl.conf");
    assert!(command.output().unwrap().status.success());
    assert_eq!(read("90-ticktape.sysctl.conf"), first);
}

#[test]
fn files_that_somebody_edited_are_not_written_over_and_nothing_is_changed_before() {
    let laid = Laid::out("intel-untuned");
    let config = laid.config(SPINNING, "eth1");
    let (before, out) = (laid.tree(), laid.path("review"));
    let out_arg = out.to_str().unwrap();
    for _ in 0..2 {
        assert_eq!(said(&laid.tune("plan", &["--config", &config, "--out", out_arg])), (0, String::new()));
    }
    let edited = out.join("90-ticktape.sysctl.conf");
    let target = laid.path("target");
    fs::write(&target, "theirs").unwrap();
    let edit = |is_link: bool| {
        fs::remove_file(&edited).unwrap();
        if is_link {
            std::os::unix::fs::symlink(&target, &edited).unwrap()
        } else {
            fs::write(&edited, "mine").unwrap()
        }
    };
    for is_link in [false, true] {
        edit(is_link);
        for step in ["plan", "apply"] {
            let (code, error) = said(&laid.tune(step, &["--config", &config, "--out", out_arg]));
            assert!(code == 2 && error.contains("sysctl.conf: it is there and says something else"), "{step}: {error}");
        }
        assert!(laid.tree() == before && !laid.path("state").exists());
    }
    assert_eq!(fs::read_to_string(&target).unwrap(), "theirs");
    let file = target.join("below").display().to_string();
    let (code, error) = said(&laid.tune("apply", &["--config", &config, "--out", &file]));
    assert!(code == 2 && error.contains("target"), "{error}");
    assert!(laid.tree() == before && !laid.path("state").exists());
}

#[test]
fn what_is_gone_or_was_sent_elsewhere_is_not_as_before() {
    let laid = Laid::out("intel-untuned");
    let config = laid.config(SPINNING, "eth1");
    assert_eq!(
        laid.tune("apply", &["--config", &config, "--only", "memory-thp,interrupts-nic"]).status.code(),
        Some(0)
    );
    fs::remove_file(laid.path("box").join(THP)).unwrap();
    // As an interrupt that came leaves it; no kernel is here to move it back.
    let text = fs::read_to_string(laid.path("state/tune.undo")).unwrap();
    let mask = text.lines().find_map(|line| line.strip_prefix("== ").filter(|path| path.ends_with("_list"))).unwrap();
    let effective = mask.replace("smp_affinity", "effective_affinity");
    assert!(text.contains("\nwent "), "{text}");
    fs::write(laid.path("box").join(effective), "0\n").unwrap();
    let undone = laid.tune("undo", &["--json"]);
    let (code, error) = said(&undone);
    assert!(code == 1 && error.contains("1 setting is not there any more"), "{error}");
    let undone = json(&undone);
    assert_eq!(
        (&undone["gone"][0], &undone["elsewhere"][0]["path"]),
        (&format!("/{THP}").into(), &format!("/{mask}").into())
    );
    assert_eq!((&undone["elsewhere"][0]["now"], &undone["unremoved"]), (&"0".into(), &Value::Null));
}
