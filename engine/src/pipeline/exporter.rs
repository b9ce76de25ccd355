//! What stages count, told to whoever looks at the metrics of an appliance or a replica.
//!
//! Latencies are there as they are counted. Counters are copied now and then, by the thread whose they are: a few relaxed stores each ten
//! milliseconds, and nothing on the way of a message.

use std::path::Path;

use ticktape_core::{Nanos, Seq};
use ticktape_shm::DEFAULT_DIR;
use ticktape_shm::layout::Header;
use ticktape_shm::metrics::{Figures, Kind, LatencyRecorder, Metrics, MetricsError, MetricsReader};

use super::core_thread::tell_stage;
use super::stage::Stage;
use crate::metrics::{Arrivals, Recorders, StageLatency};

/// Between two copies of a stage's counters, in ns: more often than anybody looks.
const EXPORT_NS: u64 = 10_000_000;

/// The group of what is known of the log ring, and its figure.
const RING: &str = "ring";
const RING_CREATED_NS: &str = "created_ns";

/// Metrics of an appliance while it is put together, or of a replica as long as it lives.
pub(super) struct Exporter {
    metrics: Metrics,
    /// Why they have no name, where one was wanted.
    why: Option<String>,
}

impl Exporter {
    /// Under a name, or in memory of this process, also where the name is not to be had: an appliance serves without being looked at.
    pub(super) fn new(name: Option<&str>, service: &str, epoch: u32) -> Result<Self, MetricsError> {
        let epoch = u64::from(epoch);
        let named = name.map(|name| Metrics::named(Path::new(DEFAULT_DIR), name, service, epoch));
        Self::or_in_memory(named, || Metrics::heap(service, epoch))
    }

    /// As [`Exporter::new`], for whoever has figures alone, and is in whichever epoch they say.
    pub(super) fn of_figures(name: Option<&str>, service: &str) -> Result<Self, MetricsError> {
        let named = name.map(|name| Metrics::named_of_figures(Path::new(DEFAULT_DIR), name, service, 0));
        Self::or_in_memory(named, || Metrics::heap_of_figures(service, 0))
    }

    fn or_in_memory(
        named: Option<Result<Metrics, MetricsError>>,
        in_memory: impl FnOnce() -> Result<Metrics, MetricsError>,
    ) -> Result<Self, MetricsError> {
        let (metrics, why) = match named {
            Some(Ok(metrics)) => (metrics, None),
            Some(Err(error)) => (in_memory()?, Some(error.to_string())),
            None => (in_memory()?, None),
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

    /// The stage's figures and those of its thread, named after the stage.
    pub(super) fn figures(&mut self, stage: &dyn Stage) -> Result<StageFigures, MetricsError> {
        self.figures_of(stage.name().as_str(), &|tell| tell_stage(stage, &Default::default(), tell))
    }

    /// Figures of whoever tells them always in the same order.
    pub(super) fn figures_of(&mut self, name: &str, tell_all: &dyn Fn(Tell<'_>)) -> Result<StageFigures, MetricsError> {
        let mut named = Vec::new();
        tell_all(&mut |name, kind, _| named.push((name, kind)));
        Ok(StageFigures { figures: self.metrics.figures(name, named)?, due_at: 0 })
    }

    /// Which ring others may follow: so are those found that do.
    pub(super) fn ring(&mut self, ring: &Header) -> Result<(), MetricsError> {
        let tell_all = |tell: Tell<'_>| tell(RING_CREATED_NS, LEVEL, ring.created_ns);
        self.figures_of(RING, &tell_all)?.export(0, tell_all);
        Ok(())
    }

    /// Shows them to others.
    pub(super) fn publish(&mut self) -> Result<(), MetricsError> {
        self.metrics.publish()
    }

    /// They are shown for as long as what is returned is there.
    pub(super) fn into_metrics(self) -> Metrics {
        self.metrics
    }

    /// A look at them from within.
    pub(super) fn reader(&self) -> MetricsReader {
        self.metrics.reader()
    }

    /// Says that whoever is measured lives.
    pub(super) fn heartbeat(&self) -> Heartbeat {
        Heartbeat::of(&self.metrics)
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
