//! What must hold of replicas, each by its name.

use ticktape::{Frame, Seq};

use crate::fold;
use crate::ledger::{Frames, Ledger, Wrong};

/// Everything that was ever sequenced, lost again or not: by seq, a word for each content.
#[derive(Debug, Default)]
pub(crate) struct Ever(Vec<Vec<u64>>);

impl Ever {
    /// A frame stands, or stood, in the order.
    pub(crate) fn note(&mut self, bytes: &[u8]) {
        let Ok(frame) = Frame::view(bytes) else { return };
        let at = frame.seq.0 as usize;
        if self.0.len() <= at {
            self.0.resize_with(at + 1, Vec::new);
        }
        let word = word(bytes);
        if !self.0[at].contains(&word) {
            self.0[at].push(word);
        }
    }

    /// A frame that a replica has taken is one that was sequenced.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<(), Wrong> {
        const NAME: &str = "nothing foreign is delivered";
        let frame = Frame::decode(bytes).map_err(|error| (NAME, error.to_string()))?;
        let known = self.0.get(frame.seq.0 as usize).is_some_and(|words| words.contains(&word(bytes)));
        if known { Ok(()) } else { Err((NAME, format!("seq {} was never sequenced as it came", frame.seq))) }
    }
}

fn word(bytes: &[u8]) -> u64 {
    fold::bytes(bytes.len() as u64, bytes)
}

/// A replica's log, from `first` on, is the beginning of the one order, as far as `to`.
pub(crate) fn check_prefix(ledger: &Ledger, first: Seq, found: &Frames, to: Seq) -> Result<(), Wrong> {
    const NAME: &str = "a replica's log is a prefix of the one order";
    for (place, bytes) in found.iter().enumerate() {
        let seq = Seq(first.0 + place as u64);
        if seq > to {
            break;
        }
        match ledger.frames().get(seq.0 as usize - 1) {
            Some(frame) if frame == bytes => {}
            Some(_) => return Err((NAME, format!("seq {seq} is another frame there"))),
            None => return Err((NAME, format!("seq {seq} is there, the order ends at {}", ledger.last()))),
        }
    }
    Ok(())
}
