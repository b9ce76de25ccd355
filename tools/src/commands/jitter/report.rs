//! What a run found, as it stands in its file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use ticktape_tuning::jitter::Cause;
use ticktape_tuning::jitter::watch::{Interruption, Watched};
use ticktape_tuning::{clock, host, pin};

use crate::Failure;
use crate::args::JitterArgs;
use crate::hdr::{Latency, decode, encode};

/// What the file says that it is.
const FORMAT: &str = "ticktape jitter 1";
/// A file is read up to here: a thousand cores with full histograms take less.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    format: String,
    pub hostname: String,
    pub cpu_model: String,
    pub kernel: String,
    /// Milliseconds since the Unix epoch.
    pub started_unix_ms: u64,
    pub seconds: u64,
    pub threshold_ns: u64,
    pub causes_above_ns: u64,
    /// The time between two wake-ups; none where it spun.
    pub wake_us: Option<u64>,
    /// The priority under SCHED_FIFO; none where it ran as everybody does.
    pub fifo: Option<u8>,
    /// What the wake-ups of all cores were held within, in µs; none where nobody asked.
    pub hold_cpu_latency_us: Option<u32>,
    /// Whether all cores were looked at at the same time.
    pub together: bool,
    pub cores: Vec<CoreReport>,
}

/// One core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoreReport {
    pub core: usize,
    pub started_unix_ns: u64,
    /// Without the time that it took to read counters.
    pub watched_ns: u64,
    pub looking_ns: u64,
    /// Of the clock; wake-ups where it slept.
    pub readings: u64,
    /// Wake-ups that had passed before the one before them.
    pub missed: u64,
    /// A round of the loop.
    pub step_ns: u64,
    pub lost_ns: u64,
    pub lost_ppm: f64,
    pub waits: Latency,
    /// Compressed, in base 64, as in a histogram log.
    pub waits_histogram: String,
    /// Where it spun.
    pub gaps: Option<Latency>,
    pub gaps_histogram: Option<String>,
    pub came: Vec<Came>,
    /// The longest interruptions.
    pub longest: Vec<Longest>,
    /// What could not be counted, and why.
    pub not_counted: Vec<String>,
}

/// Something that was counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Came {
    pub what: String,
    pub count: u64,
}

impl Came {
    fn all(causes: &[Cause]) -> Vec<Came> {
        causes.iter().map(|cause| Came { what: cause.what.clone(), count: cause.count }).collect()
    }
}

/// One interruption.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Longest {
    /// When it began, since the core's watch did.
    pub at_ns: u64,
    pub unix_ns: u64,
    pub length_ns: u64,
    /// What came in it and in the time before, since counters had been read; none where they were not read after it.
    pub came: Option<Vec<Came>>,
    pub came_over_ns: Option<u64>,
}

impl Report {
    /// A run that begins now.
    pub fn new(args: &JitterArgs, together: bool) -> Report {
        let host::Host { hostname, kernel, cpu_model, .. } = host::describe();
        Report {
            format: FORMAT.to_owned(),
            hostname,
            cpu_model,
            kernel,
            started_unix_ms: clock::realtime_ns() / 1_000_000,
            seconds: args.seconds,
            threshold_ns: args.threshold,
            causes_above_ns: args.causes_above,
            wake_us: args.wake,
            fifo: args.fifo,
            hold_cpu_latency_us: args.hold_cpu_latency_us,
            together,
            cores: Vec::new(),
        }
    }

    /// What is done, in a line.
    pub fn head(&self, cores: &[usize]) -> String {
        let Report { hostname, cpu_model, kernel, seconds, .. } = self;
        format!(
            "{hostname}: {cpu_model}, {kernel}\ncores {}{}, {seconds} s each, {}",
            pin::list(cores),
            match cores.len() {
                1 => "",
                _ if self.together => ", at the same time",
                _ => ", one after the other",
            },
            self.way()
        )
    }

    /// How it was looked, in words: only what is alike in this can be compared.
    pub fn way(&self) -> String {
        let way = self.wake_us.map_or_else(
            || format!("spinning, gaps above {} ns count", self.threshold_ns),
            |us| format!("waking up each {us} µs"),
        );
        let held =
            self.hold_cpu_latency_us.map_or_else(String::new, |us| format!(", cores held awake to within {us} µs"));
        let fifo = self.fifo.map_or_else(String::new, |priority| format!(", SCHED_FIFO {priority}"));
        format!("{way}{fifo}{held}")
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Usage, with the file's name: it is not there, or none of these.
    pub fn load(path: &Path) -> Result<Report, Failure> {
        let wrong = |what: String| Failure::usage(format!("{}: {what}", path.display()));
        let mut text = String::new();
        let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
        let report: Report = serde_json::from_str(&text)
            .map_err(|error| wrong(format!("is nothing that jitter --json wrote: {error}")))?;
        if report.format != FORMAT {
            return Err(wrong(format!("is {:?}, not {FORMAT:?}", report.format)));
        }
        for core in &report.cores {
            core.histograms().map_err(|what| wrong(format!("core {}: {what}", core.core)))?;
        }
        Ok(report)
    }
}

impl CoreReport {
    pub fn new(core: usize, started_unix_ns: u64, found: &Watched) -> CoreReport {
        let longest = |worst: &Interruption| Longest {
            at_ns: worst.at_ns,
            unix_ns: started_unix_ns.saturating_add(worst.at_ns),
            length_ns: worst.length_ns,
            came: worst.seen.as_ref().map(|seen| Came::all(&seen.causes)),
            came_over_ns: worst.seen.as_ref().map(|seen| seen.over_ns),
        };
        CoreReport {
            core,
            started_unix_ns,
            watched_ns: found.watched_ns,
            looking_ns: found.looking_ns,
            readings: found.readings,
            missed: found.missed,
            step_ns: found.step_ns,
            lost_ns: found.lost_ns,
            lost_ppm: found.lost_ppm(),
            waits: Latency::of(&found.waits),
            waits_histogram: encode(&found.waits),
            gaps: found.gaps.as_ref().map(Latency::of),
            gaps_histogram: found.gaps.as_ref().map(encode),
            came: Came::all(&found.totals),
            longest: found.worst.iter().map(longest).collect(),
            not_counted: found.unread.iter().map(ToString::to_string).collect(),
        }
    }

    /// Of waits, and of gaps where it spun.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn histograms(&self) -> Result<(Histogram<u64>, Option<Histogram<u64>>), String> {
        let read = |what: &str, text: &str| decode(text).map_err(|reason| format!("{what}: {reason}"));
        let gaps = self.gaps_histogram.as_deref().map(|text| read("gaps", text)).transpose()?;
        Ok((read("waits", &self.waits_histogram)?, gaps))
    }
}
