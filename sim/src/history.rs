//! What clients asked and saw, and when; and whether the order of the log accounts for it.

use std::collections::BTreeMap;

use ticktape::payload::{Origin, decode_session_open};
use ticktape::{Frame, Kind, Nanos, SessionId};

use crate::customer::Customer;
use crate::ledger::{Ledger, Wrong};
use crate::linear::{OrderError, Span, check_order};

const NAME: &str = "client histories are linearizable";

/// Commands of a client's epoch before one are acknowledged.
#[derive(Clone, Copy, Debug)]
struct Acknowledged {
    epoch: u32,
    next: u64,
    reign: u32,
    at_ns: Nanos,
}

/// An event arrived.
#[derive(Clone, Copy, Debug)]
struct Seen {
    log_seq: u64,
    client_seq: u64,
    reign: u32,
    at_ns: Nanos,
}

/// One client's, over all its incarnations, in the world's time.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// When it sent each command, by epoch and seq, in that order.
    called_ns: Vec<((u32, u64), Nanos)>,
    acknowledged: Vec<Acknowledged>,
    seen: Vec<Seen>,
}

impl History {
    /// It sends a command.
    pub(crate) fn call(&mut self, epoch: u32, client_seq: u64, at_ns: Nanos) {
        debug_assert!(self.called_ns.last().is_none_or(|(last, _)| *last < (epoch, client_seq)));
        self.called_ns.push(((epoch, client_seq), at_ns));
    }

    /// It hears that its commands before `next` are acknowledged.
    pub(crate) fn acknowledge(&mut self, epoch: u32, next: u64, reign: u32, at_ns: Nanos) {
        let is_known = |last: &Acknowledged| (last.epoch, last.next, last.reign) == (epoch, next, reign);
        if !self.acknowledged.last().is_some_and(is_known) {
            self.acknowledged.push(Acknowledged { epoch, next, reign, at_ns });
        }
    }

    /// It sees an event that the frame `log_seq` led to.
    pub(crate) fn see(&mut self, log_seq: u64, client_seq: u64, reign: u32, at_ns: Nanos) {
        self.seen.push(Seen { log_seq, client_seq, reign, at_ns });
    }
}

/// A command, by session, epoch and seq.
type Command = (u64, u32, u64);

/// The log as an order of operations: a span for each frame, and then for each command that stands nowhere.
struct Order<'a> {
    ledger: &'a Ledger,
    spans: Vec<Span>,
    /// Whose command each span is, or whose session it opens, where it is any of that.
    owners: Vec<Option<Command>>,
    index: Index,
}

/// Which span each command is that a client sent. They are numbered from 1 on: sessions, each one's epochs, each epoch's commands.
struct Index(Vec<Vec<Vec<Option<usize>>>>);

impl Index {
    /// Room for what these clients sent.
    fn of(customers: &[Customer]) -> Self {
        let sessions = customers.iter().map(|customer| customer.session).max().unwrap_or(0);
        let mut index = vec![Vec::new(); sessions as usize];
        for customer in customers {
            let epochs: &mut Vec<Vec<_>> = &mut index[customer.session as usize - 1];
            for &((epoch, client_seq), _) in &customer.history.called_ns {
                epochs.resize_with(epochs.len().max(epoch as usize), Vec::new);
                epochs[epoch as usize - 1].resize(client_seq as usize, None);
            }
        }
        Index(index)
    }

    /// The place of a command; none for one that nobody sent.
    fn place(&mut self, (session, epoch, client_seq): Command) -> Option<&mut Option<usize>> {
        let epochs = self.0.get_mut((session as usize).checked_sub(1)?)?;
        epochs.get_mut((epoch as usize).checked_sub(1)?)?.get_mut((client_seq as usize).checked_sub(1)?)
    }
}

/// Holds what clients saw against the order of the log: what was answered before something else was asked for stands before it, and answers
/// are to the commands that stand where they say. Of commands that nobody answered nothing is asked. What is told to one client counts for all of
/// them: its frame stands before everything that anyone asks for later.
pub(crate) fn check_histories(ledger: &Ledger, customers: &[Customer]) -> Result<(), Wrong> {
    let mut order = Order::of(ledger, customers);
    for customer in customers {
        let history = &customer.history;
        history.called_ns.iter().for_each(|&(command, at_ns)| order.call(customer.session, command, at_ns));
        let mut known: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for acknowledged in &history.acknowledged {
            let from = known.entry((acknowledged.epoch, acknowledged.reign)).or_insert(1);
            let may_lack = customer.lost_epochs.contains(&acknowledged.epoch);
            order.acknowledge(customer.session, *from, *acknowledged, may_lack);
            *from = acknowledged.next.max(*from);
        }
        history.seen.iter().try_for_each(|seen| order.see(customer.session, *seen))?;
    }
    check_order(&order.spans).map_err(|error| (NAME, order.describe(error)))
}

impl<'a> Order<'a> {
    fn of(ledger: &'a Ledger, customers: &[Customer]) -> Self {
        let sent = customers.iter().map(|customer| customer.history.called_ns.len()).sum::<usize>();
        let room = ledger.frames().len() + sent;
        let (mut spans, mut owners) = (Vec::with_capacity(room), Vec::with_capacity(room));
        let mut index = Index::of(customers);
        for bytes in ledger.frames().iter() {
            let frame = Frame::view(bytes).expect("it was decoded");
            let origin = match frame.kind {
                Kind::SessionInput => Origin::split(frame.payload).map(|(origin, _)| origin),
                Kind::SessionOpen => decode_session_open(frame.payload),
                _ => None,
            };
            let owner = origin.map(|Origin { session: SessionId(session), client_epoch, client_seq }| {
                (session, client_epoch, client_seq)
            });
            let command = owner.filter(|_| frame.kind == Kind::SessionInput);
            if let Some(place) = command.and_then(|command| index.place(command)) {
                *place = Some(spans.len());
            }
            owners.push(owner);
            // What no client asked for was asked for in the beginning.
            spans.push(Span { called_ns: 0, returned_ns: None, place: Some(frame.seq.0) });
        }
        Order { ledger, spans, owners, index }
    }

    fn call(&mut self, session: u64, (epoch, client_seq): (u32, u64), called_ns: Nanos) {
        let command = (session, epoch, client_seq);
        let place = self.index.place(command).expect("there is room for what was sent");
        match *place {
            Some(at) => self.spans[at].called_ns = called_ns,
            None => {
                *place = Some(self.spans.len());
                self.spans.push(Span { called_ns, returned_ns: None, place: None });
                self.owners.push(Some(command));
            }
        }
    }

    /// A span's effect was seen, by the word of a reign; what it said of frames that are lost since is void.
    fn mark_seen(&mut self, at: usize, reign: u32, at_ns: Nanos) {
        let span = &mut self.spans[at];
        if self.ledger.left_of(reign).is_some_and(|left| span.place.is_none_or(|place| place > left.0)) {
            return;
        }
        span.returned_ns = Some(span.returned_ns.map_or(at_ns, |before| before.min(at_ns)));
    }

    /// Of what is acknowledged, and was not before by the same reign; some of it `may_lack`, where the client was told so since.
    fn acknowledge(&mut self, session: u64, from: u64, acknowledged: Acknowledged, may_lack: bool) {
        let Acknowledged { epoch, next, reign, at_ns } = acknowledged;
        for client_seq in from..next {
            let at = self.index.place((session, epoch, client_seq)).and_then(|at| *at);
            if let Some(at) = at.filter(|&at| !may_lack || self.spans[at].place.is_some()) {
                self.mark_seen(at, reign, at_ns);
            }
        }
    }

    fn see(&mut self, session: u64, seen: Seen) -> Result<(), Wrong> {
        let Seen { log_seq, client_seq, reign, at_ns } = seen;
        if self.ledger.left_of(reign).is_some_and(|left| log_seq > left.0) {
            return Ok(());
        }
        let at = usize::try_from(log_seq).ok().and_then(|seq| seq.checked_sub(1));
        let at = at.filter(|&at| at < self.ledger.frames().len());
        let Some(at) = at else {
            let what = format!("session {session} was told of seq {log_seq}, the log ends at {}", self.ledger.last());
            return Err((NAME, what));
        };
        let is_own = self.owners[at].is_some_and(|(owner, _, own)| (owner, own) == (session, client_seq));
        if client_seq != 0 && !is_own {
            let what = format!("session {session} was answered #{client_seq} by seq {log_seq}: {}", self.name(at));
            return Err((NAME, what));
        }
        self.mark_seen(at, reign, at_ns);
        Ok(())
    }

    fn name(&self, at: usize) -> String {
        let Span { called_ns, returned_ns, place } = self.spans[at];
        let owner = self.owners[at].map_or("no client's".to_string(), |(session, epoch, client_seq)| {
            format!("session {session}'s #{client_seq} of epoch {epoch}")
        });
        let place = place.map_or("nowhere".to_string(), |seq| format!("at seq {seq}"));
        let seen = returned_ns.map_or("never seen".to_string(), |at| format!("seen at {at} ns"));
        format!("{owner} {place}, asked for at {called_ns} ns, {seen}")
    }

    fn describe(&self, error: OrderError) -> String {
        let named = match error {
            OrderError::Lost(one) | OrderError::Foreseen(one) => self.name(one),
            OrderError::Shared(one, other) | OrderError::Overtaken(one, other) => {
                format!("{}; {}", self.name(one), self.name(other))
            }
        };
        format!("{error}: {named}")
    }
}
