//! How the appliance answers a Hello: a decision, without a session's two ends, which live elsewhere.
//!
//! | the Hello, against what is known of its session | answer |
//! |---|---|
//! | no window, a tiny datagram, a cursor of 0 | `Refuse(BadHello)` |
//! | another schema | `Refuse(SchemaMismatch)` |
//! | lower client epoch | `Refuse(StaleEpoch)` |
//! | same epoch, higher nonce | `Open`, streams go on |
//! | same epoch, same nonce and cursor | `Repeat`: the Welcome was lost |
//! | same epoch, lower nonce, or same nonce and another cursor | `Refuse(StaleEpoch)`: overtaken, or the epoch was used before |
//! | higher epoch, or a new session, and inputs of that epoch were acknowledged | `Refuse(InputsLost)` |
//! | higher epoch, or a new session | `Open`, the up stream begins where the client says |
//!
//! That inputs are lost is refused rather than welcomed, since it opens nothing: a session that history knows from then on would have it that all
//! before `first_seq` is there.

use super::packet::{Hello, Identity, Refuse, RefuseReason, Tier, Welcome};

/// The smallest datagram that a peer may ask for: what every IPv4 host takes, less its headers.
pub const DATAGRAM_BYTES_MIN: u32 = 548;

/// What the appliance offers to every session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The service's schema version.
    pub schema: u32,
    /// What acknowledgements promise.
    pub tier: Tier,
    /// Messages taken beyond an acknowledgement.
    pub window: u32,
    /// The largest datagram taken.
    pub datagram_bytes_max: u32,
}

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The highest client epoch known.
    pub client_epoch: u32,
    /// Of the last Hello that opened it in this reign: its nonce and its `resume_next`. `None` where the session is known from
    /// history alone.
    pub opened_by: Option<(u64, u64)>,
    /// Inputs of that epoch before it are committed.
    pub committed_next: u64,
    /// Inputs of that epoch before it have arrived.
    pub received_next: u64,
    /// The oldest event that can still be sent.
    pub first_event: u64,
    /// The number of the session's next event.
    pub next_event: u64,
}

/// The answer to a Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Open the session, or open it anew: the receiver begins at `received_next` (where there is none of this epoch yet), the
    /// sender at `send_from`. Then send the Welcome.
    Open {
        /// To be sent.
        welcome: Welcome,
        /// The event to send first: the one asked for, where it is kept.
        send_from: u64,
    },
    /// Send the Welcome again; the session is open already.
    Repeat(Welcome),
    /// Send this; nothing changes.
    Refuse(Refuse),
}

/// Decides on a Hello. `standing` is `None` for a session that neither history nor this reign has seen; its events then
/// begin at 1.
pub fn answer_hello(terms: &Terms, standing: Option<&Standing>, identity: &Identity, hello: &Hello) -> Answer {
    let refuse = |reason, detail| Answer::Refuse(Refuse { nonce: hello.nonce, reason, detail });
    if hello.window == 0 || hello.first_seq == 0 || hello.resume_next == 0 {
        return refuse(RefuseReason::BadHello, 0);
    }
    if hello.datagram_bytes_max < DATAGRAM_BYTES_MIN {
        return refuse(RefuseReason::BadHello, u64::from(hello.datagram_bytes_max));
    }
    if hello.schema != terms.schema {
        return refuse(RefuseReason::SchemaMismatch, u64::from(terms.schema));
    }
    let (first_event, next_event) = standing.map_or((1, 1), |standing| (standing.first_event, standing.next_event));
    let welcome = |committed_next, received_next| Welcome {
        nonce: hello.nonce,
        committed_next,
        received_next,
        first_event,
        next_event,
        window: terms.window,
        datagram_bytes_max: terms.datagram_bytes_max,
        schema: terms.schema,
        tier: terms.tier,
    };
    let send_from = hello.resume_next.max(first_event).min(next_event);
    match standing {
        Some(standing) if identity.client_epoch < standing.client_epoch => {
            refuse(RefuseReason::StaleEpoch, u64::from(standing.client_epoch))
        }
        Some(standing) if identity.client_epoch == standing.client_epoch => {
            let welcome = welcome(standing.committed_next, standing.received_next);
            match standing.opened_by {
                Some((nonce, resume_next)) if (nonce, resume_next) == (hello.nonce, hello.resume_next) => {
                    Answer::Repeat(welcome)
                }
                Some((nonce, _)) if hello.nonce <= nonce => {
                    refuse(RefuseReason::StaleEpoch, u64::from(standing.client_epoch))
                }
                _ => Answer::Open { welcome, send_from },
            }
        }
        _ if hello.is_resumed => {
            refuse(RefuseReason::InputsLost, standing.map_or(0, |standing| u64::from(standing.client_epoch)))
        }
        _ => Answer::Open { welcome: welcome(hello.first_seq, hello.first_seq), send_from },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms { schema: 3, tier: Tier::Local, window: 64, datagram_bytes_max: 1472 };
    const HELLO: Hello = Hello {
        nonce: 5,
        resume_next: 20,
        first_seq: 9,
        window: 64,
        datagram_bytes_max: 1472,
        schema: 3,
        is_resumed: false,
    };
    const KNOWN: Standing = Standing {
        client_epoch: 2,
        opened_by: Some((4, 10)),
        committed_next: 11,
        received_next: 12,
        first_event: 15,
        next_event: 30,
    };

    fn answer(standing: Option<Standing>, client_epoch: u32, hello: Hello) -> Answer {
        let identity = Identity { session: 1, client_epoch, appliance_epoch: 0 };
        answer_hello(&TERMS, standing.as_ref(), &identity, &hello)
    }

    fn refused(standing: Option<Standing>, client_epoch: u32, hello: Hello) -> Option<(RefuseReason, u64)> {
        match answer(standing, client_epoch, hello) {
            Answer::Refuse(refuse) => {
                assert_eq!(refuse.nonce, hello.nonce);
                Some((refuse.reason, refuse.detail))
            }
            _ => None,
        }
    }

    /// (cursors of both streams, where the sender begins)
    fn opened(standing: Option<Standing>, client_epoch: u32, hello: Hello) -> Option<([u64; 4], u64)> {
        match answer(standing, client_epoch, hello) {
            Answer::Open { welcome, send_from } => {
                assert_eq!(
                    (welcome.nonce, welcome.schema, welcome.window, welcome.tier),
                    (hello.nonce, 3, 64, Tier::Local)
                );
                let cursors = [welcome.committed_next, welcome.received_next, welcome.first_event, welcome.next_event];
                Some((cursors, send_from))
            }
            _ => None,
        }
    }

    #[test]
    fn each_row_of_the_table() {
        for bad in [Hello { window: 0, ..HELLO }, Hello { first_seq: 0, ..HELLO }, Hello { resume_next: 0, ..HELLO }] {
            assert_eq!(refused(None, 1, bad), Some((RefuseReason::BadHello, 0)));
        }
        let tiny = Hello { datagram_bytes_max: 547, ..HELLO };
        assert_eq!(refused(None, 1, tiny), Some((RefuseReason::BadHello, 547)));
        assert_eq!(refused(Some(KNOWN), 2, Hello { schema: 4, ..HELLO }), Some((RefuseReason::SchemaMismatch, 3)));
        assert_eq!(refused(Some(KNOWN), 1, HELLO), Some((RefuseReason::StaleEpoch, 2)));

        assert_eq!(opened(Some(KNOWN), 2, HELLO), Some(([11, 12, 15, 30], 20)));
        let from_history = Standing { opened_by: None, ..KNOWN };
        assert_eq!(opened(Some(from_history), 2, Hello { nonce: 0, ..HELLO }), Some(([11, 12, 15, 30], 20)));
        let repeated = answer(Some(KNOWN), 2, Hello { nonce: 4, resume_next: 10, ..HELLO });
        assert!(matches!(repeated, Answer::Repeat(welcome) if welcome.received_next == 12));
        assert_eq!(refused(Some(KNOWN), 2, Hello { nonce: 3, ..HELLO }), Some((RefuseReason::StaleEpoch, 2)));
        assert_eq!(refused(Some(KNOWN), 2, Hello { nonce: 4, ..HELLO }), Some((RefuseReason::StaleEpoch, 2)));

        assert_eq!(opened(Some(KNOWN), 3, HELLO), Some(([9, 9, 15, 30], 20)), "events outlive the client's epoch");
        assert_eq!(opened(None, 3, Hello { resume_next: 1, ..HELLO }), Some(([9, 9, 1, 1], 1)));
    }

    #[test]
    fn acknowledged_inputs_of_an_unknown_epoch_are_lost_and_open_nothing() {
        let resumed = Hello { is_resumed: true, ..HELLO };
        assert_eq!(refused(None, 3, resumed), Some((RefuseReason::InputsLost, 0)));
        assert_eq!(refused(Some(KNOWN), 3, resumed), Some((RefuseReason::InputsLost, 2)));
        assert_eq!(opened(Some(KNOWN), 2, resumed), Some(([11, 12, 15, 30], 20)), "of a known epoch the cursors tell");
        assert_eq!(refused(Some(KNOWN), 1, resumed), Some((RefuseReason::StaleEpoch, 2)));
    }

    #[test]
    fn the_sender_begins_where_there_are_events() {
        let from = |resume_next| opened(Some(KNOWN), 2, Hello { resume_next, ..HELLO }).map(|(_, from)| from);
        assert_eq!(from(1), Some(15), "what is no longer kept is left out");
        assert_eq!(from(30), Some(30));
        assert_eq!(from(99), Some(30), "what never happened is not waited for");
    }
}
