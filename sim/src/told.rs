//! What a client was told, or has to be: events by their number, and what they say in one piece of memory.

use ticktape::link::EventMessage;

/// Events, in order.
#[derive(Debug, Default)]
pub(crate) struct Told {
    events: Vec<Event>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Event {
    event_seq: u64,
    log_seq: u64,
    client_seq: u64,
    reign: u32,
    /// Where its output ends.
    end: usize,
}

/// One event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToldEvent<'a> {
    pub(crate) event_seq: u64,
    pub(crate) says: EventMessage<'a>,
    /// The reign that told it; 0 where none did.
    pub(crate) reign: u32,
}

impl Told {
    /// One more, behind all that come before it: those from there on are forgotten.
    pub(crate) fn push(&mut self, event: ToldEvent<'_>) {
        let ToldEvent { event_seq, says: EventMessage { log_seq, client_seq, output }, reign } = event;
        if self.events.last().is_some_and(|last| last.event_seq >= event_seq) {
            self.forget_from(event_seq);
        }
        self.bytes.extend_from_slice(output);
        self.events.push(Event { event_seq, log_seq, client_seq, reign, end: self.bytes.len() });
    }

    /// Those from `event_seq` on were never told.
    pub(crate) fn forget_from(&mut self, event_seq: u64) {
        self.events.truncate(self.place(event_seq));
        self.bytes.truncate(self.start(self.events.len()));
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ToldEvent<'_>> {
        self.since_place(0)
    }

    /// Those from `event_seq` on.
    pub(crate) fn since(&self, event_seq: u64) -> impl Iterator<Item = ToldEvent<'_>> {
        self.since_place(self.place(event_seq))
    }

    fn since_place(&self, place: usize) -> impl Iterator<Item = ToldEvent<'_>> {
        let mut start = self.start(place);
        self.events[place..].iter().map(move |&Event { event_seq, log_seq, client_seq, reign, end }| {
            let output = &self.bytes[start..end];
            start = end;
            ToldEvent { event_seq, says: EventMessage { log_seq, client_seq, output }, reign }
        })
    }

    fn place(&self, event_seq: u64) -> usize {
        self.events.partition_point(|event| event.event_seq < event_seq)
    }

    /// Where the output of the event at a place begins.
    fn start(&self, place: usize) -> usize {
        place.checked_sub(1).map_or(0, |before| self.events[before].end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(event_seq: u64, output: &[u8]) -> ToldEvent<'_> {
        ToldEvent { event_seq, says: EventMessage { log_seq: 2 * event_seq, client_seq: 0, output }, reign: 1 }
    }

    fn outputs<'a>(events: impl Iterator<Item = ToldEvent<'a>>) -> Vec<(u64, &'a [u8])> {
        events.map(|event| (event.event_seq, event.says.output)).collect()
    }

    #[test]
    fn events_are_found_by_their_number_and_forgotten_from_one_on() {
        let mut told = Told::default();
        for (event_seq, output) in [(1, &b"one"[..]), (2, b""), (5, b"five")] {
            told.push(event(event_seq, output));
        }
        told.forget_from(5);
        told.push(event(4, b"four"));
        told.push(event(6, b"six"));
        told.push(event(5, b"fifth"));
        assert_eq!(outputs(told.iter()), [(1, &b"one"[..]), (2, b""), (4, b"four"), (5, b"fifth")]);
        assert_eq!(outputs(told.since(3)), [(4, &b"four"[..]), (5, b"fifth")]);
        assert_eq!(outputs(told.since(6)), []);
        assert_eq!(told.since(4).next().map(|event| event.says.log_seq), Some(8));
    }
}
