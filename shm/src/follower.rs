//! A reader that the writer does not wait for, usually of another process.

use std::fmt;
use std::sync::Arc;

#[cfg(not(loom))]
use std::os::fd::{AsFd, OwnedFd};
#[cfg(not(loom))]
use std::path::Path;

use ticktape_core::Seq;
use ticktape_core::frame::padded;

use crate::attach::{AttachError, Corruption, Sight, View};
use crate::layout::{COMMIT_SEQ, DURABLE_SEQ, HEARTBEAT_NS, Header, SEQUENCED_HINT, STATE, STATE_OPEN};
#[cfg(not(loom))]
use crate::place::{Memfd, Origin, Standing};
use crate::region::Region;
use crate::ring::Ownership;
use crate::sync::{Ordering, fence};
use crate::words::{Data, Words, as_bytes};

/// Empty polls between two looks at the heartbeat: some tens of µs of spinning.
const POLLS_PER_LOOK: u32 = 4096;
/// Looks at an unmoved heartbeat before the writer is asked after, which costs system calls: some ms of spinning, more
/// than any heartbeat's period. A follower that sleeps between polls calls [`Follower::check_writer`] itself.
const LOOKS_PER_CHECK: u32 = 64;

/// Up to where a follower reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Horizon {
    /// Everything published, even what may yet be lost.
    Sequenced,
    /// What is durable on the writer's machine.
    Durable,
    /// What can't be lost any more, by the writer's tier.
    #[default]
    Committed,
}

/// Why a follower can't go on as it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowError {
    /// The writer lapped it. The frames from `from` to before `to` are lost here; the follower now stands at `to`.
    Overrun {
        /// The frame that would have come next.
        from: Seq,
        /// The frame that comes next now.
        to: Seq,
    },
    /// A new ring starts before what this follower has read: everything from `from` on was taken back.
    Truncated {
        /// The new ring's epoch.
        epoch: u64,
        /// The new ring's first seq.
        from: Seq,
    },
    /// Everything was read, and nobody writes any more.
    WriterGone,
    /// A new ring has taken the name, and continues at or after what this follower has read. Attach again.
    Replaced {
        /// The new ring's epoch.
        epoch: u64,
    },
    /// The memory was damaged.
    Corrupt(Corruption),
}

impl fmt::Display for FollowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FollowError::Overrun { from, to } => {
                write!(f, "overrun: frames {from} up to before {to} have left the ring")
            }
            FollowError::Truncated { epoch, from } => {
                write!(f, "truncated: epoch {epoch} starts over at frame {from}; discard everything from there on")
            }
            FollowError::WriterGone => f.write_str("the ring's writer is gone"),
            FollowError::Replaced { epoch } => write!(f, "the ring was replaced by one of epoch {epoch}; attach again"),
            FollowError::Corrupt(corruption) => corruption.fmt(f),
        }
    }
}

impl std::error::Error for FollowError {}

/// Makes followers of a ring of this process.
#[derive(Clone)]
pub struct Tap {
    region: Arc<Region>,
    header: Header,
    #[cfg(not(loom))]
    memfd: Option<Arc<Memfd>>,
}

impl Tap {
    #[cfg_attr(loom, allow(unused_variables))]
    pub(crate) fn new(region: Arc<Region>, header: Header, owner: &Ownership) -> Self {
        Tap {
            region,
            header,
            #[cfg(not(loom))]
            memfd: owner.memfd.clone(),
        }
    }

    /// A follower in this process.
    ///
    /// # Errors
    /// [`AttachError::TooOld`] and [`AttachError::NotYet`].
    pub fn follow(&self, from: Seq, horizon: Horizon) -> Result<Follower, AttachError> {
        Follower::new(
            Arc::clone(&self.region),
            self.header,
            #[cfg(not(loom))]
            Origin::Here,
            Some(from),
            horizon,
        )
    }

    /// The ring's fixed words.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Where it begins in this process's memory: for who asks the kernel which node that is on.
    pub fn address(&self) -> usize {
        self.region.words().addr()
    }

    /// A read-only descriptor of a memfd ring, to be handed to another process. `None` for rings of other kinds.
    ///
    /// # Errors
    /// Where /proc is not there to open it through.
    #[cfg(not(loom))]
    pub fn share(&self) -> std::io::Result<Option<OwnedFd>> {
        self.memfd.as_ref().map(|memfd| memfd.share()).transpose()
    }
}

/// Reads every frame from a place on, unless the writer laps it. It maps the ring read-only.
///
/// Invariant: nothing read from the ring is acted on before the claim has shown that it was not being written over.
pub struct Follower {
    view: View,
    position: u64,
    next_seq: u64,
    /// May read up to this seq; looked up again when it is reached.
    horizon_seq: u64,
    horizon: Horizon,
    header: Header,
    buffer: Box<[u64]>,
    idle_polls: u32,
    idle_looks: u32,
    heartbeat_ns: u64,
    ended: Option<FollowError>,
    /// What a drain met after its first frame, for the next call.
    owed: Option<FollowError>,
    #[cfg(not(loom))]
    origin: Origin,
}

impl Follower {
    pub(crate) fn new(
        region: Arc<Region>,
        header: Header,
        #[cfg(not(loom))] origin: Origin,
        from: Option<Seq>,
        horizon: Horizon,
    ) -> Result<Self, AttachError> {
        let data = Data::new(Arc::clone(&region), header.capacity_bytes);
        let mut follower = Follower {
            view: View::new(Words::new(region), data, &header),
            position: 0,
            next_seq: 0,
            horizon_seq: 0,
            horizon,
            header,
            buffer: vec![0; padded(header.frame_bytes_max) / 8].into(),
            idle_polls: 0,
            idle_looks: 0,
            heartbeat_ns: 0,
            ended: None,
            owed: None,
            #[cfg(not(loom))]
            origin,
        };
        match from {
            Some(from) => follower.seek(from)?,
            None => follower.seek_live()?,
        }
        Ok(follower)
    }

    /// Attaches to the ring `name` in `dir`, to read from the frame `from` on. The buffer for one frame is allocated here.
    ///
    /// # Errors
    /// [`AttachError`], one variant a reason.
    #[cfg(not(loom))]
    pub fn attach(dir: &Path, name: &str, from: Seq, horizon: Horizon) -> Result<Self, AttachError> {
        crate::open::named(dir, name, Some(from), horizon)
    }

    /// As [`attach`](Self::attach), from the frame that comes next.
    ///
    /// # Errors
    /// [`AttachError`], one variant a reason.
    #[cfg(not(loom))]
    pub fn attach_live(dir: &Path, name: &str, horizon: Horizon) -> Result<Self, AttachError> {
        crate::open::named(dir, name, None, horizon)
    }

    /// Attaches to a memfd ring through a descriptor from [`Tap::share`].
    ///
    /// # Errors
    /// [`AttachError`], one variant a reason.
    #[cfg(not(loom))]
    pub fn attach_fd(fd: impl AsFd, from: Seq, horizon: Horizon) -> Result<Self, AttachError> {
        crate::open::fd(fd.as_fd(), from, horizon)
    }

    /// Moves to the frame `from`, back or forth.
    ///
    /// # Errors
    /// [`AttachError::TooOld`], [`AttachError::NotYet`] or [`AttachError::Corrupt`]; it stands where it stood then.
    pub fn seek(&mut self, from: Seq) -> Result<(), AttachError> {
        let place = self.view.locate(from, self.header.epoch)?;
        (self.position, self.next_seq) = (place.position, place.seq.0);
        self.owed = None;
        Ok(())
    }

    fn seek_live(&mut self) -> Result<(), AttachError> {
        match self.seek(Seq::MAX) {
            Err(AttachError::NotYet { next }) => self.seek(next),
            other => other,
        }
    }

    /// The frame that comes next.
    pub fn next_seq(&self) -> Seq {
        Seq(self.next_seq)
    }

    /// The epoch of the ring.
    pub fn epoch(&self) -> u64 {
        self.header.epoch
    }

    /// The header of the ring.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// A seq that has been published: a hint, behind by up to a 64th of the ring or a heartbeat.
    pub fn sequenced_hint(&self) -> Seq {
        self.word(SEQUENCED_HINT)
    }

    /// The writer's durable mark.
    pub fn durable(&self) -> Seq {
        self.word(DURABLE_SEQ)
    }

    /// The writer's commit mark; [`Seq::MAX`] where commit = sequenced.
    pub fn commit(&self) -> Seq {
        if self.header.commit_is_sequenced { Seq::MAX } else { self.word(COMMIT_SEQ) }
    }

    fn word(&self, offset: usize) -> Seq {
        Seq(self.view.words.at(offset).load(Ordering::Relaxed))
    }

    /// The next frame, unpadded, copied out of the ring. `None`: nothing yet within the horizon. Its checksums are
    /// unchecked: `Frame::decode` checks them.
    ///
    /// # Errors
    /// [`FollowError`]. After an overrun it goes on from the new place; after anything else the same comes again.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<&[u8]>, FollowError> {
        if let Some(error) = self.owed.take() {
            return Err(error);
        }
        let bytes = self.step()?;
        Ok((bytes != 0).then(|| as_bytes(&self.buffer, bytes)))
    }

    /// Hands the next frames, at most `frames_max`, to `f`, and returns how many there were.
    ///
    /// # Errors
    /// [`FollowError`], where it comes before the first frame; otherwise the next call meets it.
    #[inline]
    pub fn drain(&mut self, frames_max: usize, mut f: impl FnMut(&[u8])) -> Result<usize, FollowError> {
        if let Some(error) = self.owed.take() {
            return Err(error);
        }
        for done in 0..frames_max {
            match self.step() {
                Ok(0) => return Ok(done),
                Ok(bytes) => f(as_bytes(&self.buffer, bytes)),
                Err(error) if done == 0 => return Err(error),
                Err(error) => {
                    // An overrun has moved on already: it is met once, now or by the next call.
                    self.owed = Some(error);
                    return Ok(done);
                }
            }
        }
        Ok(frames_max)
    }

    /// Copies the next frame to the buffer and says its size; 0 where there is none.
    #[inline(always)]
    fn step(&mut self) -> Result<usize, FollowError> {
        let word = self.view.data.at(self.position).load(Ordering::Relaxed);
        if word != self.next_seq || self.next_seq > self.horizon_seq {
            return self.step_rare();
        }
        self.take()
    }

    #[inline(always)]
    fn take(&mut self) -> Result<usize, FollowError> {
        // Pairs with the Release store in `Producer::publish`. A fence, as the memory is mapped read-only.
        fence(Ordering::Acquire);
        let Ok(bytes) = self.view.frame_bytes(self.position) else { return self.step_rare() };
        let words = padded(bytes) / 8;
        self.view.data.read(self.position, &mut self.buffer[..words]);
        if !self.view.is_intact(self.position) {
            return self.overrun();
        }
        self.position = self.position.wrapping_add(8 * words as u64);
        self.next_seq += 1;
        self.idle_polls = 0;
        Ok(bytes)
    }

    /// No frame at hand: nothing there, beyond the horizon, a skip, an overrun, or damage.
    #[inline(never)]
    fn step_rare(&mut self) -> Result<usize, FollowError> {
        // A skip leads to the start of a lap, where none can be: so twice is enough.
        for _ in 0..2 {
            match self.view.look(self.position, self.next_seq) {
                Sight::Nothing => return self.nothing(),
                Sight::Skip => self.position = self.view.data.lap_end(self.position),
                Sight::Frame(_) if self.within_horizon() => return self.take_again(),
                Sight::Frame(_) => return self.nothing(),
                Sight::Overrun => return self.overrun(),
                Sight::Corrupt(corruption) => return Err(FollowError::Corrupt(corruption)),
            }
        }
        Ok(0)
    }

    /// As `take`, after `look` has found the frame sound; so it can't come back to `step_rare` but by an overrun.
    fn take_again(&mut self) -> Result<usize, FollowError> {
        match self.view.frame_bytes(self.position) {
            Ok(_) => self.take(),
            Err(corruption) if self.view.is_intact(self.position) => Err(FollowError::Corrupt(corruption)),
            Err(_) => self.overrun(),
        }
    }

    fn within_horizon(&mut self) -> bool {
        self.horizon_seq = match self.horizon {
            Horizon::Sequenced => u64::MAX,
            Horizon::Durable => self.durable().0,
            Horizon::Committed => self.commit().0,
        };
        self.next_seq <= self.horizon_seq
    }

    /// Stands where the newer half of the ring begins, so as to lose little and not to be lapped again at once. While the
    /// writer is between a claim and its anchor there may be no place to stand: then this is for the next poll.
    #[cold]
    fn overrun(&mut self) -> Result<usize, FollowError> {
        let from = Seq(self.next_seq);
        let (claim, half) = (self.view.claim(), self.view.data.capacity() / 2);
        let mut place = None;
        for anchor in self.view.anchors(self.header.epoch).take_while(|anchor| anchor.seq > from) {
            if place.is_some() && claim.wrapping_sub(anchor.position) > half {
                break;
            }
            place = Some(anchor);
        }
        let Some(place) = place else { return self.nothing() };
        (self.position, self.next_seq) = (place.position, place.seq.0);
        self.idle_polls = 0;
        Err(FollowError::Overrun { from, to: place.seq })
    }

    /// Nothing to read: is there still somebody who writes?
    fn nothing(&mut self) -> Result<usize, FollowError> {
        if self.view.words.at(STATE).load(Ordering::Relaxed) != STATE_OPEN {
            return self.closed();
        }
        if let Some(ended) = self.ended {
            return Err(ended);
        }
        self.idle_polls += 1;
        if self.idle_polls >= POLLS_PER_LOOK {
            self.idle_polls = 0;
            self.look_at_heartbeat()?;
        }
        Ok(0)
    }

    #[cold]
    fn look_at_heartbeat(&mut self) -> Result<(), FollowError> {
        let heartbeat_ns = self.view.words.at(HEARTBEAT_NS).load(Ordering::Relaxed);
        if heartbeat_ns != self.heartbeat_ns {
            self.heartbeat_ns = heartbeat_ns;
            self.idle_looks = 0;
            return Ok(());
        }
        self.idle_looks += 1;
        if self.idle_looks < LOOKS_PER_CHECK {
            return Ok(());
        }
        self.idle_looks = 0;
        self.check_writer()
    }

    /// The writer stopped in order. What it published or committed last may have come between our looks.
    #[cold]
    fn closed(&mut self) -> Result<usize, FollowError> {
        fence(Ordering::Acquire); // pairs with the Release store in `Ownership::drop`
        match self.view.look(self.position, self.next_seq) {
            Sight::Frame(_) if self.within_horizon() => self.take_again(),
            Sight::Skip => Ok(0),
            _ => match self.check_writer() {
                Ok(()) => Err(FollowError::WriterGone),
                Err(error) => Err(error),
            },
        }
    }

    /// Whether somebody writes this ring, as far as can be told: true too where we may not open the writer's lock file.
    pub fn writer_alive(&self) -> bool {
        self.view.words.at(STATE).load(Ordering::Relaxed) == STATE_OPEN && self.has_writer()
    }

    #[cfg(not(loom))]
    fn has_writer(&self) -> bool {
        matches!(self.origin.standing(), Standing::Live)
    }

    #[cfg(loom)]
    fn has_writer(&self) -> bool {
        true
    }

    /// Asks after the writer: a few system calls. `poll` does so itself after some 250 000 empty polls without a heartbeat.
    ///
    /// # Errors
    /// [`FollowError::WriterGone`], [`FollowError::Replaced`] or [`FollowError::Truncated`]; frames that are in the ring can
    /// still be read.
    #[cfg(not(loom))]
    pub fn check_writer(&mut self) -> Result<(), FollowError> {
        self.ended = match self.origin.standing() {
            Standing::Live if self.view.words.at(STATE).load(Ordering::Relaxed) == STATE_OPEN => None,
            Standing::Live | Standing::Gone => Some(FollowError::WriterGone),
            Standing::Replaced => match crate::open::successor(&self.origin) {
                Some(header) if header.first_seq.0 < self.next_seq => {
                    Some(FollowError::Truncated { epoch: header.epoch, from: header.first_seq })
                }
                Some(header) => Some(FollowError::Replaced { epoch: header.epoch }),
                None => Some(FollowError::WriterGone),
            },
        };
        self.ended.map_or(Ok(()), Err)
    }

    #[cfg(loom)]
    fn check_writer(&mut self) -> Result<(), FollowError> {
        Ok(())
    }
}
