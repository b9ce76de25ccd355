//! What the world knows of the order, and what must hold of it. Each check has a name: it is what a failure is called by.

use std::collections::BTreeMap;
use std::ops::Range;

use ticktape::link::EventMessage;
use ticktape::machine::{Emitted, Machine, Progress, StepLimits};
use ticktape::payload::{EpochChange, Origin};
use ticktape::{Frame, Kind, Seq, Service, SessionId, Target, Timestamp};

use crate::customer::{Asked, Customer};
use crate::told::{Told, ToldEvent};

/// What is wrong: the check's name, and what was found.
pub(crate) type Wrong = (&'static str, String);

/// Frames one behind the other, in one piece of memory.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Frames {
    pub(crate) fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The frame at this place, if there is one.
    pub(crate) fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        Some(&self.bytes[index.checked_sub(1).map_or(0, |before| self.ends[before])..end])
    }

    /// Those at these places, all of which there are.
    pub(crate) fn range(&self, places: Range<usize>) -> impl DoubleEndedIterator<Item = &[u8]> {
        places.map(|index| self.get(index).expect("there is one"))
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.range(0..self.len())
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
    }
}

/// Every frame that was sequenced and not lost, as it was first seen.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    frames: Frames,
    last_stamp: Timestamp,
    /// The epoch of the latest reign that was ever seen.
    last_epoch: u64,
    /// The last frame that anyone was told to be committed.
    pub(crate) committed: Seq,
    /// The last frame that has to survive whatever comes.
    pub(crate) durable: Seq,
    /// Reigns whose last frames are lost, as tier `memory` may lose them, and what is left of them.
    lost: BTreeMap<u32, Seq>,
}

impl Ledger {
    /// The last frame.
    pub(crate) fn last(&self) -> Seq {
        Seq(self.frames.len() as u64)
    }

    pub(crate) fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Takes down a frame that was just sequenced.
    pub(crate) fn enter(&mut self, bytes: &[u8]) -> Result<(), Wrong> {
        let frame = Frame::decode(bytes).map_err(|error| ("frames are sound", error.to_string()))?;
        let due = self.last().next();
        if frame.seq != due {
            return Err(("the order has no gaps", format!("seq {} was sequenced where {due} was due", frame.seq)));
        }
        if frame.timestamp < self.last_stamp {
            let what = format!("seq {due} is stamped {}, after {}", frame.timestamp.0, self.last_stamp.0);
            return Err(("time does not go back", what));
        }
        if frame.kind == Kind::EpochChange
            && let Some(change) = EpochChange::decode(frame.payload)
        {
            if change.epoch <= self.last_epoch {
                let what = format!("seq {due} begins epoch {}, and there was epoch {}", change.epoch, self.last_epoch);
                return Err(("each reign has an epoch of its own", what));
            }
            self.last_epoch = change.epoch;
        }
        self.last_stamp = frame.timestamp;
        self.frames.push(bytes);
        Ok(())
    }

    /// Of what this reign had sequenced only that up to `left` is left. What it said of the rest is void.
    pub(crate) fn lose(&mut self, reign: u32, left: Seq) {
        self.lost.insert(reign, left);
        self.committed = self.committed.min(left);
    }

    /// Of a reign that lost its last frames: the last that is left.
    pub(crate) fn left_of(&self, reign: u32) -> Option<Seq> {
        self.lost.get(&reign).copied()
    }

    /// Whether what a client was told by this event was lost since, with the reign that told it.
    pub(crate) fn is_void(&self, event: &ToldEvent<'_>) -> bool {
        self.left_of(event.reign).is_some_and(|left| event.says.log_seq > left.0)
    }

    /// A client that a reign has let in holds nothing that was lost before: it was told to go back.
    pub(crate) fn check_taken_back(&self, customer: &Customer, reign: u32) -> Result<(), Wrong> {
        let void = customer.told.iter().find(|event| self.is_void(event));
        let Some(ToldEvent { event_seq, reign: told_by, .. }) = void else { return Ok(()) };
        let what = format!(
            "session {}, let in by reign {reign}, still holds event {event_seq}, which was lost with reign {told_by}",
            customer.session
        );
        Err(("clients are told what was taken back", what))
    }

    /// The box is back, with the log up to `recovered`; `found` is what is on its disk from seq `first` on: what is not, snapshots cover. Where starts were cut off since it was seen last,
    /// what nobody was told of may have been replaced by the beginnings of their reigns, which nobody saw. Returns the last frame that is
    /// left of what was seen.
    pub(crate) fn recover(
        &mut self,
        recovered: Seq,
        first: Seq,
        found: &Frames,
        has_cut_off_starts: bool,
    ) -> Result<Seq, Wrong> {
        if recovered < self.durable {
            let what = format!("recovered up to {recovered}, acknowledged up to {}", self.durable);
            return Err(("nothing acknowledged is lost", what));
        }
        let covered = (first.0 - 1) as usize;
        if covered as u64 > recovered.0 || covered > self.frames.len() {
            let what = format!("the log begins at {first}, recovered up to {recovered} of {}", self.last());
            return Err(("compaction keeps what recovery needs", what));
        }
        let wanted = recovered.0 as usize - covered;
        if found.len() < wanted {
            let what = format!("{} frames can be read of {wanted} that were recovered from {first} on", found.len());
            return Err(("the log can be read", what));
        }
        let found = || found.iter().take(wanted);
        let seen = self.frames.range(covered..self.frames.len());
        let read_back = seen.zip(found()).take_while(|(seen, found)| seen == found).count();
        let (same, others) = (covered + read_back, || found().skip(read_back));
        let is_beginning = |bytes: &[u8]| Frame::decode(bytes).is_ok_and(|frame| frame.kind == Kind::EpochChange);
        let is_explained = has_cut_off_starts && same as u64 >= self.durable.0 && others().all(is_beginning);
        if read_back < wanted && !is_explained {
            if same < self.frames.len() {
                return Err(("the order is the same everywhere", format!("seq {} came back different", same + 1)));
            }
            return Err((
                "nothing is made up",
                format!("recovered up to {recovered}, sequenced up to {}", self.last()),
            ));
        }
        self.frames.truncate(same);
        let last = self.frames.iter().next_back().map(|bytes| Frame::view(bytes).expect("it was decoded").timestamp);
        self.last_stamp = last.unwrap_or(Timestamp(0));
        others().try_for_each(|bytes| self.enter(bytes))?;
        Ok(Seq(same as u64))
    }
}

/// What the log comes to, computed from its beginning, each frame once: it goes on from where it stands.
pub(crate) struct Replay<S: Service> {
    machine: Machine<S>,
    /// What each session has to be told.
    told: BTreeMap<SessionId, Told>,
}

impl<S: Service> Replay<S> {
    /// Before the first frame.
    pub(crate) fn begin(service: &S::Config, limits: StepLimits) -> Self {
        Replay { machine: Machine::genesis(service, limits), told: BTreeMap::new() }
    }

    /// Applies the frames up to `last`.
    pub(crate) fn of(frames: &Frames, last: Seq, service: &S::Config, limits: StepLimits) -> Result<Self, Wrong> {
        let mut replay = Replay::begin(service, limits);
        replay.go_to(frames, last, service)?;
        Ok(replay)
    }

    /// Frames after `seq` may be others from now on: what was made of them is forgotten, by beginning anew.
    pub(crate) fn forget_after(&mut self, seq: Seq, service: &S::Config) {
        if self.machine.applied() > seq {
            *self = Replay::begin(service, self.machine.limits());
        }
    }

    /// Comes to stand after `last`.
    pub(crate) fn go_to(&mut self, frames: &Frames, last: Seq, service: &S::Config) -> Result<(), Wrong> {
        self.forget_after(last, service);
        let from = self.machine.applied().0 as usize;
        for bytes in frames.range(from..last.0 as usize) {
            let frame = Frame::view(bytes).expect("it was decoded");
            loop {
                let progress = self.machine.step(&frame);
                let progress = progress.map_err(|error| ("the log can be replayed", error.to_string()))?;
                for output in self.machine.outputs(frame.seq) {
                    let Target::Session(session) = output.target else { continue };
                    let Emitted { seq: Seq(log_seq), client_seq, event_seq, bytes: output, .. } = output;
                    let says = EventMessage { log_seq, client_seq, output };
                    self.told.entry(session).or_default().push(ToldEvent { event_seq, says, reign: 0 });
                }
                if progress == Progress::Applied {
                    break;
                }
            }
        }
        Ok(())
    }

    /// A state that was computed live, after the same frame, is this one. Returns a digest of it and of all outputs.
    pub(crate) fn check_equals(&self, live: &Machine<S>) -> Result<u64, Wrong> {
        assert_eq!(live.applied(), self.machine.applied());
        let digest = live.state_digest();
        if digest != self.machine.state_digest() || live.output_hash() != self.machine.output_hash() {
            let what = format!("after seq {} the live state or outputs differ from the replay's", live.applied());
            return Err(("replay equals live", what));
        }
        let head = digest.first_chunk().copied().map_or(0, u64::from_le_bytes);
        Ok(head ^ live.output_hash())
    }

    /// What a client was told is what the log comes to.
    pub(crate) fn check_told(&self, ledger: &Ledger, customer: &Customer) -> Result<(), Wrong> {
        let nothing = Told::default();
        let due = self.told.get(&SessionId(customer.session)).unwrap_or(&nothing);
        // Both go by the same numbers.
        let mut due = due.iter().peekable();
        for event in customer.told.iter() {
            let ToldEvent { event_seq, says: told, .. } = event;
            while due.next_if(|due| due.event_seq < event_seq).is_some() {}
            let due = due.next_if(|due| due.event_seq == event_seq).map(|due| due.says);
            if due != Some(told) && !ledger.is_void(&event) {
                let what = match due {
                    None => {
                        format!("session {} was told event {event_seq}, which the log does not make", customer.session)
                    }
                    Some(due) => format!(
                        "session {} was told {told:?} as event {event_seq}, the log makes {due:?}",
                        customer.session
                    ),
                };
                return Err(("clients are told what the log says", what));
            }
        }
        Ok(())
    }
}

/// What of a client's was found in the order so far.
struct Found<'a> {
    asked: &'a Asked,
    /// Of what it asked for, what is passed: both go by the same numbers.
    passed: usize,
    last: Option<(u32, u64)>,
    /// How much of each epoch.
    counts: Vec<(u32, u64)>,
}

impl<'a> Found<'a> {
    fn of(customer: &'a Customer) -> Self {
        Found { asked: &customer.asked, passed: 0, last: None, counts: Vec::new() }
    }

    /// What it asked for at a place behind all that were asked about before.
    fn asked_at(&mut self, place: (u32, u64)) -> Option<&'a [u8]> {
        let (passed, found, input) = self.asked.find(self.passed, place)?;
        self.passed = passed;
        (found == place).then_some(input)
    }

    /// Counts one more of an epoch, none of which comes before the last.
    fn count(&mut self, epoch: u32) -> u64 {
        match self.counts.last_mut() {
            Some((last, count)) if *last == epoch => {
                *count += 1;
                *count
            }
            _ => {
                self.counts.push((epoch, 1));
                1
            }
        }
    }
}

/// Every input stands in the order once, in the order it was sent, as it was sent; and every acknowledged one stands there.
pub(crate) fn check_effects(ledger: &Ledger, customers: &[Customer]) -> Result<(), Wrong> {
    const NAME: &str = "every input takes effect once";
    let mut found: Vec<Found<'_>> = customers.iter().map(Found::of).collect();
    for bytes in ledger.frames().iter() {
        let frame = Frame::view(bytes).expect("it was decoded");
        if frame.kind != Kind::SessionInput {
            continue;
        }
        let (origin, command) =
            Origin::split(frame.payload).ok_or_else(|| (NAME, format!("seq {} has no origin", frame.seq)))?;
        let (session, place) = (origin.session.0, (origin.client_epoch, origin.client_seq));
        let never_asked = || (NAME, format!("session {session} never asked for what stands at seq {}", frame.seq));
        let owner = customers.iter().position(|customer| customer.session == session);
        let found = owner.map(|owner| &mut found[owner]).ok_or_else(never_asked)?;
        let before = found.last.replace(place);
        if before.is_some_and(|before| before >= place) {
            return Err((NAME, format!("session {session}: {place:?} stands at seq {} after {before:?}", frame.seq)));
        }
        if found.asked_at(place) != Some(command) {
            return Err(never_asked());
        }
        let count = found.count(origin.client_epoch);
        if count != origin.client_seq {
            return Err((NAME, format!("session {session}: {place:?} at seq {} is its number {count}", frame.seq)));
        }
    }
    for (customer, found) in customers.iter().zip(&found) {
        let is_owed =
            |epoch: u32, reign: u32| ledger.left_of(reign).is_none() && !customer.lost_epochs.contains(&epoch);
        let promised = customer.promised.iter().filter(|((epoch, reign), _)| is_owed(*epoch, *reign));
        for (&(epoch, _), &next) in promised {
            let count = found.counts.iter().find(|&&(of, _)| of == epoch).map_or(0, |&(_, count)| count);
            if count + 1 < next {
                let what = format!(
                    "session {}, epoch {epoch}: {} acknowledged, {count} in the log",
                    customer.session,
                    next - 1
                );
                return Err(("nothing acknowledged is lost", what));
            }
        }
    }
    Ok(())
}
