//! What a replica shows of itself to whoever looks, over all its beginnings anew: each of its stages goes on with the words of the one before.

use ticktape_core::Nanos;
use ticktape_shm::Tap;
use ticktape_shm::metrics::{Kind, MetricsError, MetricsReader};

use super::exporter::{COUNTER, Exporter, Heartbeat, LEVEL, StageFigures, Tell};
use super::plan::StageName;
use super::stage::Stage;
use crate::replica::{Board, Figure, ReplicaConfig};

/// The metrics of a replica.
pub(super) struct ReplicaMetrics {
    exporter: Exporter,
    board: StageFigures,
    heartbeat: Heartbeat,
}

impl ReplicaMetrics {
    /// Shows where `board` stands, under the configured name, if any.
    pub(super) fn new(config: &ReplicaConfig, service: &str, board: &Board) -> Result<Self, MetricsError> {
        let mut exporter = Exporter::of_figures(config.metrics.as_deref(), service)?;
        let board = exporter.figures_of(StageName::Replica.as_str(), &|tell| tell_board(board, tell))?;
        exporter.publish()?;
        let heartbeat = exporter.heartbeat();
        Ok(ReplicaMetrics { exporter, board, heartbeat })
    }

    /// Where they can be read, for people.
    pub(super) fn describe(&self) -> String {
        self.exporter.describe()
    }

    /// A look at them from within.
    pub(super) fn reader(&self) -> MetricsReader {
        self.exporter.reader()
    }

    /// A ring, which others may follow.
    pub(super) fn ring(&mut self, tap: &Tap) -> Result<(), MetricsError> {
        self.exporter.ring(tap.header())
    }

    /// Figures of a stage, which goes on for the one before.
    pub(super) fn stage(&mut self, stage: &dyn Stage) -> Result<StageFigures, MetricsError> {
        self.exporter.figures(stage)
    }

    /// The same of whoever is no stage.
    pub(super) fn figures_of(
        &mut self,
        name: StageName,
        tell: &dyn Fn(Tell<'_>),
    ) -> Result<StageFigures, MetricsError> {
        self.exporter.figures_of(name.as_str(), tell)
    }

    /// Shows where it stands, where that is due.
    pub(super) fn show(&mut self, board: &Board, now: Nanos) {
        self.heartbeat.beat(now);
        self.board.export(now, |tell| tell_board(board, tell));
    }
}

fn tell_board(board: &Board, tell: Tell<'_>) {
    tell("state", LEVEL, board.state() as u64);
    Figure::ALL.iter().for_each(|&figure| tell(figure.name(), kind(figure), board.get(figure)));
    let [leader, committed] = [Figure::LeaderCommit, Figure::Committed].map(|figure| board.get(figure));
    tell("commit_lag", LEVEL, leader.saturating_sub(committed));
    let [received, durable] = [Figure::Received, Figure::Durable].map(|figure| board.get(figure));
    tell("ring_frames", LEVEL, received.saturating_sub(durable));
}

/// Where it stands goes up and down; everything else counts up, from each beginning on.
fn kind(figure: Figure) -> Kind {
    match figure {
        Figure::Epoch
        | Figure::Received
        | Figure::Durable
        | Figure::LeaderCommit
        | Figure::Committed
        | Figure::Applied
        | Figure::LowerEpoch => LEVEL,
        _ => COUNTER,
    }
}
