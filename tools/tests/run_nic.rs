//! `ticktape run` on interfaces: what it uses, what it refuses and in which words, and what it falls back to.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use ticktape_nic::lab::{self, A, B, Lab};

/// A lab, or a word on why there is none.
fn lab(hint: &str) -> Option<Lab> {
    match lab::available() {
        Ok(()) => Some(Lab::new(hint).unwrap_or_else(|error| panic!("{error}"))),
        Err(why) => {
            skip(&why);
            None
        }
    }
}

fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Whether privileges can be taken away; says so if not.
fn can_drop() -> bool {
    let found = Command::new("setpriv").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        skip("setpriv (util-linux) is not installed");
    }
    found
}

fn ticktape(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktape"));
    command.args(args).stdin(Stdio::null());
    command
}

/// The one line of complaint about what was asked for.
fn complaint(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    errors
}

/// What an appliance says of its network; it is stopped then, and has to end well.
fn nic_line(mut child: Child) -> String {
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("nic ") {
        line.clear();
        if output.read_line(&mut line).unwrap() == 0 {
            let mut errors = String::new();
            child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            panic!("it never tells: {errors}");
        }
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    line
}

fn spawn(lab: &Lab, command: &mut Command) -> Child {
    lab.spawn_command(A, command.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap()
}

/// The flags of an appliance at a lab's first end, of service `counter`, in `dir`.
fn flags(lab: &Lab, dir: &Path) -> Vec<String> {
    let listen = format!("{}:0", lab.side(A).ip);
    ["run", "--service", "counter", "--listen", &listen, "--dir", dir.to_str().unwrap()].map(String::from).to_vec()
}

#[test]
fn an_interface_for_kernel_udp_is_refused_with_its_address() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("journal");
    let common = ["run", "--dir", dir.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let text = complaint(&ticktape(&[&common[..], &["--nic", "udp", "--interface", "lo"]].concat()).output().unwrap());
    assert!(text.contains("--interface lo is for XDP") && text.contains("--listen on an address of it"), "{text}");
    assert!(text.contains("--nic xdp"), "{text}");
    let text = complaint(&ticktape(&[&common[..], &["--nic", "xdp"]].concat()).output().unwrap());
    assert!(text.contains("--nic xdp needs an interface") && text.contains("--interface NAME"), "{text}");
    assert!(!dir.exists(), "nothing is touched");
}

#[test]
fn a_file_with_both_says_that_its_interface_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("box.toml");
    let journal = dir.path().join("journal");
    let text = format!("dir = {journal:?}\nlisten = \"127.0.0.1:0\"\nnic = \"udp\"\n[xdp]\ninterface = \"eth9\"\n");
    std::fs::write(&file, text).unwrap();
    let mut command = ticktape(&["run", "--service", "counter", "--config", file.to_str().unwrap()]);
    let line = nic_line(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    assert!(line.contains("kernel UDP") && line.contains("[xdp] interface = \"eth9\" is not used"), "{line}");
}

#[test]
fn busy_polling_reaches_sockets_of_both_kinds() {
    let Some(lab) = lab("busypoll") else { return };
    for (nic, backend) in [("udp", "kernel UDP"), ("xdp", "AF_XDP")] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("box.toml");
        let xdp = if nic == "xdp" { "[xdp]\ninterface = \"veth-a\"\n" } else { "" };
        let journal = dir.path().join("journal");
        let text =
            format!("dir = {journal:?}\nlisten = \"{}:0\"\nnic = \"{nic}\"\nbusy_poll_us = 37\n{xdp}", lab.side(A).ip);
        std::fs::write(&file, text).unwrap();
        let mut command = ticktape(&["run", "--service", "counter", "--config", file.to_str().unwrap()]);
        let line = nic_line(spawn(&lab, &mut command));
        assert!(line.contains(backend) && line.contains("busy poll 37 µs"), "{line}");
        assert!(!line.contains("refused ("), "{line}");
        assert!(nic == "udp" || line.contains("64 packets"), "with its budget: {line}");
    }
}

#[test]
fn an_interface_without_a_carrier_is_named_at_the_start() {
    let Some(lab) = lab("nocarrier") else { return };
    lab.set_link(B, false).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut args = flags(&lab, &dir.path().join("journal"));
    args.extend(["--nic", "xdp", "--interface", "veth-a"].map(String::from));
    let line = nic_line(spawn(&lab, Command::new(env!("CARGO_BIN_EXE_ticktape")).args(args).stdin(Stdio::null())));
    assert!(line.contains("NO CARRIER") && line.contains("veth-a's cable or other end"), "{line}");
}

/// What XDP takes. CAP_DAC_OVERRIDE and its like stay away throughout: this user owns all files of the tests.
const NEEDED: [&str; 4] = ["net_admin", "net_raw", "bpf", "perfmon"];

/// What frees from the limit on locked memory.
const UNLIMITED: &str = "ipc_lock";

/// An appliance on XDP or on what works, with these capabilities alone. Without [`UNLIMITED`] it may lock 64 KiB, which is
/// less than all frames take.
fn restricted(lab: &Lab, nic: &str, dir: &Path, capabilities: &[&str]) -> Command {
    let kept: String = capabilities.iter().map(|name| format!(",+{name}")).collect();
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -l 64 && exec setpriv \"$@\"", "sh"])
        .args([format!("--bounding-set=-all{kept}"), "--inh-caps=-all".to_string()])
        .arg(env!("CARGO_BIN_EXE_ticktape"))
        .args(flags(lab, dir))
        .args(["--nic", nic, "--interface", "veth-a"])
        .stdin(Stdio::null());
    command
}

#[test]
fn each_missing_privilege_is_named_with_the_remedy_and_auto_goes_on_without() {
    let Some(lab) = lab("privileges") else { return };
    if !can_drop() {
        return;
    }
    let all = [&NEEDED[..], &[UNLIMITED]].concat();
    let without = |gone: &str| all.iter().copied().filter(|&name| name != gone).collect::<Vec<_>>();
    let all_four = "run as root, or grant CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON";
    let memory = "raise RLIMIT_MEMLOCK (ulimit -l unlimited), or grant CAP_IPC_LOCK";
    let cases = [
        (without("net_raw"), "cannot open an XDP socket", all_four),
        (without("bpf"), "cannot create a BPF map", all_four),
        (without("net_admin"), "cannot create a BPF map", all_four),
        (without("perfmon"), "cannot load an XDP program", all_four),
        (vec![], "cannot ", all_four),
        (without(UNLIMITED), "bytes for frames", memory),
    ];
    for (kept, what, remedy) in &cases {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("journal");
        let mut command = restricted(&lab, "xdp", &journal, kept);
        let output = lab.run(A, || command.output()).unwrap();
        let text = complaint(&output);
        assert!(text.contains(what) && text.contains(remedy), "with {kept:?}: {text}");

        let line = nic_line(spawn(&lab, &mut restricted(&lab, "auto", &journal, kept)));
        assert!(line.contains("kernel UDP") && line.contains("auto: XDP can't be had: "), "{line}");
        assert!(line.contains(what) && line.contains(remedy), "with {kept:?}: {line}");
    }
    // And with just what is named it is granted.
    let dir = tempfile::tempdir().unwrap();
    let line = nic_line(spawn(&lab, &mut restricted(&lab, "auto", dir.path(), &all)));
    assert!(line.contains("AF_XDP") && line.contains("auto: the interface grants it"), "{line}");
}
