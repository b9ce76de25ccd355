//! What has come for a client and waits for its owner.

use std::collections::VecDeque;

use super::blocking::{Notice, OutputEvent};
use crate::link::{Event, HistoryGap, Tier};

/// What has come and was not yet received.
pub(super) struct Inbox {
    pub(super) notices: VecDeque<Notice>,
    pub(super) notices_max: usize,
    /// Events before it were not all received: a state that makes up for that reflects them.
    pub(super) lost_before: u64,
    /// Events before it are left out: a state reflects them.
    reflected_before: u64,
    pub(super) tier: Option<Tier>,
    /// The last history gap since the last input: between which events.
    pub(super) gap: Option<(u64, u64)>,
    pub(super) reconnects: u64,
    /// The reign that the link was open with last, and the one before.
    reigns: [u32; 2],
    /// Of each rewinding notice that waits, the reign that it takes events back of.
    rewound: VecDeque<u32>,
}

impl Inbox {
    /// Nothing has come for a client whose cursor is of `reign`.
    pub(super) fn new(notices_max: usize, reign: u32) -> Self {
        Inbox {
            notices: VecDeque::new(),
            notices_max,
            lost_before: 0,
            reflected_before: 0,
            tier: None,
            gap: None,
            reconnects: 0,
            reigns: [reign; 2],
            rewound: VecDeque::new(),
        }
    }

    /// The next one, in turn.
    pub(super) fn pop(&mut self) -> Option<Notice> {
        let notice = self.notices.pop_front()?;
        if is_rewinding(&notice) {
            self.rewound.pop_front();
        }
        Some(notice)
    }

    /// What the owner has not got yet, where the link itself is at `link_next`.
    pub(super) fn resume_next(&self, link_next: u64) -> u64 {
        match self.notices.front() {
            Some(Notice::Output(event)) => event.event_seq,
            Some(&Notice::Resync { from, .. }) => from,
            None => link_next.max(self.reflected_before),
        }
    }

    /// The reign whose numbers that is one of.
    pub(super) fn resume_reign(&self) -> u32 {
        self.rewound.front().copied().unwrap_or(self.reigns[0])
    }

    /// Events of the link's numbering before it were taken by the owner. Those from before a rewinding are of another.
    pub(super) fn taken_next(&self, link_next: u64) -> u64 {
        let rewound_at = if self.rewound.is_empty() { None } else { self.notices.iter().rposition(is_rewinding) };
        let first = self.notices.iter().skip(rewound_at.map_or(0, |at| at + 1)).find_map(|notice| match notice {
            Notice::Output(event) => Some(event.event_seq),
            Notice::Resync { .. } => None,
        });
        first.unwrap_or(link_next.max(self.reflected_before))
    }

    /// Takes what the link says.
    pub(super) fn take(&mut self, event: &Event<'_>) {
        match *event {
            Event::Output { event_seq, .. } if event_seq < self.reflected_before => {}
            Event::Output { event_seq, message } => self.notices.push_back(Notice::Output(OutputEvent {
                event_seq,
                log_seq: message.log_seq,
                client_seq: message.client_seq,
                bytes: message.output.to_vec(),
            })),
            Event::Resync { gap, from, next } => {
                if gap == HistoryGap::Rewound {
                    // What a state reflects may be what never happened.
                    self.reflected_before = 0;
                    self.rewound.push_back(self.reigns[1]);
                } else if next <= self.reflected_before {
                    return;
                }
                self.gap = Some((from, next));
                self.lost_before = next;
                self.notices.push_back(Notice::Resync { gap, from, next });
            }
            Event::Opened { tier, appliance_epoch, .. } => {
                self.tier = Some(tier);
                self.reigns = [appliance_epoch, self.reigns[0]];
            }
            Event::Disconnected => self.reconnects += 1,
            Event::Acked { .. } | Event::Closed(_) => {}
        }
    }

    /// While a state is on its way that reflects them, the oldest events go rather than that the link falls silent. Notes in
    /// `dropped` from where on, and up to where.
    pub(super) fn make_room(&mut self, dropped: &mut Option<(u64, u64)>) {
        while self.notices.len() >= self.notices_max {
            let (from, next) = match self.pop() {
                Some(Notice::Output(event)) => (event.event_seq, event.event_seq + 1),
                Some(Notice::Resync { from, next, .. }) => (from, next),
                None => return,
            };
            *dropped = Some((dropped.map_or(from, |(first, _)| first), next));
            self.lost_before = self.lost_before.max(next);
        }
    }

    /// The state that was waited for has not come: what was dropped meanwhile is lost.
    pub(super) fn admit(&mut self, dropped: Option<(u64, u64)>) {
        if let Some((from, next)) = dropped {
            self.gap = Some((from, next));
            self.notices.push_front(Notice::Resync { gap: HistoryGap::Overflow, from, next });
        }
    }

    /// A state reflects all events before `next`.
    pub(super) fn reflect(&mut self, next: u64) {
        self.reflected_before = next;
        self.notices.retain(|notice| match notice {
            Notice::Output(event) => event.event_seq >= next,
            Notice::Resync { next: goes_on_at, .. } => *goes_on_at > next,
        });
        let waiting = self.notices.iter().filter(|notice| is_rewinding(notice)).count();
        self.rewound.drain(..self.rewound.len() - waiting);
    }
}

/// Whether it says that events never happened.
const fn is_rewinding(notice: &Notice) -> bool {
    matches!(notice, Notice::Resync { gap: HistoryGap::Rewound, .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::EventMessage;

    fn opened(appliance_epoch: u32) -> Event<'static> {
        Event::Opened { appliance_epoch, tier: Tier::Memory, committed_next: 1 }
    }

    fn output(event_seq: u64) -> Event<'static> {
        Event::Output { event_seq, message: EventMessage { log_seq: event_seq, client_seq: 0, output: b"" } }
    }

    #[test]
    fn a_cursor_is_of_the_reign_before_until_its_owner_is_told_what_was_lost() {
        let mut inbox = Inbox::new(64, 0);
        [opened(1), output(1), output(2), output(3)].iter().for_each(|event| inbox.take(event));
        inbox.pop();
        assert_eq!((inbox.resume_next(4), inbox.resume_reign(), inbox.taken_next(4)), (2, 1, 2));
        // The link goes back over two reigns while events of the first wait.
        inbox.take(&opened(3));
        inbox.take(&Event::Resync { gap: HistoryGap::Rewound, from: 4, next: 2 });
        inbox.take(&output(2));
        assert_eq!((inbox.resume_next(3), inbox.resume_reign(), inbox.taken_next(3)), (2, 1, 2), "of the new numbers");
        inbox.pop();
        inbox.pop();
        assert_eq!((inbox.resume_next(3), inbox.resume_reign()), (4, 1), "the word of it waits");
        assert_eq!(inbox.taken_next(3), 2, "what comes behind it was not taken");
        assert!(inbox.pop().is_some_and(|notice| is_rewinding(&notice)));
        assert_eq!((inbox.resume_next(3), inbox.resume_reign(), inbox.taken_next(3)), (2, 3, 2));
        inbox.pop();
        assert_eq!((inbox.resume_next(3), inbox.taken_next(3)), (3, 3));
    }

    #[test]
    fn who_resumes_where_events_are_gone_is_told_again() {
        let mut inbox = Inbox::new(64, 5);
        inbox.take(&opened(5));
        inbox.take(&Event::Resync { gap: HistoryGap::TooOld, from: 20, next: 25 });
        inbox.take(&output(25));
        assert_eq!((inbox.resume_next(26), inbox.resume_reign(), inbox.taken_next(26)), (20, 5, 25));
        inbox.reflect(30);
        assert_eq!((inbox.resume_next(26), inbox.taken_next(26)), (30, 30));
    }
}
