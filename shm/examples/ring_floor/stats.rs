//! Rows, medians, and pinning.

use std::fmt;

/// One comparison.
pub struct Row {
    pub name: String,
    pub unit: &'static str,
    pub ours: f64,
    pub other: f64,
    pub other_name: &'static str,
    /// Ours divided by the other's must be at most (or, for rates, at least) this.
    pub budget: f64,
    pub is_rate: bool,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ratio = self.ours / self.other;
        let holds = if self.is_rate { ratio >= self.budget } else { ratio <= self.budget };
        write!(
            f,
            "{:<44} {:>9.1} {:<4} {:>9.1} {:<16} ratio {ratio:>5.2} budget {} {:.2} {}",
            self.name,
            self.ours,
            self.unit,
            self.other,
            self.other_name,
            if self.is_rate { ">=" } else { "<=" },
            self.budget,
            if holds { "holds" } else { "SHORT" }
        )
    }
}

/// The value below which `fraction` of the values lie.
pub fn percentile(mut values: Vec<f64>, fraction: f64) -> f64 {
    let at = ((values.len() - 1) as f64 * fraction) as usize;
    *values.select_nth_unstable_by(at, f64::total_cmp).1
}

/// Keeps the calling thread on one core, where the system allows it.
pub fn pin(core: usize) {
    let mut set = nix::sched::CpuSet::new();
    if set.set(core).is_ok() {
        let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set);
    }
}

/// A sealed frame of `bytes` bytes in all.
pub fn sealed(seq: u64, bytes: usize) -> Vec<u8> {
    use ticktape_core::{Frame, Kind, Seq, Timestamp};
    let payload = vec![7; bytes - 32];
    let mut out = Vec::new();
    let frame = Frame { seq: Seq(seq), timestamp: Timestamp(seq), stream_id: 0, kind: Kind::Input, payload: &payload };
    frame.append_to(&mut out);
    out
}

/// The time-stamp counter. Ratios need no unit; `ns_per_tick` gives one.
#[cfg(target_arch = "x86_64")]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn ticks() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Nanoseconds to a tick, measured over 20 ms.
pub fn ns_per_tick() -> f64 {
    let (start, from) = (std::time::Instant::now(), ticks());
    while start.elapsed().as_millis() < 20 {
        std::hint::spin_loop();
    }
    start.elapsed().as_nanos() as f64 / (ticks() - from) as f64
}
