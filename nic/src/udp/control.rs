//! What the kernel attaches to a received datagram: the control messages, read without trusting their lengths.
//!
//! | offset | size | field | type |
//! |---|---|---|---|
//! | 0 | 8 | length, header included | u64 |
//! | 8 | 4 | level | i32 |
//! | 12 | 4 | type | i32 |
//! | 16 | n | data, then padding to 8 | bytes |

use std::net::Ipv4Addr;

const HEADER_BYTES: usize = 16;

/// The control messages of one datagram that matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Control {
    /// Receive time, in nanoseconds of the realtime clock.
    pub(super) stamp_realtime_ns: Option<u64>,
    /// The destination address of the packet.
    pub(super) destination: Option<Ipv4Addr>,
    /// Datagrams that the socket has dropped so far, modulo 2^32.
    pub(super) drops: Option<u32>,
}

impl Control {
    /// Reads the control messages in `bytes`; stops at the first that does not fit.
    pub(super) fn parse(mut bytes: &[u8]) -> Control {
        let mut control = Control::default();
        while let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) {
            let len = usize::from_ne_bytes(header[..8].try_into().expect("eight bytes"));
            let Some(data) = len.checked_sub(HEADER_BYTES).and_then(|n| rest.get(..n)) else { break };
            match (i32_at(header, 8), i32_at(header, 12)) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => control.stamp_realtime_ns = timespec_ns(data),
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => control.destination = pktinfo_destination(data),
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    control.drops = data.first_chunk::<4>().map(|&raw| u32::from_ne_bytes(raw));
                }
                _ => {}
            }
            let Some(after) = rest.get(data.len().next_multiple_of(8)..) else { break };
            bytes = after;
        }
        control
    }
}

/// Seconds and nanoseconds, 8 bytes each. `None` before the epoch, beyond 2^64 ns, or for an impossible fraction.
fn timespec_ns(data: &[u8]) -> Option<u64> {
    let (&seconds, rest) = data.split_first_chunk::<8>()?;
    let seconds = u64::try_from(i64::from_ne_bytes(seconds)).ok()?;
    let nanos = u64::from_ne_bytes(*rest.first_chunk::<8>()?);
    if nanos >= 1_000_000_000 {
        return None;
    }
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// Interface index, local address, destination address from the header: 4 bytes each.
fn pktinfo_destination(data: &[u8]) -> Option<Ipv4Addr> {
    data.get(8..12)?.first_chunk::<4>().map(|&octets| Ipv4Addr::from(octets))
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(out: &mut Vec<u8>, level: i32, kind: i32, data: &[u8]) {
        out.extend((HEADER_BYTES + data.len()).to_ne_bytes());
        out.extend(level.to_ne_bytes());
        out.extend(kind.to_ne_bytes());
        out.extend(data);
        out.resize(out.len().next_multiple_of(8), 0);
    }

    fn all_three() -> Vec<u8> {
        let mut out = Vec::new();
        message(&mut out, libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &[7i64.to_ne_bytes(), 9i64.to_ne_bytes()].concat());
        message(&mut out, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &5u32.to_ne_bytes());
        message(&mut out, libc::IPPROTO_IP, libc::IP_PKTINFO, &[1, 0, 0, 0, 127, 0, 0, 1, 239, 1, 2, 3]);
        out
    }

    #[test]
    fn all_three_are_read_in_any_company() {
        let mut bytes = Vec::new();
        message(&mut bytes, libc::SOL_SOCKET, 9999, b"odd");
        bytes.extend(all_three());
        assert_eq!(
            Control::parse(&bytes),
            Control {
                stamp_realtime_ns: Some(7_000_000_009),
                destination: Some(Ipv4Addr::new(239, 1, 2, 3)),
                drops: Some(5)
            }
        );
    }

    #[test]
    fn impossible_times_are_no_times() {
        for (seconds, nanos) in [(-1i64, 0i64), (0, 1_000_000_000), (0, -1), (i64::MAX, 0)] {
            let mut bytes = Vec::new();
            let data = [seconds.to_ne_bytes(), nanos.to_ne_bytes()].concat();
            message(&mut bytes, libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &data);
            assert_eq!(Control::parse(&bytes).stamp_realtime_ns, None, "{seconds}.{nanos}");
        }
    }

    #[test]
    fn a_length_of_nothing_ends_the_reading() {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.extend(all_three());
        assert_eq!(Control::parse(&bytes), Control::default());
    }

    proptest! {
        #[test]
        fn any_bytes_read_without_panic(bytes: Vec<u8>) {
            let _ = Control::parse(&bytes);
        }

        #[test]
        fn any_damage_reads_without_panic(at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
            let mut bytes = all_three();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let cut = cut.index(bytes.len() + 1);
            let _ = Control::parse(&bytes[..cut]);
        }
    }
}
