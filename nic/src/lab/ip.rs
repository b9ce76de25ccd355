//! The programs `ip` and `ethtool`: the one place that runs them and reads what they print.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::error::LabError;
use crate::packet::MacAddr;

/// A link as `ip` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index in its namespace.
    pub index: u32,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Its MTU, in bytes.
    pub mtu: u32,
    /// Whether it is set up.
    pub up: bool,
    /// Whether it is operational: up, with a carrier, and its queues are running.
    pub running: bool,
}

/// A program outside the terminal's foreground: a Ctrl-C is for whoever uses the lab, and neither its making nor its removal
/// is to stop half-way.
fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.process_group(0);
    command
}

/// Runs `ip` with some arguments, and returns what it printed.
pub(super) fn run(arguments: &[&str]) -> Result<String, LabError> {
    let mut command = program("ip");
    command.args(arguments).stdin(Stdio::null());
    let output = command.output().map_err(|error| LabError::Program { program: "ip".to_owned(), error })?;
    checked(&format!("ip {}", arguments.join(" ")), output)
}

/// Runs several of `ip`'s commands in one namespace, in order, until one fails.
pub(super) fn batch(namespace: &str, lines: &[String]) -> Result<(), LabError> {
    let failed = |error| LabError::Program { program: "ip".to_owned(), error };
    let mut child = program("ip")
        .args(["-n", namespace, "-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut script = lines.join("\n");
    script.push('\n');
    if let Some(mut stdin) = child.stdin.take() {
        // One that ended early says why on stderr.
        _ = stdin.write_all(script.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    checked(&format!("ip -n {namespace} [{}]", lines.join("; ")), output).map(drop)
}

/// Changes an interface's features. `ethtool` finds it by the caller's namespace.
pub(super) fn ethtool(namespace: &Path, interface: &str, features: &[&str]) -> Result<(), LabError> {
    let mut command = program("ethtool");
    command.args(["-K", interface]).args(features).stdin(Stdio::null());
    let output = super::within(namespace, || command.output())?
        .map_err(|error| LabError::Program { program: "ethtool".to_owned(), error })?;
    checked(&format!("ethtool -K {interface} {}", features.join(" ")), output).map(drop)
}

/// Reads a link's state.
pub(super) fn link(namespace: &str, interface: &str) -> Result<Link, LabError> {
    let text = run(&["-n", namespace, "-o", "link", "show", "dev", interface])?;
    parse_link(&text).ok_or_else(|| LabError::Answer {
        command: format!("ip -n {namespace} -o link show dev {interface}"),
        answer: one_line(text.as_bytes()),
    })
}

/// `2: veth-a@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP …\ link/ether 02:… brd …`
fn parse_link(text: &str) -> Option<Link> {
    let after = |word: &str| {
        let mut words = text.split_whitespace().skip_while(|&at| at != word);
        words.nth(1)
    };
    let flags = text.split_once('<')?.1.split_once('>')?.0;
    Some(Link {
        index: text.split_once(':')?.0.trim().parse().ok()?,
        mac: after("link/ether")?.parse().ok()?,
        mtu: after("mtu")?.parse().ok()?,
        up: flags.split(',').any(|flag| flag == "UP"),
        running: after("state")? == "UP",
    })
}

fn checked(command: &str, output: Output) -> Result<String, LabError> {
    if !output.status.success() {
        let reason = match one_line(&output.stderr) {
            said if said.is_empty() => output.status.to_string(),
            said => said,
        };
        return Err(LabError::Refused { command: command.to_owned(), reason });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn one_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_from_what_ip_prints() {
        let text = "2: veth-a@if3: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 3498 qdisc noqueue state UP mode DEFAULT group \
                    default qlen 1000\\    link/ether 9a:38:da:1c:b2:ff brd ff:ff:ff:ff:ff:ff link-netns b";
        let mac = MacAddr([0x9a, 0x38, 0xda, 0x1c, 0xb2, 0xff]);
        assert_eq!(parse_link(text), Some(Link { index: 2, mac, mtu: 3_498, up: true, running: true }));
        let down = text.replace("UP,LOWER_UP", "NO-CARRIER").replace("state UP", "state DOWN");
        assert_eq!(parse_link(&down), Some(Link { index: 2, mac, mtu: 3_498, up: false, running: false }));
        for end in 0..text.find(" brd").expect("in the text") - 1 {
            assert_eq!(parse_link(&text[..end]), None, "cut at {end}");
        }
    }
}
