//! What stages count, told to whoever looks at the appliance's metrics.
//!
//! Latencies are there as they are counted. Counters are copied now and then, by the thread whose they are: a few relaxed stores each ten
//! milliseconds, and nothing on the way of a message.

use std::path::Path;

use ticktape_core::{Nanos, Seq};
use ticktape_shm::DEFAULT_DIR;
use ticktape_shm::metrics::{Figures, Kind, LatencyRecorder, Metrics, MetricsError};

use super::stage::Stage;
use crate::metrics::{Arrivals, Recorders, StageLatency};

/// Between two copies of a stage's counters, in ns: more often than anybody looks.
const EXPORT_NS: u64 = 10_000_000;

/// Metrics of an appliance while it is put together.
pub(super) struct Exporter {
    metrics: Metrics,
    /// Why they have no name, where one was wanted.
    why: Option<String>,
}

impl Exporter {
    /// Under a name, or in memory of this process, also where the name is not to be had: an appliance serves without being looked at.
    pub(super) fn new(name: Option<&str>, service: &str, epoch: u32) -> Result<Self, MetricsError> {
        let epoch = u64::from(epoch);
        let named = name.map(|name| Metrics::named(Path::new(DEFAULT_DIR), name, service, epoch)).transpose();
        let (metrics, why) = match named {
            Ok(Some(metrics)) => (metrics, None),
            Ok(None) => (Metrics::heap(service, epoch)?, None),
            Err(error) => (Metrics::heap(service, epoch)?, Some(error.to_string())),
        };
        Ok(Exporter { metrics, why })
    }

    /// Where they can be read.
    pub(super) fn describe(&self) -> String {
        self.why.as_ref().map_or_else(|| self.metrics.describe(), |why| format!("{} ({why})", self.metrics.describe()))
    }

    /// A stage's latencies, for what comes after `passed`.
    pub(super) fn latency(
        &mut self,
        stage: &str,
        arrivals: &Arrivals,
        passed: Seq,
    ) -> Result<StageLatency, MetricsError> {
        Ok(StageLatency::new(arrivals.clone(), passed, self.recorders(stage)?))
    }

    /// Histograms of a point, one for each part of a run.
    pub(super) fn recorders(&mut self, point: &str) -> Result<Recorders, MetricsError> {
        let first: LatencyRecorder = self.metrics.histogram(point)?;
        Ok([first, self.metrics.histogram(&format!("{point}.2"))?])
    }

    /// The stage's figures, named after it.
    pub(super) fn figures(&mut self, stage: &dyn Stage) -> Result<StageFigures, MetricsError> {
        self.figures_of(stage.name().as_str(), &|tell| stage.figures(tell))
    }

    /// Figures of whoever tells them always in the same order.
    pub(super) fn figures_of(&mut self, name: &str, tell_all: &dyn Fn(Tell<'_>)) -> Result<StageFigures, MetricsError> {
        let mut named = Vec::new();
        tell_all(&mut |name, kind, _| named.push((name, kind)));
        Ok(StageFigures { figures: self.metrics.figures(name, named)?, due_at: 0 })
    }

    /// Shows them to others. They are there for as long as what is returned.
    pub(super) fn publish(mut self) -> Result<Metrics, MetricsError> {
        self.metrics.publish()?;
        Ok(self.metrics)
    }
}

/// To whom figures are told: name, kind, value.
pub(super) type Tell<'a> = &'a mut dyn FnMut(&'static str, Kind, u64);

/// A stage's figures.
pub(super) struct StageFigures {
    figures: Figures,
    due_at: Nanos,
}

impl StageFigures {
    /// Copies what is told, where that is due.
    pub(super) fn export(&mut self, now: Nanos, tell_all: impl FnOnce(Tell<'_>)) {
        if now < self.due_at {
            return;
        }
        self.due_at = now.saturating_add(EXPORT_NS);
        let mut index = 0;
        tell_all(&mut |_, _, value| {
            self.figures.set(index, value);
            index += 1;
        });
    }
}

/// Says that the appliance lives.
pub(super) struct Heartbeat(Figures);

impl Heartbeat {
    pub(super) fn of(metrics: &Metrics) -> Self {
        Heartbeat(metrics.heartbeat())
    }

    pub(super) fn beat(&mut self, now: Nanos) {
        self.0.set(0, now);
    }
}

/// A counter's kind, and a level's, for what stages tell.
pub(super) const COUNTER: Kind = Kind::Counter;
pub(super) const LEVEL: Kind = Kind::Level;
