//! Next hops, looked up on a thread of their own: the kernel's answers allocate and take microseconds, which no sending core has.
//!
//! ```text
//!   sending core ── wanted: address + generation ──► looking thread ──► kernel (routes, neighbours, ARP)
//!        └──────── answer: MAC + the same generation ◄────┘
//! ```
//!
//! One slot a destination. The generation tells an answer to what the slot held before.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::super::error::XdpError;
use super::super::limits::{NEXT_HOP_AGE_MAX, NEXT_HOP_RETRY_MAX, NEXT_HOP_RETRY_MIN};
use crate::packet::neighbour::{Neighbours, NextHop};
use crate::packet::{InterfaceInfo, MacAddr};

/// No question, or no answer. Generations are never 0, so that no word with one is.
pub(super) const NOTHING: u64 = 0;

/// A MAC address with the generation that it answers.
pub(super) fn answer(mac: MacAddr, generation: u16) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    let [high, low] = generation.to_be_bytes();
    u64::from_be_bytes([high, low, a, b, c, d, e, f])
}

/// What [`answer`] put together.
pub(super) fn parts(answer: u64) -> (MacAddr, u16) {
    let [high, low, mac @ ..] = answer.to_be_bytes();
    (MacAddr(mac), u16::from_be_bytes([high, low]))
}

fn question(ip: Ipv4Addr, generation: u16) -> u64 {
    u64::from(generation) << 32 | u64::from(u32::from(ip))
}

#[derive(Debug, Default)]
struct Slot {
    wanted: AtomicU64,
    answer: AtomicU64,
}

#[derive(Debug)]
struct Board {
    slots: Box<[Slot]>,
    stop: AtomicBool,
}

/// The sending core's end.
#[derive(Debug)]
pub(super) struct Hops {
    board: Arc<Board>,
    looker: Thread,
    thread: Option<JoinHandle<()>>,
}

impl Hops {
    /// Starts the thread, which inherits the caller's network namespace and cores.
    pub(super) fn start(slots: usize, interface: &InterfaceInfo) -> Result<Hops, XdpError> {
        let neighbours = Neighbours::open(interface, None).map_err(XdpError::Neighbours)?;
        let slots = (0..slots).map(|_| Slot::default()).collect();
        let board = Arc::new(Board { slots, stop: AtomicBool::new(false) });
        let for_thread = board.clone();
        let thread = thread::Builder::new()
            .name("tt-next-hops".to_owned())
            .spawn(move || look(&for_thread, neighbours))
            .map_err(XdpError::Thread)?;
        Ok(Hops { board, looker: thread.thread().clone(), thread: Some(thread) })
    }

    /// Asks for a destination's next hop. The slot's earlier question is forgotten.
    pub(super) fn ask(&self, slot: usize, ip: Ipv4Addr, generation: u16) {
        let slot = &self.board.slots[slot];
        // Relaxed: a late answer to the earlier question may overwrite this; its generation tells.
        slot.answer.store(NOTHING, Ordering::Relaxed);
        // Relaxed: the word is all there is to read.
        slot.wanted.store(question(ip, generation), Ordering::Relaxed);
        self.looker.unpark();
    }

    /// Withdraws the slot's question.
    pub(super) fn forget(&self, slot: usize) {
        self.board.slots[slot].wanted.store(NOTHING, Ordering::Relaxed);
    }

    /// The slot's answer: [`NOTHING`], or one to this question or an earlier one.
    #[inline]
    pub(super) fn answer(&self, slot: usize) -> u64 {
        // Relaxed: the word is all there is to read.
        self.board.slots[slot].answer.load(Ordering::Relaxed)
    }
}

impl Drop for Hops {
    fn drop(&mut self) {
        // Relaxed: unparking and joining order everything else.
        self.board.stop.store(true, Ordering::Relaxed);
        self.looker.unpark();
        if let Some(thread) = self.thread.take() {
            // One that panicked has answered nothing more; sending went on through the kernel.
            _ = thread.join();
        }
    }
}

/// The thread: answers new questions at once, repeats unanswered ones, and renews old answers.
fn look(board: &Board, mut neighbours: Neighbours) {
    let mut retry = NEXT_HOP_RETRY_MIN;
    let mut renewed = Instant::now();
    while !board.stop.load(Ordering::Relaxed) {
        let renew = renewed.elapsed() >= NEXT_HOP_AGE_MAX;
        if renew {
            renewed = Instant::now();
        }
        let (any, pending) = round(board, &mut neighbours, renew);
        let wait = match (any, pending) {
            (_, true) => retry,
            (true, false) => NEXT_HOP_AGE_MAX,
            // Until somebody asks: the next question unparks.
            (false, false) => Duration::from_secs(3_600),
        };
        retry = if pending { (retry * 2).min(NEXT_HOP_RETRY_MAX) } else { NEXT_HOP_RETRY_MIN };
        let begin = Instant::now();
        thread::park_timeout(wait);
        if begin.elapsed() < wait {
            retry = NEXT_HOP_RETRY_MIN;
        }
    }
}

/// Looks at every slot once. Returns whether there was any question, and whether one is still pending.
fn round(board: &Board, neighbours: &mut Neighbours, renew: bool) -> (bool, bool) {
    let (mut any, mut pending) = (false, false);
    for slot in &board.slots {
        let wanted = slot.wanted.load(Ordering::Relaxed);
        if wanted == NOTHING {
            continue;
        }
        any = true;
        let (ip, generation) = (Ipv4Addr::from(wanted as u32), (wanted >> 32) as u16);
        let before = slot.answer.load(Ordering::Relaxed);
        if before != NOTHING && parts(before).1 == generation && !renew {
            continue;
        }
        let now = match neighbours.resolve(ip) {
            // A network's broadcast address: not ours to send to.
            Ok(NextHop::Known(MacAddr::BROADCAST)) => NOTHING,
            Ok(NextHop::Known(mac)) => answer(mac, generation),
            Ok(NextHop::Pending) => {
                pending = true;
                NOTHING
            }
            // Through the kernel, whose errors then say why; asked again when answers are renewed.
            Err(_) => NOTHING,
        };
        if now != before {
            slot.answer.store(now, Ordering::Relaxed);
        }
    }
    (any, pending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_carry_their_address_and_generation() {
        let mac = MacAddr([2, 0xff, 3, 4, 5, 6]);
        assert_eq!(parts(answer(mac, 0xabcd)), (mac, 0xabcd));
        assert_ne!(answer(MacAddr::ZERO, 1), NOTHING);
        assert_eq!(question(Ipv4Addr::new(10, 0, 0, 1), 7), 7 << 32 | 0x0a00_0001);
    }

    #[test]
    fn loopback_answers_and_nothing_is_left_of_the_thread() {
        let lo = InterfaceInfo::read("lo").expect("every namespace has one");
        let hops = Hops::start(4, &lo).expect("a thread");
        hops.ask(2, Ipv4Addr::new(127, 0, 0, 9), 3);
        let begin = Instant::now();
        while hops.answer(2) == NOTHING && begin.elapsed() < Duration::from_secs(20) {
            thread::yield_now();
        }
        assert_eq!(hops.answer(2), answer(MacAddr::ZERO, 3));
        let board = Arc::downgrade(&hops.board);
        drop(hops);
        assert!(board.upgrade().is_none());
    }
}
