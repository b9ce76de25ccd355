//! Who keeps the clock, and how far it is off.

use super::{Known, value};
use crate::root::{Root, Unread};

/// What those say who keep it.
#[derive(Clone, Debug)]
pub struct Time {
    /// What `chronyc -n tracking` prints.
    pub tracking: Known<String>,
    /// What `pmc` prints of `ptp4l`.
    pub ptp: Known<String>,
    /// When the box was started, in seconds since the Unix epoch, as its clock has it now: each step of that moves it.
    pub started_s: Known<i64>,
    /// When the kernel made its first devices, as the clock had it then: within some seconds of the start.
    pub first_devices_s: Known<i64>,
    /// Whether systemd-timesyncd has found the time since it runs.
    pub timesyncd_has_time: Known<bool>,
}

impl Time {
    /// Reads it.
    pub fn read(root: &Root) -> Time {
        // An empty file in its directory, from the first time that it has heard on.
        let timesyncd_has_time =
            root.names("run/systemd/timesync").map(|names| names.iter().any(|name| name == "synchronized"));
        let stat = root
            .kept("proc/stat", |line| (line.starts_with("cpu") || line.starts_with("btime")).then(|| line.to_owned()));
        let started_s = stat.and_then(|text| {
            let seconds = text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok());
            seconds.ok_or_else(|| Unread::malformed("proc/stat", "no btime in it"))
        });
        let first_devices_s = root.first_devices().and_then(|text| super::parsed("dev", &text));
        Time {
            tracking: root.chrony_tracking(),
            ptp: root.ptp_status(),
            started_s,
            first_devices_s,
            timesyncd_has_time,
        }
    }

    /// How far the clock is off, in seconds, and whether it is kept at all, as chrony says.
    pub fn offset_s(&self) -> Known<(f64, bool)> {
        let text = self.tracking.as_ref().map_err(Unread::clone)?;
        // "System time     : 0.000003341 seconds fast of NTP time".
        let seconds = value(text, "System time").and_then(|value| value.split(' ').next()?.parse::<f64>().ok());
        let seconds = seconds.filter(|seconds| seconds.is_finite());
        let seconds = seconds.ok_or_else(|| Unread::malformed("chronyc tracking", "no System time in it"))?;
        let is_synchronised = value(text, "Leap status").is_some_and(|status| status != "Not synchronised");
        // "7F7F0101 ()": the clock of this box, under `local`, which is always synchronised with itself.
        let is_its_own = value(text, "Reference ID").is_some_and(|id| id.starts_with("7F7F"));
        Ok((seconds, is_synchronised && !is_its_own))
    }

    /// How far the card's clock is off its master's, in seconds, and whether there is a master, as `ptp4l` says.
    pub fn ptp_offset_s(&self) -> Known<(f64, bool)> {
        let text = self.ptp.as_ref().map_err(Unread::clone)?;
        // "master_offset              -12", in ns.
        let of = |key: &str| text.lines().find_map(|line| line.trim().strip_prefix(key)).map(str::trim);
        let ns = of("master_offset").and_then(|ns| ns.parse::<f64>().ok()).filter(|ns| ns.is_finite());
        let ns = ns.ok_or_else(|| Unread::malformed("pmc TIME_STATUS_NP", "no master_offset in it"))?;
        Ok((ns / 1e9, of("gmPresent") == Some("true")))
    }
}
