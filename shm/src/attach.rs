//! Finding a place to start: from the newest anchor at or below the wanted seq, walking forward.

use std::fmt;
use std::io;
use std::path::PathBuf;

use ticktape_core::Seq;
use ticktape_core::frame::{OVERHEAD_BYTES, padded};

use crate::anchor::{Anchor, newest_first};
use crate::layout::{CLAIM, FieldError, Header, SKIP, TAIL_BYTES};
use crate::sync::{Ordering, fence};
use crate::words::{Data, Words};

/// How often a walk that the writer overtook starts again before giving up. Each time the writer has moved a whole lap
/// while we walked less than one: a reader that slow would be overrun at once.
const WALKS_MAX: usize = 8;

/// Why a follower can't attach.
#[derive(Debug)]
pub enum AttachError {
    /// There is no such ring.
    NoRing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The name can't be a ring's.
    Name(String),
    /// The system refused.
    Io {
        /// What was being done.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// Not a regular file.
    NotAFile,
    /// A memfd that could be shrunk under its readers.
    Unsealed,
    /// Too short to hold a ring.
    Short {
        /// Its size, in bytes.
        got: u64,
        /// The least, in bytes.
        needed: u64,
    },
    /// A header field is wrong: another layout, or damage.
    Field(FieldError),
    /// The header is right, what follows it contradicts itself.
    Corrupt(Corruption),
    /// The frame has left the ring.
    TooOld {
        /// The first that can be had.
        first: Seq,
    },
    /// The frame is beyond the one that comes next.
    NotYet {
        /// The one that comes next.
        next: Seq,
    },
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::NoRing { path } => {
                write!(f, "{}: no such ring; start its appliance, or name another", path.display())
            }
            AttachError::Name(name) => write!(f, "{name:?} can't be a ring's name"),
            AttachError::Io { doing, source } => write!(f, "ring: can't {doing}: {source}"),
            AttachError::NotAFile => write!(f, "ring: not a regular file"),
            AttachError::Unsealed => write!(f, "ring: the memfd must be sealed against shrinking"),
            AttachError::Short { got, needed } => write!(f, "ring: {got} bytes, a ring has at least {needed}"),
            AttachError::Field(field) => field.fmt(f),
            AttachError::Corrupt(corruption) => corruption.fmt(f),
            AttachError::TooOld { first } => write!(f, "ring: too old, the first frame to be had is {first}"),
            AttachError::NotYet { next } => write!(f, "ring: not there yet, the next frame is {next}"),
        }
    }
}

impl std::error::Error for AttachError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AttachError::Io { source, .. } => Some(source),
            AttachError::Field(field) => Some(field),
            AttachError::Corrupt(corruption) => Some(corruption),
            _ => None,
        }
    }
}

/// Shared memory that no writer of this layout leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corruption {
    /// A word that is neither zero, nor the expected seq, nor a skip to it.
    Word {
        /// Where it stands.
        position: u64,
        /// What it is.
        found: u64,
        /// The seq that was expected.
        expected: Seq,
    },
    /// A frame larger than the ring's largest, or across the end.
    Length {
        /// Where the frame stands.
        position: u64,
        /// Its declared payload, in bytes.
        payload_bytes: u64,
    },
    /// No anchor leads anywhere.
    Anchors,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Corruption::Word { position, found, expected } => {
                write!(f, "ring position {position} holds {found:#x}, expected seq {expected}")
            }
            Corruption::Length { position, payload_bytes } => {
                write!(f, "ring position {position} has a frame of {payload_bytes} payload bytes, more than fits")
            }
            Corruption::Anchors => f.write_str("ring anchors lead nowhere"),
        }
    }
}

impl std::error::Error for Corruption {}

/// What stands at a position, seen by somebody whom the writer does not wait for.
pub(crate) enum Sight {
    Nothing,
    /// A frame of this many bytes, unpadded.
    Frame(usize),
    /// The frame is at the start of the next lap.
    Skip,
    /// The writer has, or may have, written over it.
    Overrun,
    Corrupt(Corruption),
}

/// A reader's view of the frame area and of the claim that guards it.
pub(crate) struct View {
    pub(crate) words: Words,
    pub(crate) data: Data,
    frame_bytes_max: usize,
}

impl View {
    pub(crate) fn new(words: Words, data: Data, header: &Header) -> Self {
        View { words, data, frame_bytes_max: header.frame_bytes_max }
    }

    pub(crate) fn claim(&self) -> u64 {
        self.words.at(CLAIM).load(Ordering::Relaxed)
    }

    /// Whether what was read at `position` before this call was not being written over. Nothing that was read may be acted on before.
    #[inline(always)]
    pub(crate) fn is_intact(&self, position: u64) -> bool {
        // Pairs with the Release fence in `Producer::claim_to`: a word written under a newer claim shows us that claim.
        fence(Ordering::Acquire);
        self.claim().wrapping_sub(position) <= self.data.capacity()
    }

    /// The declared size of the frame at `position`, unpadded, where it fits.
    #[inline(always)]
    pub(crate) fn frame_bytes(&self, position: u64) -> Result<usize, Corruption> {
        // The mask keeps this within the area even where a damaged word made `position` end a lap.
        let payload_bytes = self.data.at(position.wrapping_add(16)).load(Ordering::Relaxed) >> 32;
        let bytes = OVERHEAD_BYTES + payload_bytes as usize;
        let end = self.data.offset(position) + padded(bytes) as u64 + TAIL_BYTES;
        if bytes > self.frame_bytes_max || end > self.data.capacity() {
            return Err(Corruption::Length { position, payload_bytes });
        }
        Ok(bytes)
    }

    /// Looks at `position`, where the frame `seq` belongs.
    #[inline]
    pub(crate) fn look(&self, position: u64, seq: u64) -> Sight {
        let word = self.data.at(position).load(Ordering::Relaxed);
        // Pairs with the Release store in `Producer::publish`. A fence, as the memory may be mapped read-only.
        fence(Ordering::Acquire);
        let sight = if word == seq {
            self.frame_bytes(position).map_or_else(Sight::Corrupt, Sight::Frame)
        } else if word == 0 {
            Sight::Nothing
        } else if word == SKIP | seq && self.may_skip(position) {
            Sight::Skip
        } else {
            Sight::Corrupt(Corruption::Word { position, found: word, expected: Seq(seq) })
        };
        if self.is_intact(position) { sight } else { Sight::Overrun }
    }

    /// A skip stands only where the largest frame might not fit. So no two follow each other.
    fn may_skip(&self, position: u64) -> bool {
        let left = self.data.lap_end(position).wrapping_sub(position);
        left < padded(self.frame_bytes_max) as u64 + TAIL_BYTES
    }

    /// The anchors that are still in the ring, from the newest on.
    pub(crate) fn anchors(&self, epoch: u64) -> impl Iterator<Item = Anchor> + '_ {
        newest_first(&self.words, epoch).filter(|anchor| self.is_intact(anchor.position))
    }

    /// The place of the frame `wanted`, which may be the one that comes next.
    pub(crate) fn locate(&self, wanted: Seq, epoch: u64) -> Result<Anchor, AttachError> {
        let mut oldest = None;
        for _ in 0..WALKS_MAX {
            oldest = None;
            let start = self.anchors(epoch).find(|anchor| {
                oldest = Some(anchor.seq);
                anchor.seq <= wanted
            });
            match (start, oldest) {
                (Some(start), _) => {
                    if let Some(place) = self.walk(start, wanted)? {
                        return Ok(place);
                    }
                }
                (None, Some(first)) => return Err(AttachError::TooOld { first }),
                (None, None) => {}
            }
        }
        match oldest {
            Some(first) if first > wanted => Err(AttachError::TooOld { first }),
            // A writer that laps us whenever we look leaves us only what comes next.
            Some(_) => Err(AttachError::TooOld { first: self.anchors(epoch).next().map_or(wanted.next(), |a| a.seq) }),
            None => Err(AttachError::Corrupt(Corruption::Anchors)),
        }
    }

    /// Walks to `wanted`. `None` where the writer was faster.
    fn walk(&self, start: Anchor, wanted: Seq) -> Result<Option<Anchor>, AttachError> {
        let Anchor { mut seq, mut position } = start;
        // Every step goes over a frame or to the next lap, so two laps of the smallest frames are more than there can be.
        for _ in 0..2 * self.data.capacity() / OVERHEAD_BYTES as u64 {
            if seq == wanted {
                return Ok(Some(Anchor { seq, position }));
            }
            match self.look(position, seq.0) {
                Sight::Nothing => return Err(AttachError::NotYet { next: seq }),
                Sight::Frame(bytes) => {
                    position = position.wrapping_add(padded(bytes) as u64);
                    seq = Seq(seq.0 + 1);
                }
                Sight::Skip => position = self.data.lap_end(position),
                Sight::Overrun => return Ok(None),
                Sight::Corrupt(corruption) => return Err(AttachError::Corrupt(corruption)),
            }
        }
        Err(AttachError::Corrupt(Corruption::Anchors))
    }
}
