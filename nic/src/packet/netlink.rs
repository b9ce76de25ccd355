//! Questions to the kernel's routing tables (rtnetlink(7)). They concern the network namespace of the thread that opened
//! the socket, unlike `/sys`, which shows the one that it was mounted in.
//!
//! Answers come from the kernel alone. Their lengths are checked all the same, and nothing is read past them.

use std::io::{self, Read as _};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// nlmsghdr: length, type, flags, sequence, port.
const HEADER_BYTES: usize = 16;
/// rtattr: length, type.
const ATTRIBUTE_BYTES: usize = 4;
/// The two top bits of an attribute's type are flags.
const ATTRIBUTE_TYPE_MASK: u16 = 0x3fff;
/// The kernel's own largest answer in one datagram is 32 KiB.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// The kernel answers within the call that asks. Only a bug makes this run out.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Datagrams of one answer: thousands of interfaces.
const ANSWER_DATAGRAMS_MAX: usize = 4_096;

/// What kind of question it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One thing.
    Get,
    /// All things of a sort.
    Dump,
    /// A thing to be made, if it is not there.
    Create,
}

/// A question.
#[derive(Debug)]
pub struct Request {
    bytes: Vec<u8>,
    kind: Kind,
}

impl Request {
    /// One of a type, with its fixed part.
    pub fn new(message: u16, kind: Kind, fixed: &[u8]) -> Request {
        let flags = libc::NLM_F_REQUEST
            | match kind {
                Kind::Get => 0,
                Kind::Dump => libc::NLM_F_DUMP,
                Kind::Create => libc::NLM_F_CREATE | libc::NLM_F_ACK,
            };
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&message.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags as u16).to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Request { bytes, kind }
    }

    /// Adds an attribute.
    pub fn with(mut self, attribute: u16, value: &[u8]) -> Request {
        let len = (ATTRIBUTE_BYTES + value.len()) as u16;
        self.bytes.extend_from_slice(&len.to_ne_bytes());
        self.bytes.extend_from_slice(&attribute.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }
}

/// A socket to ask with.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    seq: u32,
    buffer: Box<[u8]>,
}

impl Netlink {
    /// Opens one in the calling thread's namespace.
    pub fn open() -> io::Result<Netlink> {
        let socket = Socket::new(
            Domain::from(libc::AF_NETLINK),
            Type::RAW.cloexec(),
            Some(Protocol::from(libc::NETLINK_ROUTE)),
        )?;
        socket.set_read_timeout(Some(ANSWER_WAIT))?;
        Ok(Netlink { socket, seq: 0, buffer: vec![0; ANSWER_BYTES_MAX].into() })
    }

    /// Asks, and hands each message of the answer to `take`: its type, and what follows its header.
    pub fn ask(&mut self, mut request: Request, mut take: impl FnMut(u16, &[u8])) -> io::Result<()> {
        self.seq = self.seq.wrapping_add(1);
        let len = request.bytes.len() as u32;
        request.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        request.bytes[8..12].copy_from_slice(&self.seq.to_ne_bytes());
        self.socket.send(&request.bytes)?;
        for _ in 0..ANSWER_DATAGRAMS_MAX {
            let len = self.socket.read(&mut self.buffer)?;
            if walk(&self.buffer[..len], self.seq, request.kind, &mut take)? {
                return Ok(());
            }
        }
        Err(io::Error::other("an endless answer of the kernel's routing tables"))
    }
}

/// Goes through the messages of one datagram; whether the answer ends with it.
fn walk(mut rest: &[u8], seq: u32, kind: Kind, take: &mut impl FnMut(u16, &[u8])) -> io::Result<bool> {
    while let Some(header) = rest.first_chunk::<HEADER_BYTES>() {
        let len = u32_at(header, 0) as usize;
        let body = rest.get(HEADER_BYTES..len).ok_or_else(|| io::Error::other("a cut answer of the routing tables"))?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        // Late answers to an earlier question that was given up.
        if u32_at(header, 8) != seq {
            continue;
        }
        match i32::from(u16_at(header, 4)) {
            libc::NLMSG_DONE => return Ok(true),
            libc::NLMSG_ERROR => {
                let error = body.first_chunk().map_or(-libc::EPROTO, |code| i32::from_ne_bytes(*code));
                return if error == 0 { Ok(true) } else { Err(io::Error::from_raw_os_error(-error)) };
            }
            libc::NLMSG_NOOP | libc::NLMSG_OVERRUN => {}
            message => take(message as u16, body),
        }
        if kind == Kind::Get {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The attributes behind a message's fixed part, by type.
pub fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = rest.first_chunk::<ATTRIBUTE_BYTES>()?;
        let len = usize::from(u16_at(header, 0));
        let value = rest.get(ATTRIBUTE_BYTES..len)?;
        let kind = u16_at(header, 2) & ATTRIBUTE_TYPE_MASK;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// A value as a number; `None` where it is too short.
pub fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// A value as text, up to its zero.
pub fn text(value: &[u8]) -> String {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: i32, seq: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&(kind as u16).to_ne_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&seq.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn walked(bytes: &[u8], kind: Kind) -> (io::Result<bool>, Vec<(u16, Vec<u8>)>) {
        let mut got = Vec::new();
        let result = walk(bytes, 5, kind, &mut |kind, body: &[u8]| got.push((kind, body.to_vec())));
        (result, got)
    }

    #[test]
    fn answers_are_taken_up_to_their_end() {
        let bytes = [message(16, 4, b"late"), message(16, 5, b"one"), message(16, 5, b"two"), message(3, 5, &[0; 4])];
        let (end, got) = walked(&bytes.concat(), Kind::Dump);
        assert!(end.expect("no error"));
        assert_eq!(got, [(16, b"one".to_vec()), (16, b"two".to_vec())]);
        let (end, got) = walked(&bytes[..2].concat(), Kind::Get);
        assert!(end.expect("no error") && got.len() == 1);
        assert!(!walked(&bytes[..2].concat(), Kind::Dump).0.expect("no error"));
    }

    #[test]
    fn refusals_are_told_and_cut_answers_noticed() {
        let refused = walked(&message(2, 5, &(-libc::ENODEV).to_ne_bytes()), Kind::Get).0;
        assert_eq!(refused.expect_err("refused").raw_os_error(), Some(libc::ENODEV));
        assert!(walked(&message(2, 5, &[0; 4]), Kind::Create).0.expect("no error"));
        let cut = message(16, 5, b"body");
        assert!(walked(&cut[..cut.len() - 1], Kind::Get).0.is_err());
        assert!(walked(&[0; HEADER_BYTES], Kind::Get).0.is_err());
    }

    #[test]
    fn attributes_end_where_they_claim_too_much() {
        let request = Request::new(0, Kind::Get, &[]).with(1, b"odd").with(0x8002, &7u32.to_ne_bytes());
        let rest = &request.bytes[HEADER_BYTES..];
        let found: Vec<_> = attributes(rest).collect();
        assert_eq!(found, [(1, &b"odd"[..]), (2, &7u32.to_ne_bytes()[..])]);
        assert_eq!(number(found[1].1), Some(7));
        for cut in 0..rest.len() {
            assert!(attributes(&rest[..cut]).count() < 2, "cut at {cut}");
        }
        assert_eq!(attributes(&[3, 0, 1, 0]).count(), 0);
    }
}
