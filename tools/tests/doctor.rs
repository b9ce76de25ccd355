//! `ticktape doctor`, as an operator meets it: live, of recorded boxes, and with what can't be judged.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// An ordinary user.
const NOBODY: u32 = 65_534;

fn ticktape(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ticktape")).args(args).stdin(Stdio::null()).output().unwrap()
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tuning/fixtures/{name}.txt"));
    path.to_str().unwrap().to_owned()
}

/// Whether nothing is bad, and what was said.
fn json(output: &Output) -> (bool, Value) {
    let code = output.status.code();
    assert!(code == Some(0) || code == Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    (code == Some(0), serde_json::from_slice(&output.stdout).unwrap())
}

fn verdicts(value: &Value) -> BTreeMap<String, String> {
    let text = |check: &Value, key: &str| check[key].as_str().unwrap().to_owned();
    value["checks"].as_array().unwrap().iter().map(|check| (text(check, "id"), text(check, "verdict"))).collect()
}

/// An appliance's file for the tuned fixture, with this plan and this interface.
fn config(dir: &Path, cores: &str, interface: &str) -> PathBuf {
    let path = dir.join("appliance.toml");
    let text = format!(
        "dir = \"/data/journal\"\nlisten = \"10.0.0.1:7001\"\ncores = {cores:?}\nbusy_poll_us = 50\n[xdp]\ninterface = {interface:?}\n"
    );
    fs::write(&path, text).unwrap();
    path
}

const SPINNING: &str = "sequencer,executor,egress@4:spin|journaler,publisher@5:spin";

#[test]
fn this_box_is_judged_and_its_recording_is_judged_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("box.txt");
    let file = file.to_str().unwrap();
    let (good, live) = json(&ticktape(&["doctor", "--json", "--record", file]));
    let found = verdicts(&live);
    assert!(found.len() >= 40, "{found:?}");
    assert_eq!(good, !found.values().any(|verdict| verdict == "bad"), "{found:?}");
    let (again, recorded) = json(&ticktape(&["doctor", "--json", "--root", file]));
    assert_eq!((good, &found), (again, &verdicts(&recorded)));
    let text = fs::read_to_string(file).unwrap();
    assert!(!text.contains("hostname") && !text.contains("/address"), "{text}");
    for interface in fs::read_dir("/sys/class/net").unwrap().flatten() {
        let address = fs::read_to_string(interface.path().join("address")).unwrap_or_default();
        let address = address.trim();
        assert!(address.is_empty() || !text.contains(address), "{address}");
    }
}

#[test]
fn people_get_a_table_by_group_and_what_is_wrong_the_costliest_first() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), SPINNING, "eth1");
    let output = ticktape(&["doctor", "--root", &fixture("intel-untuned"), "--config", config.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is not in {text}"));
    assert!(at("\ncores\n") < at("\ndisk\n") && at("\ndisk\n") < at("\nthe costliest first\n"), "{text}");
    let first = &text[at("the costliest first\n")..];
    assert!(first.find("bad   memory-locked").unwrap() < first.find("bad   cores-isolated").unwrap(), "{text}");
    assert!(first.find("bad   cores-isolated").unwrap() < first.find("warn  ").unwrap(), "{text}");
    assert!(first.contains("> kernel command line: isolcpus=managed_irq,domain,4-5\n"), "{text}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.lines().count() == 1 && errors.contains("checks are bad"), "{errors}");
}

#[test]
fn a_tuned_box_is_well_by_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), SPINNING, "eth1");
    let config = config.to_str().unwrap();
    let (good, value) = json(&ticktape(&["doctor", "--root", &fixture("intel-tuned"), "--config", config, "--json"]));
    assert!(good, "{value}");
    assert_eq!((&value["worst"], &value["bad"], &value["warn"]), (&"ok".into(), &0.into(), &0.into()), "{value}");
    assert_eq!(value["plan"]["cores"], serde_json::json!([4, 5]));
    assert_eq!(value["plan"]["spinning"], serde_json::json!([4, 5]));
    assert_eq!(value["plan"]["interface"], "eth1");
    let all = ticktape(&["doctor", "--root", &fixture("intel-tuned"), "--config", config, "--all"]);
    let text = String::from_utf8(all.stdout).unwrap();
    assert!(text.contains("costs milliseconds at a time (kernel documentation"), "{text}");
}

#[test]
fn what_can_not_be_judged_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |cores: &str, interface: &str| {
        let config = config(dir.path(), cores, interface);
        ticktape(&["doctor", "--root", &fixture("intel-tuned"), "--config", config.to_str().unwrap()])
    };
    let all = "sequencer,executor,egress@CORE|journaler,publisher@5";
    let cases = [
        (refused(&all.replace("CORE", "99"), "eth1"), "core 99 is not in this box"),
        (refused(&all.replace("CORE", "40"), "eth1"), "core 40 is offline"),
        (refused(&all.replace("CORE", "5"), "eth1"), "names core 5 twice"),
        (ticktape(&["doctor", "--root", &fixture("intel-tuned"), "--interface", "eth9"]), "no interface eth9"),
        (ticktape(&["doctor", "--root", "/no/such/box"]), "/no/such/box is not there"),
        (ticktape(&["doctor", "--root", dir.path().to_str().unwrap()]), "neither proc nor sys"),
        (ticktape(&["doctor", "--config", "/no/such/file"]), "/no/such/file"),
    ];
    for (output, wrong) in cases {
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
        assert!(errors.contains(wrong) && output.stdout.is_empty(), "{wrong}: {errors}");
    }
}

#[test]
fn a_container_with_one_core_is_judged_for_what_run_does_there() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("box.txt");
    let text =
        fs::read_to_string(fixture("container")).unwrap().replace("Cpus_allowed_list:\t8-9", "Cpus_allowed_list:\t9");
    fs::write(&file, text).unwrap();
    let (good, value) = json(&ticktape(&["doctor", "--root", file.to_str().unwrap(), "--json"]));
    assert_eq!((good, &value["plan"]["cores"]), (false, &serde_json::json!([9])), "{value}");
    assert_eq!(verdicts(&value)["cores-quota"], "bad");
}

/// Runs it as an ordinary user; `None` where this one can't become another.
fn as_nobody(args: &[&str]) -> Option<Output> {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("ticktape");
    fs::copy(env!("CARGO_BIN_EXE_ticktape"), &program).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(&program);
    let output = command.args(args).current_dir("/").uid(NOBODY).gid(NOBODY).stdin(Stdio::null()).output();
    output.map_err(|_| writeln!(std::io::stderr(), "skipped: this user can't become another")).ok()
}

#[test]
fn without_root_what_needs_it_is_said() {
    if !fs::read_to_string("/proc/self/status").unwrap().lines().any(|line| line == "Uid:\t0\t0\t0\t0") {
        return json(&ticktape(&["doctor", "--json"])).1["checks"]
            .as_array()
            .map(|checks| assert!(checks.len() >= 40))
            .unwrap();
    }
    let Some(output) = as_nobody(&["doctor", "--json"]) else { return };
    let (_, value) = json(&output);
    assert!(verdicts(&value).len() >= 40, "{value}");
}

/// An appliance's file with this text beside its directory.
fn file(dir: &Path, text: &str) -> String {
    let path = dir.join("appliance.toml");
    fs::write(&path, format!("dir = {:?}\n{text}", dir.join("journal"))).unwrap();
    path.to_str().unwrap().to_owned()
}

/// An address for documentation (RFC 5737): no box has it.
const NOBODYS: &str = "203.0.113.7";

#[test]
fn what_run_would_refuse_here_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("journal")).unwrap();
    let anywhere = "listen = \"0.0.0.0:7001\"\n";
    let (at, feed) = ("listen = \"127.0.0.1:7001\"\n", "a = \"239.1.1.1:7002\"\n");
    for (text, named, wrong) in [
        (anywhere.to_owned(), &["--interface", "nosuch"][..], "no interface nosuch"),
        (format!("{anywhere}nic = \"udp\"\n"), &["--interface", "nosuch"], "no interface nosuch"),
        (format!("{anywhere}nic = \"xdp\"\n"), &["--interface", "nosuch"], "no interface nosuch"),
        (format!("{anywhere}nic = \"xdp\"\n"), &[], "xdp needs an interface"),
        (format!("{anywhere}[xdp]\ninterface = \"lo\"\n"), &["--interface", "other"], "the file names lo"),
        (format!("{at}nic = \"udp\"\n"), &["--interface", "other"], "it listens on an address of lo"),
        (format!("listen = \"{NOBODYS}:7001\"\n"), &[], "listen 203.0.113.7 is no address of this box"),
        (format!("{at}[feed]\n{feed}interface = \"{NOBODYS}\"\n"), &[], "[feed] interface 203.0.113.7 is no address"),
        (format!("{at}[feed]\n{feed}repair = \"{NOBODYS}:7003\"\n"), &[], "[feed] repair 203.0.113.7 is no address"),
        (
            format!("{at}[events]\n{feed}interface = \"{NOBODYS}\"\n"),
            &[],
            "[events] interface 203.0.113.7 is no address",
        ),
    ] {
        let config = file(dir.path(), &text);
        for command in [&["doctor"][..], &["tune", "plan"]] {
            let output = ticktape(&[command, &["--config", &config], named].concat());
            let errors = String::from_utf8(output.stderr).unwrap();
            assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{text}: {errors}");
            assert!(errors.contains(wrong) && output.stdout.is_empty(), "{wrong}: {errors}");
        }
    }
    let output = ticktape(&["doctor", "--interface", "nosuch"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && errors.contains("no interface nosuch"), "{errors}");
}

#[test]
fn the_interface_that_was_named_is_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let anywhere = "listen = \"0.0.0.0:7001\"\n";
    let (udp, auto) = (format!("{anywhere}nic = \"udp\"\n"), anywhere.to_owned());
    let plan =
        |args: &[&str]| json(&ticktape(&[&["doctor", "--json", "--interface", "lo"], args].concat())).1["plan"].clone();
    let with = |text: &str| plan(&["--config", &file(dir.path(), text)]);
    // As run takes it: for AF_XDP, unless that is not wanted.
    for (plan, queue) in [(plan(&[]), Value::Null), (with(&udp), Value::Null), (with(&auto), 0.into())] {
        assert_eq!((&plan["interface"], &plan["xdp_queue"]), (&"lo".into(), &queue));
    }
}

#[test]
fn what_the_file_asks_of_the_kernel_is_judged() {
    let dir = tempfile::tempdir().unwrap();
    let wishes = "[runtime]\nscheduler = \"fifo:50\"\nlock_memory = true\nhold_cpu_latency_us = 0\n";
    let config = file(dir.path(), &format!("listen = \"10.0.0.1:7001\"\n{wishes}"));
    let fixture = fixture("intel-untuned");
    let (_, value) = json(&ticktape(&["doctor", "--root", &fixture, "--config", &config, "--json"]));
    let checks = value["checks"].as_array().unwrap();
    let read = |id: &str| checks.iter().find(|check| check["id"] == id).unwrap()["read"].as_str().unwrap().to_owned();
    assert_eq!(read("limits-priority"), "0, 50 is wanted");
    assert!(read("memory-locked").contains("[runtime] wants all memory locked"), "{}", read("memory-locked"));
    assert!(read("limits-wakeup").contains("is not there"), "the recording does not tell: {}", read("limits-wakeup"));
}

#[test]
fn a_recording_is_judged_for_the_directory_that_it_was_made_for() {
    let found = |args: &[&str]| {
        let fixture = fixture("intel-tuned");
        json(&ticktape(&[&["doctor", "--json", "--root", &fixture], args].concat())).1
    };
    let own = found(&["--dir", "/data/journal"]);
    assert_eq!(
        (&own["plan"]["directory"], &verdicts(&own)["disk-scheduler"]),
        (&"/data/journal".into(), &"ok".to_owned())
    );
    assert_eq!(verdicts(&found(&[]))["disk-scheduler"], "can't tell");
}

#[test]
fn what_stands_in_a_recording_commands_no_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("box.txt");
    let text = fs::read_to_string(fixture("intel-untuned")).unwrap();
    let path = "cpufreq/scaling_governor\n";
    let at = text.find(path).unwrap() + path.len();
    fs::write(&file, format!("{}\u{1b}]0;x\u{7}{}", &text[..at], &text[at..])).unwrap();
    let config = config(dir.path(), SPINNING, "eth1");
    for command in [&["doctor", "--all"][..], &["tune", "plan"]] {
        let more = ["--root", file.to_str().unwrap(), "--config", config.to_str().unwrap()];
        let output = ticktape(&[command, &more].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{text}");
        // Nothing is planned for what is no governor of the kernel's.
        assert!(command[0] == "tune" || text.contains("]0;x"), "{text}");
    }
}

#[test]
fn an_interface_that_is_not_there_is_warned_of_where_kernel_udp_takes_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), SPINNING, "eth9");
    let doctor =
        || ticktape(&["doctor", "--root", &fixture("intel-tuned"), "--json", "--config", config.to_str().unwrap()]);
    let (_, value) = json(&doctor());
    assert_eq!((&value["plan"]["xdp_queue"], &verdicts(&value)["network-driver"]), (&Value::Null, &"warn".to_owned()));
    assert!(value.to_string().contains("no interface eth9 in this box"), "{value}");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("nic = \"xdp\"\n{text}")).unwrap();
    let refused = doctor();
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && errors.contains("no interface eth9"), "{errors}");
}

/// What of an appliance's file both take, and what both refuse: the rest of the file is the same. `DIR` is a directory of the test's own, with
/// a file in it.
const FILES: [&str; 28] = [
    "",
    "dir = \"DIR/file\"",
    "dir = \"DIR/file/below\"",
    "dir = \"DIR/new/below\"",
    "dir = \"\"",
    "service = \"none-of-these\"",
    "service = \"kv\"",
    "listen = \"192.0.2.1:0\"",
    "nic = \"xdp\"",
    "nic = \"auto\"\n[xdp]\ninterface = \"no-such-if\"",
    "nic = \"xdp\"\n[xdp]\ninterface = \"no-such-if\"",
    "nic = \"udp\"\n[xdp]\ninterface = \"no-such-if\"",
    "[ring]\nbytes = 12345",
    "[ring]\nbytes = 4096",
    "[ring]\nname = \"a/b\"\ndir = \"DIR\"",
    "[ring]\nname = \"\"\ndir = \"DIR\"",
    "[ring]\nname = \".hidden\"\ndir = \"DIR\"",
    "[ring]\nname = \"book\"\ndir = \"DIR\"",
    "[ring]\nname = \"book\"\ndir = \"DIR/none\"",
    "[journal]\nsegment_bytes = 12345",
    "[journal]\nsegment_bytes = 4096",
    "[journal]\nsegment_bytes = 1048576",
    "[journal]\nsegment_bytes = 1048576\nprefill_bytes = 2097152",
    "[capture]\nfile = \"DIR/none/x.pcapng\"",
    "[capture]\nfile = \"DIR\"",
    "[capture]\nfile = \"DIR/x.pcapng\"",
    "listen = \"127.0.0.1:LISTEN\"\n[feed]\na = \"239.1.1.1:7100\"\nrepair = \"127.0.0.1:LISTEN\"",
    "[feed]\na = \"239.1.1.1:7100\"\nrepair = \"127.0.0.1:0\"",
];

/// Whether an appliance serves with that file. Whoever refuses says why in one line, and ends with 2 or 1.
fn run_takes(config: &Path) -> bool {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ticktape"))
        .args(["run", "--no-metrics", "--config", config.to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let serves = lines.map_while(Result::ok).any(|line| line.starts_with("serving "));
    if serves {
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(serves || !output.stderr.is_empty());
    serves
}

#[test]
fn what_run_refuses_is_refused_and_what_it_takes_is_judged() {
    // Free a moment ago, and taken by nobody but the one that is refused.
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut both = [0, 0];
    for text in FILES {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let place = dir.path().to_str().unwrap();
        let text = text.replace("DIR", place).replace("LISTEN", &port);
        let or = |key: &str, line: String| if text.contains(&format!("{key} = ")) { String::new() } else { line };
        // `dir` stands in `[ring]`, too.
        let journal = if text.starts_with("dir") { String::new() } else { format!("dir = \"{place}/journal\"\n") };
        let head = [journal, or("listen", "listen = \"127.0.0.1:0\"\n".into())].concat();
        let path = dir.path().join("appliance.toml");
        fs::write(&path, format!("{head}{text}\n")).unwrap();
        let doctor = ticktape(&["doctor", "--json", "--config", path.to_str().unwrap()]);
        let errors = String::from_utf8_lossy(&doctor.stderr).into_owned();
        let judged = matches!(doctor.status.code(), Some(0 | 1));
        assert!(judged || errors.lines().count() == 1, "{text}: {errors}");
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{text}: doctor made {left:?}");
        assert_eq!(judged, run_takes(&path), "{text}: doctor says {errors:?}");
        both[usize::from(judged)] += 1;
    }
    assert!(both.iter().all(|&count| count >= 8), "{both:?}");
}

#[test]
fn a_place_that_the_asking_user_may_not_look_at_is_not_said_to_be_missing() {
    let dir = tempfile::tempdir().unwrap();
    let closed = dir.path().join("closed");
    let inner = closed.join("inner").display().to_string();
    fs::create_dir_all(&inner).unwrap();
    let path = dir.path().join("appliance.toml");
    let text = format!(
        "dir = \"{inner}/journal\"\nlisten = \"127.0.0.1:0\"\n[ring]\nname = \"book\"\ndir = \"{inner}\"\n\
         [capture]\nfile = \"{inner}/a.pcapng\"\n"
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let Some(output) = as_nobody(&["doctor", "--json", "--config", path.to_str().unwrap()]) else { return };
    json(&output);
}
