//! What a client sends.

use std::sync::Arc;

use super::recorded::Recorded;
use crate::service::EncodedInputs;

/// One client's messages, in order.
pub enum Source {
    /// Made up by the service, without end.
    Made(EncodedInputs),
    /// Out of a file.
    Recorded {
        /// All clients' messages.
        flow: Arc<Recorded>,
        /// This one's, by their places in the file.
        mine: Vec<u32>,
        /// How many of them were sent.
        next: usize,
    },
}

impl Source {
    /// Appends the next message's encoding; false where there is none left.
    pub fn next(&mut self, encoded: &mut Vec<u8>) -> bool {
        match self {
            Source::Made(inputs) => inputs(encoded),
            Source::Recorded { flow, mine, next } => {
                let Some(&at) = mine.get(*next) else { return false };
                *next += 1;
                encoded.extend_from_slice(flow.message(at as usize));
                true
            }
        }
    }
}
