//! What a replica is told of in a timeline: how far it is, and how it got there.

use ticktape::replica::ReplicaState;

use crate::trace::{Trace, What, Who};

/// Where a replica stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The last frame that was let in.
    pub(crate) last: u64,
    pub(crate) epoch: u64,
    pub(crate) epoch_began_at: u64,
    pub(crate) durable: u64,
    pub(crate) applied: u64,
    pub(crate) gaps: u64,
    pub(crate) requests: u64,
    pub(crate) repaired: u64,
    pub(crate) given_up: u64,
    /// Frames that came in bulk.
    pub(crate) bulk: u64,
    pub(crate) state: ReplicaState,
}

impl Standing {
    /// Tells what is different from before, of host `host`.
    pub(crate) fn tell_since(&self, before: &Standing, host: u8, trace: &Trace) {
        let note = |text| trace.tell(Who::Stage(host, "intake"), || What::Note { text });
        if self.state != before.state {
            trace.tell(Who::Host(host), || What::Note { text: format!("is {}", self.state) });
        }
        if self.gaps > before.gaps {
            note(format!("misses something after {}", before.last));
        }
        if self.requests > before.requests {
            note(format!("asks for what is missing after {}", self.last));
        }
        if self.repaired > before.repaired {
            note(format!("{} packets repaired", self.repaired - before.repaired));
        }
        if self.given_up > before.given_up {
            note(format!("nobody repairs what comes after {}", self.last));
        }
        if self.last > before.last {
            let way = if self.bulk > before.bulk { "catch-up" } else { "feed" };
            note(format!("takes {} to {} by {way}", before.last + 1, self.last));
        }
        if self.epoch > before.epoch {
            let first = self.epoch_began_at;
            trace.tell(Who::Host(host), || What::Epoch { epoch: self.epoch as u32, first });
        }
        if self.durable > before.durable {
            trace.tell(Who::Stage(host, "journaler"), || What::Durable { seq: self.durable });
        }
        if self.applied > before.applied {
            trace.tell(Who::Stage(host, "executor"), || What::Applied { seq: self.applied });
        }
    }
}
