//! Who owns which frame of the umem.
//!
//! ```text
//!   receive:    free list ──► fill ring ──► kernel ──► rx ring ──► Frame ──► fill ring …
//!   transmit:   free list ──► Frame ──► tx ring ──► kernel ──► completion ring ──► free list …
//! ```
//!
//! A frame that this process may touch is a [`Frame`]: neither `Clone` nor `Copy`, made and taken back only here. The rest lie in
//! the free list or with the kernel, which is one bit each: whatever address the kernel hands over, it becomes a
//! `Frame` only if that very frame was with the kernel. So no two `Frame`s ever name the same bytes, however wrong the kernel is.
//!
//! Invariant: free + with the kernel + `Frame`s = count.

use std::fmt;

/// A frame in this process's hands. Give it back: to the free list, or to the kernel.
#[derive(Debug)]
#[must_use = "a frame that is dropped is lost"]
pub(super) struct Frame {
    index: u32,
    /// Where in the umem it begins, in bytes.
    address: u64,
}

impl Frame {
    /// Where in the umem it begins, in bytes.
    #[inline]
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// The token's end: it is now recorded elsewhere.
    #[inline]
    fn consume(self) -> u32 {
        let index = self.index;
        // Only debug builds have a destructor to hold back.
        std::mem::forget(self);
        index
    }
}

#[cfg(debug_assertions)]
impl Drop for Frame {
    fn drop(&mut self) {
        assert!(
            std::thread::panicking(),
            "the frame at {} of the umem was dropped instead of given back",
            self.address
        );
    }
}

/// An address that the kernel should not have handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stray {
    /// No frame of this pool begins or lies there.
    Outside,
    /// That frame was not with the kernel.
    NotLent,
}

/// Some frames in a row, and where each of them is.
pub(super) struct Frames {
    /// Where the first begins, in bytes.
    start: u64,
    frame_bytes: u32,
    /// As a stack: what was used last is still in cache.
    free: Vec<u32>,
    /// A bit a frame: it is with the kernel.
    lent: Box<[u64]>,
    lent_count: u32,
    count: u32,
}

impl Frames {
    /// `count` frames of `frame_bytes`, a power of two, from `start` on; all of them free.
    pub(super) fn new(start: u64, frame_bytes: u32, count: u32) -> Frames {
        assert!(frame_bytes.is_power_of_two() && start.is_multiple_of(u64::from(frame_bytes)));
        let lent = vec![0; count.div_ceil(64) as usize].into_boxed_slice();
        Frames { start, frame_bytes, free: (0..count).rev().collect(), lent, lent_count: 0, count }
    }

    /// A free frame, where there is one.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Frame> {
        let index = self.free.pop()?;
        Some(self.frame(index))
    }

    /// Back to the free list.
    #[inline]
    pub(super) fn give(&mut self, frame: Frame) {
        self.check(&frame);
        self.free.push(frame.consume());
    }

    /// To the kernel, through a ring: the caller puts the address there.
    #[inline]
    pub(super) fn lend(&mut self, frame: Frame) -> u64 {
        self.check(&frame);
        let address = frame.address;
        let index = frame.consume();
        self.lent[(index / 64) as usize] |= 1 << (index % 64);
        self.lent_count += 1;
        address
    }

    /// From the kernel, by any address inside the frame.
    ///
    /// # Errors
    /// [`Stray`] when the kernel had no such frame.
    #[inline]
    pub(super) fn recover(&mut self, address: u64) -> Result<Frame, Stray> {
        let offset = address.checked_sub(self.start).ok_or(Stray::Outside)?;
        let index = offset >> self.frame_bytes.trailing_zeros();
        if index >= u64::from(self.count) {
            return Err(Stray::Outside);
        }
        let index = index as u32;
        let (word, bit) = (&mut self.lent[(index / 64) as usize], 1 << (index % 64));
        if *word & bit == 0 {
            return Err(Stray::NotLent);
        }
        *word &= !bit;
        self.lent_count -= 1;
        Ok(self.frame(index))
    }

    #[inline]
    fn frame(&self, index: u32) -> Frame {
        Frame { index, address: self.address_of(index) }
    }

    #[inline]
    fn address_of(&self, index: u32) -> u64 {
        self.start + u64::from(index) * u64::from(self.frame_bytes)
    }

    /// A frame of another pool would be recorded twice.
    #[inline]
    fn check(&self, frame: &Frame) {
        debug_assert_eq!(frame.address, self.address_of(frame.index), "a frame of another pool");
        debug_assert!(frame.index < self.count, "a frame of another pool");
        debug_assert!(!self.free.contains(&frame.index), "the frame at {} is free and in use", frame.address);
        debug_assert!(!self.is_lent(frame.index), "the frame at {} is with the kernel and in use", frame.address);
    }

    fn is_lent(&self, index: u32) -> bool {
        self.lent[(index / 64) as usize] & (1 << (index % 64)) != 0
    }

    /// How many are free.
    pub(super) fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// How many are with the kernel.
    pub(super) fn lent(&self) -> u32 {
        self.lent_count
    }

    /// How many are in this process's hands.
    pub(super) fn in_hand(&self) -> u32 {
        self.count - self.free() - self.lent_count
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frames")
            .field("count", &self.count)
            .field("free", &self.free())
            .field("lent", &self.lent_count)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn frames_lie_one_after_the_other_and_come_back_by_any_address_inside() {
        let mut frames = Frames::new(8_192, 2_048, 3);
        let all: Vec<Frame> = std::iter::from_fn(|| frames.take()).collect();
        assert_eq!(all.iter().map(Frame::address).collect::<Vec<_>>(), [8_192, 10_240, 12_288]);
        let addresses: Vec<u64> = all.into_iter().map(|frame| frames.lend(frame)).collect();
        assert_eq!((frames.free(), frames.lent(), frames.in_hand()), (0, 3, 0));
        for address in addresses {
            let frame = frames.recover(address + 256).expect("it was lent");
            assert_eq!(frame.address(), address);
            frames.give(frame);
        }
        assert_eq!((frames.free(), frames.lent(), frames.in_hand()), (3, 0, 0));
    }

    #[test]
    fn what_the_kernel_never_had_is_not_taken_back() {
        let mut frames = Frames::new(4_096, 4_096, 2);
        let frame = frames.take().expect("two are free");
        let address = frames.lend(frame);
        for outside in [0, 4_095, 3 * 4_096, u64::MAX] {
            assert_eq!(frames.recover(outside).map(drop), Err(Stray::Outside), "{outside}");
        }
        let frame = frames.recover(address).expect("it was lent");
        assert_eq!(frames.recover(address).map(drop), Err(Stray::NotLent), "twice");
        frames.give(frame);
        assert_eq!(frames.recover(address + 4_096).map(drop), Err(Stray::NotLent), "never lent");
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "was dropped instead of given back")]
    fn a_dropped_frame_is_a_bug() {
        drop(Frames::new(0, 2_048, 1).take());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a frame of another pool")]
    fn a_frame_of_another_pool_is_a_bug() {
        let frame = Frames::new(2_048, 2_048, 1).take().expect("one is free");
        Frames::new(0, 2_048, 1).give(frame);
    }

    proptest! {
        /// Against sets of addresses: none is lost, none is doubled, whatever the kernel claims to hand back.
        #[test]
        fn no_sequence_loses_or_doubles_a_frame(steps in prop::collection::vec((0u8..5, 0usize..16, any::<u64>()), 0..300)) {
            const COUNT: u32 = 8;
            let mut frames = Frames::new(16_384, 2_048, COUNT);
            let mut hand: Vec<Frame> = Vec::new();
            let mut lent = BTreeSet::new();
            for (what, which, noise) in steps {
                match what {
                    0 => hand.extend(frames.take()),
                    1 if !hand.is_empty() => {
                        let frame = hand.swap_remove(which % hand.len());
                        frames.give(frame);
                    }
                    2 if !hand.is_empty() => {
                        let frame = hand.swap_remove(which % hand.len());
                        prop_assert!(lent.insert(frames.lend(frame)));
                    }
                    3 => {
                        let address = 16_384 + 2_048 * (which as u64 % 10) + noise % 2_048;
                        let begin = address & !2_047;
                        match frames.recover(address) {
                            Ok(frame) => {
                                prop_assert!(lent.remove(&begin));
                                prop_assert_eq!(frame.address(), begin);
                                hand.push(frame);
                            }
                            Err(_) => prop_assert!(!lent.contains(&begin)),
                        }
                    }
                    4 => if let Ok(frame) = frames.recover(noise) {
                        prop_assert!(lent.remove(&frame.address()));
                        hand.push(frame);
                    },
                    _ => {}
                }
                prop_assert_eq!(frames.lent() as usize, lent.len());
                prop_assert_eq!(frames.in_hand() as usize, hand.len());
                let distinct: BTreeSet<u64> = hand.iter().map(Frame::address).chain(lent.iter().copied()).collect();
                prop_assert_eq!(distinct.len(), hand.len() + lent.len());
            }
            hand.drain(..).for_each(|frame| frames.give(frame));
            for address in lent {
                let frame = frames.recover(address).expect("it was lent");
                frames.give(frame);
            }
            prop_assert_eq!((frames.free(), frames.lent(), frames.in_hand()), (COUNT, 0, 0));
        }
    }
}
