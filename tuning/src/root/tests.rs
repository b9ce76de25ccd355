use std::path::Path;

use super::*;
use proptest::prelude::*;

const BOX: &str = "\
# a box
== sys/devices/system/cpu/online
0-1
== sys/class/net/eth0/device/driver -> ../../bus/pci/drivers/ice
== sys/block/vda/mq/0/
== dev/cpu_dma_latency !denied
== ticktape/ethtool-a-eth0.txt !failed netlink error: Operation not supported
== proc/empty
== sys/cpu{8-10}/siblings
{n},{n+32} {n-8}
";

fn recorded(text: &str) -> Root {
    Root::recorded(text.parse().unwrap())
}

#[test]
fn a_recording_answers_as_the_box_would() {
    let root = recorded(BOX);
    assert_eq!(root.text("sys/devices/system/cpu/online").unwrap(), "0-1");
    assert_eq!(root.text("proc/empty").unwrap(), "");
    assert_eq!(root.link("sys/class/net/eth0/device/driver").unwrap(), "../../bus/pci/drivers/ice");
    assert_eq!(root.names("sys/block/vda/mq").unwrap(), ["0"]);
    assert_eq!(root.names("sys").unwrap(), ["block", "class", "cpu10", "cpu8", "cpu9", "devices"]);
    assert_eq!(root.text("dev/cpu_dma_latency").unwrap_err().why, Why::Denied);
    assert_eq!(root.text("proc/none").unwrap_err().why, Why::Missing);
    assert_eq!(root.names("proc/none").unwrap_err().why, Why::Missing);
    assert!(matches!(root.text("sys/class/net/eth0/device/driver").unwrap_err().why, Why::Malformed(_)));
    assert_eq!(root.text("sys/cpu9/siblings").unwrap(), "9,41 1");
}

#[test]
fn what_was_read_is_a_recording_of_the_same_answers() {
    let first = recorded(BOX);
    let ask = |root: &Root| {
        (
            root.text("sys/devices/system/cpu/online"),
            root.text("proc/empty"),
            root.names("sys/block/vda/mq"),
            root.link("sys/class/net/eth0/device/driver"),
            root.text("dev/cpu_dma_latency"),
            root.text("sys/cpu10/siblings"),
            root.names("proc/none"),
            root.ethtool('a', "eth0"),
        )
    };
    let answers = ask(&first);
    let text = first.seen().to_string();
    assert!(!text.contains("cpu9"), "nobody asked for it: {text}");
    assert_eq!(ask(&recorded(&text)), answers, "{text}");
}

#[test]
fn lines_that_nobody_needs_are_not_recorded() {
    let root = recorded("== proc/cmdline\nroot=UUID=secret\nisolcpus=1\n");
    let text = root.kept("proc/cmdline", |line| line.starts_with("isolcpus").then(|| line.to_owned()));
    assert_eq!(text.unwrap(), "isolcpus=1");
    assert!(!root.seen().to_string().contains("secret"));
}

#[test]
fn a_box_is_told_by_its_differences() {
    let changes = "== proc/empty !missing\n== sys/devices/system/cpu/online\n0\n".parse().unwrap();
    let root = Root::recorded(BOX.parse::<Recording>().unwrap().with(&changes));
    assert_eq!(root.text("sys/devices/system/cpu/online").unwrap(), "0");
    assert!(root.text("proc/empty").unwrap_err().is_missing());
}

#[test]
fn what_is_no_recording_is_refused_with_its_line() {
    for (text, line) in [
        ("hello", 1),
        ("== a\nx\n== ../etc/passwd\n", 3),
        ("== /etc/passwd\n", 1),
        ("== a/\ntext\n", 1),
        ("== a{1-}\n", 1),
        ("== a{9-1}\n", 1),
        ("== a{0-99999}\n", 1),
        ("== a{0-1}\n{n-1}\n", 1),
        ("== a{0-1}\n{n\n", 1),
    ] {
        let error = text.parse::<Recording>().unwrap_err();
        assert_eq!(error.line, line, "{text}: {error}");
    }
}

#[test]
fn this_box_is_read_and_told_as_a_recording() {
    let root = Root::live();
    assert!(root.is_live());
    assert!(root.text("proc/sys/kernel/osrelease").unwrap().starts_with(|c: char| c.is_ascii_digit()));
    assert!(root.names("proc/sys").unwrap().contains(&"kernel".to_owned()));
    assert!(matches!(root.text("proc/sys").unwrap_err().why, Why::Malformed(_)));
    let space = root.space(Path::new("/no/such/directory/yet")).unwrap();
    assert_eq!(space.split(' ').filter(|word| word.parse::<u64>().is_ok()).count(), 2, "{space}");
    let again = recorded(&root.seen().to_string());
    assert_eq!(again.space(Path::new("/elsewhere")).unwrap(), space);
}

#[test]
fn a_directory_without_a_box_in_it_is_refused() {
    let error = Root::open(Path::new("/proc/sys/kernel")).unwrap_err();
    assert!(error.to_string().contains("neither proc nor sys"), "{error}");
    assert!(Root::open(Path::new("/no/such/box")).unwrap_err().is_missing());
    assert!(Root::open(Path::new("/")).unwrap().is_live());
}

proptest! {
    #[test]
    fn any_text_is_a_recording_or_refused(text in "(== ?|[a-z/{}0-9n+-]{0,12}|\n|->| !denied| !failed x){0,40}") {
        if let Ok(recording) = text.parse::<Recording>() {
            let again: Recording = recording.to_string().parse().unwrap();
            prop_assert!(again.len() <= recording.len());
        }
    }
}

#[test]
fn links_of_a_directory_lead_nowhere_beyond_it() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (root, outside) = (dir.path(), outside.path());
    for below in ["proc/sys", "sys/real"] {
        fs::create_dir_all(root.join(below)).unwrap();
    }
    fs::write(root.join("sys/real/value"), "inside").unwrap();
    fs::write(outside.join("value"), "theirs").unwrap();
    let link = |target: &Path, name: &str| std::os::unix::fs::symlink(target, root.join(name)).unwrap();
    link(&outside.join("value"), "sys/absolute");
    link(outside, "sys/directory");
    link(Path::new("../../../../../../../../../../../../etc/passwd"), "sys/above");
    // As the kernel's own are, which lead to what the box has there.
    link(Path::new("/sys/real/value"), "sys/within");
    link(Path::new("real"), "sys/beside");

    let (read, settings) = (Root::open(root).unwrap(), DirectorySettings::open(root).unwrap());
    for path in ["sys/absolute", "sys/directory/value", "sys/above"] {
        assert!(read.text(path).unwrap_err().is_missing(), "{path}");
        assert!(settings.may_write(path).is_err() && settings.write(path, b"ours").is_err(), "{path}");
    }
    assert!(read.names("sys/directory").is_err());
    assert_eq!(read.link("sys/above").unwrap(), "../../../../../../../../../../../../etc/passwd");
    for path in ["sys/within", "sys/beside/value"] {
        assert_eq!(read.text(path).as_deref(), Ok("inside"), "{path}");
    }
    assert_eq!(read.names("sys/beside").unwrap(), ["value"]);
    settings.write("sys/within", b"changed").unwrap();
    assert_eq!(fs::read(root.join("sys/real/value")).unwrap(), b"changed");
    assert_eq!(fs::read(outside.join("value")).unwrap(), b"theirs");
}
