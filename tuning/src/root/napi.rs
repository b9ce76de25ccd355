//! What the kernel's `netdev` family of generic netlink tells of an interface's NAPIs, by which it polls a queue: settings that stand in
//! no file. No right is needed to ask.
//!
//! ```text
//!   message: length u32, type u16, flags u16, sequence u32, port u32; command u8, version u8, 0 u16; attributes
//!   attribute: length u16, type u16, value; padded to 4 bytes
//! ```
//!
//! Numbers are those of `linux/netlink.h`, `linux/genetlink.h` and, since Linux 6.8, `linux/netdev.h`; all in the machine's own order.

use std::fmt::Write;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netlink, recv, send, socket};

const HEADER_BYTES: usize = 16;
const GENERIC_BYTES: usize = 4;
/// Of answers: the kernel's own messages stay below.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Answers to one question: thousands of queues fit into fewer.
const ANSWERS_MAX: usize = 1_024;

const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;
const ERROR: u16 = 2;
const DONE: u16 = 3;

const CONTROL: u16 = 16;
const CONTROL_GET_FAMILY: u8 = 3;
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;

const NAPI_GET: u8 = 11;
const NAPI_INTERFACE: u16 = 1;
const NAPI_ID: u16 = 2;
/// `napi_defer_hard_irqs`, `gro_flush_timeout` and `irq-suspend-timeout` of one NAPI.
const NAPI_SETTINGS: [u16; 3] = [5, 6, 7];

/// Of each NAPI of an interface, by its index, a line: its number, then its settings, with `-` for one that this kernel has not.
pub(super) fn napis(index: u32) -> io::Result<String> {
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, Some(netlink::GENERIC))?;
    let name = attribute(CONTROL_FAMILY_NAME, b"netdev\0");
    let family = ask(&socket, CONTROL, REQUEST, CONTROL_GET_FAMILY, &name)?;
    let family = family.first().and_then(|answer| number(answer, CONTROL_FAMILY_ID)).ok_or(ErrorKind::InvalidData)?;
    let family = u16::try_from(family).map_err(io::Error::other)?;
    let interface = attribute(NAPI_INTERFACE, &index.to_ne_bytes());
    let answers = ask(&socket, family, REQUEST | DUMP, NAPI_GET, &interface)?;
    let mut text = String::new();
    for answer in &answers {
        let mut field = |kind| match number(answer, kind) {
            Some(value) => write!(text, "{value} "),
            None => write!(text, "- "),
        };
        [NAPI_ID].into_iter().chain(NAPI_SETTINGS).try_for_each(&mut field).map_err(io::Error::other)?;
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    Ok(text)
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).expect("what is asked for is short");
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The attributes of each answer.
fn ask(socket: &OwnedFd, kind: u16, flags: u16, command: u8, attributes: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let length = u32::try_from(HEADER_BYTES + GENERIC_BYTES + attributes.len()).map_err(io::Error::other)?;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    send(socket, &message, SendFlags::empty())?;
    let (mut found, mut buffer) = (Vec::new(), vec![0; ANSWER_BYTES_MAX]);
    for _ in 0..ANSWERS_MAX {
        let (received, _) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
        if take(&buffer[..received], &mut found)? || flags & DUMP == 0 {
            return Ok(found);
        }
    }
    Err(io::Error::other("answers without an end"))
}

/// Adds the attributes of each message to `found`; whether that was the last.
fn take(mut datagram: &[u8], found: &mut Vec<Vec<u8>>) -> io::Result<bool> {
    let malformed = || io::Error::from(ErrorKind::InvalidData);
    while !datagram.is_empty() {
        let length = word(datagram, 0).ok_or_else(malformed)? as usize;
        let message = datagram.get(..length).filter(|_| length >= HEADER_BYTES).ok_or_else(malformed)?;
        match u16::from_ne_bytes([message[4], message[5]]) {
            DONE => return Ok(true),
            ERROR => {
                let error = word(message, HEADER_BYTES).ok_or_else(malformed)?.cast_signed();
                return if error == 0 { Ok(true) } else { Err(io::Error::from_raw_os_error(error.saturating_neg())) };
            }
            _ => found.push(message.get(HEADER_BYTES + GENERIC_BYTES..).ok_or_else(malformed)?.to_vec()),
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The first attribute of a kind, as a number of two, four or eight bytes.
fn number(mut attributes: &[u8], wanted: u16) -> Option<u64> {
    while let [a, b, c, d, ..] = *attributes {
        let (length, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        let value = attributes.get(4..length)?;
        // The two highest bits say how it is written.
        if kind & 0x3fff == wanted {
            return match *value {
                [a, b] => Some(u16::from_ne_bytes([a, b]).into()),
                [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d]).into()),
                _ => Some(u64::from_ne_bytes(value.try_into().ok()?)),
            };
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(kind: u16, attributes: &[u8]) -> Vec<u8> {
        let length = (HEADER_BYTES + GENERIC_BYTES + attributes.len()) as u32;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 14]);
        bytes.extend(attributes);
        bytes
    }

    #[test]
    fn answers_are_taken_up_to_the_last() {
        let napi = |id: u32| [attribute(NAPI_ID, &id.to_ne_bytes()), attribute(7, &20_000_u64.to_ne_bytes())].concat();
        let mut found = Vec::new();
        assert!(!take(&[message(20, &napi(8)), message(20, &napi(9))].concat(), &mut found).unwrap());
        assert!(take(&message(DONE, &[]), &mut found).unwrap());
        let numbers: Vec<_> = found.iter().map(|napi| [2, 5, 7].map(|kind| number(napi, kind))).collect();
        assert_eq!(numbers, [8, 9].map(|id| [Some(id), None, Some(20_000)]));
        // ENODEV, as an error has it: below zero.
        let refused = take(&message(ERROR, &[]), &mut found).unwrap();
        assert!(refused, "no error is an acknowledgement");
        let mut gone = message(ERROR, &[]);
        gone[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&(-19_i32).to_ne_bytes());
        assert_eq!(take(&gone, &mut found).unwrap_err().raw_os_error(), Some(19));
    }

    #[test]
    fn the_kernel_answers_or_has_no_such_family() {
        // Loopback has no NAPI. Who may not ask, or has an older kernel, is told so.
        match napis(1) {
            Ok(text) => assert_eq!(text, ""),
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
    }

    proptest! {
        #[test]
        fn garbage_is_no_panic_and_no_loop(datagram in prop::collection::vec(any::<u8>(), 0..200), kind in any::<u16>()) {
            let mut found = Vec::new();
            let _ = take(&datagram, &mut found);
            let _ = number(&datagram, kind);
        }
    }
}
