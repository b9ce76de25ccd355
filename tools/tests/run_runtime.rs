//! What `ticktape run` and `ticktape follow` ask the kernel and the service manager for: what they can't have they say, and work; and the
//! threads that they show to others.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// An ordinary user.
const NOBODY: u32 = 65_534;
/// Nothing here takes so long, on any box.
const PATIENCE: Duration = Duration::from_secs(120);

const EVERYTHING: &str = "[runtime]\nscheduler = \"fifo:10\"\nlock_memory = true\nhold_cpu_latency_us = 0\n";

/// An appliance's file in `dir`, on whichever port is free.
fn config(dir: &Path, runtime: &str) -> String {
    let path = dir.join("appliance.toml");
    let journal = dir.join("journal");
    let text = format!(
        "service = \"counter\"\ndir = {journal:?}\nlisten = \"127.0.0.1:0\"\ntier = \"memory\"\nnic = \"udp\"\nidle = \"backoff\"\n[journal]\nsegment_bytes = 1048576\n{runtime}"
    );
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Runs it up to its last line of the start.
fn serve(command: &mut Command) -> (Child, Vec<String>) {
    run_until(command, |line| line.starts_with("serving"))
}

/// Runs it up to a line that it says.
fn run_until(command: &mut Command, is_last: impl Fn(&str) -> bool) -> (Child, Vec<String>) {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Vec::new();
    for line in BufReader::new(child.stdout.as_mut().unwrap()).lines().map_while(Result::ok) {
        lines.push(line);
        if lines.last().is_some_and(|line| is_last(line)) {
            return (child, lines);
        }
    }
    panic!("it ended: {lines:?}, {:?}", child.wait());
}

/// The names of its threads, and each one's policy; but for those that the kernel makes for io_uring.
fn threads(child: &Child) -> BTreeMap<String, String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().map(|task| task.unwrap().path());
    let named = tasks.filter_map(|task| {
        let name = fs::read_to_string(task.join("comm")).ok()?.trim_end().to_owned();
        let stat = fs::read_to_string(task.join("stat")).ok()?;
        // Fields after the name in parentheses begin with the third; the policy is the 41st.
        let policy = stat.rsplit_once(')')?.1.split_whitespace().nth(41 - 3)?.to_owned();
        (!name.starts_with("iou-")).then_some((name, policy))
    });
    named.collect()
}

/// Looks at its threads once for each line that it says, a second apart, until they are as they should be: a thread has its name and its
/// standing when it first runs.
fn wait_for_threads(child: &mut Child, is_right: impl Fn(&BTreeMap<String, String>) -> bool) {
    for _ in 0..PATIENCE.as_secs() {
        if is_right(&threads(child)) {
            return;
        }
        // What a buffer takes away besides is only lines, too.
        let mut line = String::new();
        assert!(BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap() > 0, "it ended");
    }
    panic!("it has {:?}", threads(child));
}

/// These threads and no other, each with its policy.
fn exactly<'a>(expected: &'a [(&str, &str)]) -> impl Fn(&BTreeMap<String, String>) -> bool + 'a {
    move |found| {
        found.len() == expected.len()
            && expected.iter().all(|(name, policy)| found.get(*name).is_some_and(|p| p == policy))
    }
}

/// Stops it with a signal, as an operator would.
fn stop(mut child: Child) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
}

fn line<'a>(lines: &'a [String], key: &str) -> &'a str {
    lines.iter().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("no {key}: {lines:?}"))
}

#[test]
fn without_rights_and_with_one_core_it_says_what_it_could_not_have_and_serves() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("ticktape");
    fs::copy(env!("CARGO_BIN_EXE_ticktape"), &program).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let config = config(dir.path(), EVERYTHING);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim();
    let core = field("Cpus_allowed_list:").split([',', '-']).next().unwrap();
    let program = program.to_str().unwrap();
    // A limit on locked memory, as any ordinary user has one.
    let mut command = Command::new("prlimit");
    command.args(["--memlock=8192:8192", "--rtprio=0:0", "taskset", "-c", core, program, "run", "--config", &config]);
    command.current_dir("/");
    if field("Uid:").starts_with("0\t") {
        command.uid(NOBODY).gid(NOBODY);
    }
    if Command::new("prlimit").arg("--version").output().is_err() {
        let _ = writeln!(std::io::stderr(), "skipped: there is no prlimit here");
        return;
    }
    let (child, lines) = serve(&mut command);
    let runtime = line(&lines, "runtime");
    for said in [
        "memory not locked",
        "8192 bytes only",
        "CAP_IPC_LOCK",
        "not under SCHED_FIFO 10",
        "CAP_SYS_NICE",
        "cores not held awake",
    ] {
        assert!(runtime.contains(said), "{said}: {runtime}");
    }
    assert!(line(&lines, "cores").ends_with("(1 usable)"), "{lines:?}");
    let at = line(&lines, "counter on ").split([' ', ',']).nth(2).unwrap().to_owned();
    let load = Command::new(env!("CARGO_BIN_EXE_ticktape"))
        .args(["load", "--to", &at, "--service", "counter", "--rate", "200", "--seconds", "1", "--warmup", "0"])
        .output()
        .unwrap();
    assert!(load.status.success(), "{}", String::from_utf8_lossy(&load.stderr));
    stop(child);
}

#[test]
fn what_it_has_is_said_in_one_line_and_stands_in_proc() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), EVERYTHING);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktape"));
    let (mut child, lines) = serve(command.args(["run", "--config", &config, "--status", "1"]));
    let runtime = line(&lines, "runtime");
    let proc = format!("/proc/{}", child.id());
    let locked = fs::read_to_string(format!("{proc}/status")).unwrap();
    let locked = locked.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap().trim().to_owned();
    assert_eq!(runtime.contains("memory locked"), locked != "0 kB", "{runtime}, {locked}");
    let expected = if runtime.contains("stages under SCHED_FIFO 10") { "1" } else { "0" };
    wait_for_threads(&mut child, |found| found.get("tt-sequencer").is_some_and(|policy| policy == expected));
    stop(child);
}

#[test]
fn a_service_manager_is_told_when_it_serves_that_it_lives_and_when_it_stops() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let next = || {
        let mut buffer = [0; 64];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let config = config(dir.path(), "");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktape"));
    command.args(["run", "--config", &config]).env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000");
    let (child, lines) = serve(&mut command);
    assert!(!lines.iter().any(|line| line.starts_with("runtime")), "nothing was asked for: {lines:?}");
    assert_eq!(next(), "READY=1");
    assert_eq!([next(), next()], ["WATCHDOG=1", "WATCHDOG=1"]);
    stop(child);
    let last = std::iter::repeat_with(next).find(|told| told != "WATCHDOG=1");
    assert_eq!(last.as_deref(), Some("STOPPING=1"));
    let (child, lines) = serve(command.env("NOTIFY_SOCKET", dir.path().join("nobody")));
    assert!(line(&lines, "notify").contains("nobody is told"), "{lines:?}");
    stop(child);
}

#[test]
fn threads_of_an_appliance_and_of_its_replica_are_named_after_what_they_do() {
    let dir = tempfile::tempdir().unwrap();
    let port = || UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (feed, capture) = (port(), dir.path().join("link.pcapng"));
    let tables =
        format!("[snapshots]\n[feed]\na = \"{feed}\"\nrepair = \"127.0.0.1:0\"\n[capture]\nfile = {capture:?}\n");
    let path = config(dir.path(), &tables);
    let plan = "sequencer|executor|egress|journaler|publisher";
    let mut leader = Command::new(env!("CARGO_BIN_EXE_ticktape"));
    let (mut leader, lines) =
        serve(leader.args(["run", "--config", &path, "--cores", plan, "--status", "1", "--runtime", "lock_memory"]));
    assert!(line(&lines, "runtime").contains("memory"), "a flag does as the table: {lines:?}");
    let stages = ["tt-sequencer", "tt-executor", "tt-egress", "tt-journaler", "tt-publisher"];
    let beside = ["ticktape", "tt-shadow", "tt-capture", "tt-feed-server", "tt-catchup"];
    let expected: Vec<_> = stages.into_iter().chain(beside).map(|name| (name, "0")).collect();
    wait_for_threads(&mut leader, exactly(&expected));

    let (feed, journal) = (feed.to_string(), dir.path().join("replica"));
    let repair = line(&lines, "repair").split([' ', ':']).find_map(|word| word.parse::<u16>().ok()).unwrap();
    let mut replica = Command::new(env!("CARGO_BIN_EXE_ticktape"));
    replica.args(["follow", "--feed", &feed, "--repair", &format!("127.0.0.1:{repair}"), "--serve", "127.0.0.1:0"]);
    replica.args(["--service", "counter", "--no-metrics", "--segment-bytes", "1048576", "--dir"]).arg(journal);
    let wishes = "scheduler=fifo:10,lock_memory,hold_cpu_latency_us=0";
    let (mut replica, lines) = run_until(replica.args(["--runtime", wishes]), |line| line.starts_with("runtime"));
    let runtime = line(&lines, "runtime");
    assert!(["memory", "SCHED_FIFO 10", "awake"].iter().all(|said| runtime.contains(said)), "{runtime}");
    let first = if runtime.contains("intake and journaler under SCHED_FIFO 10") { "1" } else { "0" };
    let others = ["ticktape", "tt-replica", "tt-executor", "tt-feed-server", "tt-catchup"];
    let expected = ["tt-intake", "tt-journaler"].map(|name| (name, first)).into_iter();
    let expected: Vec<_> = expected.chain(others.map(|name| (name, "0"))).collect();
    wait_for_threads(&mut replica, exactly(&expected));
    stop(replica);
    stop(leader);
}
