//! What stands on the status line, and until when: no longer than it is true, and news not for ever.

use std::fmt;
use std::net::SocketAddrV4;

use ticktape_core::Nanos;

use super::lower::LowerLeader;
use super::status::Board;

/// News stays for so long once all is well, in ns: several lines of those who print one a second.
const NEWS_NS: u64 = 10_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Nothing,
    /// Whoever was asked has not answered.
    Waiting,
    /// True until all is well.
    Trouble,
    /// Not a state: it has happened.
    News {
        until: Option<Nanos>,
    },
}

/// The words of a replica's intake.
pub(super) struct Words {
    board: Board,
    standing: Standing,
    word: String,
    trouble: String,
    /// Beside the trouble stands who is asked about it.
    asks: bool,
    /// Said beside all else, for as long as it is so.
    lower: Option<LowerLeader>,
}

impl Words {
    /// On a board that may say how this came to begin: news.
    pub(super) fn new(board: Board) -> Self {
        let word = board.read().word;
        let standing = if word.is_empty() { Standing::Nothing } else { Standing::News { until: None } };
        Words { board, standing, word, trouble: String::new(), asks: false, lower: None }
    }

    fn say(&mut self, word: impl fmt::Display, standing: Standing) {
        self.put(word.to_string());
        (self.standing, self.asks) = (standing, false);
    }

    fn put(&mut self, word: String) {
        self.word = word;
        self.show();
    }

    fn show(&self) {
        match (&self.word[..], &self.lower) {
            (word, None) => self.board.say(word),
            ("", Some(lower)) => self.board.say(lower),
            (word, Some(lower)) => self.board.say(format_args!("{word}; {lower}")),
        }
    }

    /// Who leads in a lower epoch on the feed, which stands beside whatever else there is.
    pub(super) fn lower(&mut self, leader: Option<LowerLeader>) {
        if self.lower != leader {
            self.lower = leader;
            self.show();
        }
    }

    /// Somebody is asked for the log. What went wrong before stays beside it.
    pub(super) fn waits_for(&mut self, peer: SocketAddrV4) {
        match self.standing {
            Standing::Trouble => {
                self.put(format!("{}; now {}", self.trouble, asking(peer)));
                self.asks = true;
            }
            // What has happened is more than what is done about it.
            Standing::News { .. } => {}
            Standing::Nothing | Standing::Waiting => self.say(asking(peer), Standing::Waiting),
        }
    }

    /// Whoever was asked answers.
    pub(super) fn is_answered(&mut self) {
        if self.standing == Standing::Waiting {
            self.clear();
        } else if self.asks {
            self.asks = false;
            self.put(self.trouble.clone());
        }
    }

    /// Something is wrong.
    pub(super) fn trouble(&mut self, word: impl fmt::Display) {
        self.trouble = word.to_string();
        self.say(self.trouble.clone(), Standing::Trouble);
    }

    /// Something is wrong, and goes on to be.
    pub(super) fn stands(&mut self, word: &str) {
        if self.standing != Standing::Trouble || self.trouble != word {
            self.trouble(word);
        }
    }

    /// Whether something is said to be wrong.
    pub(super) fn has_trouble(&self) -> bool {
        self.standing == Standing::Trouble
    }

    /// Something has happened.
    pub(super) fn news(&mut self, word: impl fmt::Display) {
        self.say(word, Standing::News { until: None });
    }

    /// Nothing that was said is true any more.
    pub(super) fn clear(&mut self) {
        if self.standing != Standing::Nothing {
            self.say("", Standing::Nothing);
        }
    }

    /// Takes away what is no longer true.
    pub(super) fn poll(&mut self, now: Nanos, is_well: bool) {
        match self.standing {
            Standing::Waiting | Standing::Trouble if is_well => self.clear(),
            Standing::News { until: None } if is_well => {
                self.standing = Standing::News { until: Some(now.saturating_add(NEWS_NS)) };
            }
            Standing::News { until: Some(until) } if now >= until => self.clear(),
            _ => {}
        }
    }
}

/// That somebody is asked for the log.
pub(crate) fn asking(peer: SocketAddrV4) -> String {
    format!("asking {peer} for the log, which has not answered yet")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new([10, 0, 0, 1].into(), port)
    }

    #[test]
    fn a_word_goes_when_it_is_no_longer_true() {
        let board = Board::default();
        let word = || board.read().word;
        let mut words = Words::new(board.clone());
        words.waits_for(peer(1));
        assert_eq!(word(), "asking 10.0.0.1:1 for the log, which has not answered yet");
        words.poll(0, false);
        words.is_answered();
        assert_eq!(word(), "");

        words.trouble("nobody there");
        words.waits_for(peer(1));
        words.waits_for(peer(2));
        assert_eq!(word(), "nobody there; now asking 10.0.0.1:2 for the log, which has not answered yet");
        words.is_answered();
        words.poll(1, false);
        assert_eq!(word(), "nobody there", "until all is well");
        words.poll(2, true);
        assert_eq!(word(), "");
    }

    #[test]
    fn a_leader_of_a_lower_epoch_stands_beside_all_else_and_takes_nothing_away() {
        let board = Board::default();
        let word = || board.read().word;
        let mut words = Words::new(board.clone());
        let leader = LowerLeader::new(2, peer(9), 3);
        words.lower(Some(leader));
        assert_eq!(word(), leader.to_string());
        words.trouble("nobody there");
        words.waits_for(peer(1));
        assert!(word().starts_with("nobody there; now asking ") && word().ends_with(&format!("yet; {leader}")));
        words.is_answered();
        assert_eq!(word(), format!("nobody there; {leader}"));
        words.poll(0, true);
        assert_eq!(word(), leader.to_string());
        words.trouble("nobody there");
        words.lower(None);
        assert_eq!(word(), "nobody there");
        words.clear();
        assert_eq!(word(), "");
    }

    #[test]
    fn news_stays_a_while_after_all_is_well() {
        let board = Board::default();
        board.say("began from a snapshot");
        let mut words = Words::new(board.clone());
        words.poll(0, false);
        words.waits_for(peer(1));
        words.poll(NEWS_NS, true);
        words.poll(2 * NEWS_NS - 1, true);
        assert_eq!(board.read().word, "began from a snapshot");
        words.poll(2 * NEWS_NS, true);
        assert_eq!(board.read().word, "");
        words.news("a liar");
        words.poll(2 * NEWS_NS, true);
        words.poll(3 * NEWS_NS, false);
        assert_eq!(board.read().word, "");
    }
}
