//! The page's plots; nothing where the program was built without them.

use super::found::Run;
use crate::hdr::LogSummary;
use crate::load::summary::Summary;

#[cfg(not(feature = "plots"))]
mod without {
    use super::{LogSummary, Run, Summary};

    pub fn percentiles(_: &[Run]) -> String {
        "<p class=\"note\">no plots: this program was built without them</p>\n".to_string()
    }

    pub fn timeline(_: &LogSummary) -> String {
        String::new()
    }

    pub fn sweep(_: &Summary) -> String {
        String::new()
    }
}
#[cfg(not(feature = "plots"))]
pub use without::{percentiles, sweep, timeline};

#[cfg(feature = "plots")]
mod with {
    use super::{LogSummary, Run, Summary};
    use crate::load::plots;
    use crate::plots::Plot;
    use crate::report::html::escape;

    /// A plot in place, or why there is none.
    fn place(plot: &Plot) -> String {
        match plot.svg() {
            Ok(svg) => svg,
            Err(error) => format!("<p class=\"note\">{}</p>\n", escape(&error.to_string())),
        }
    }

    pub fn percentiles(runs: &[Run]) -> String {
        let curves = runs.iter().flat_map(|run| {
            let name =
                |tag: &Option<String>| tag.as_ref().map_or(run.name.clone(), |tag| format!("{} [{tag}]", run.name));
            run.log.totals.iter().map(move |(tag, total)| (name(tag), crate::hdr::percentile_steps(total)))
        });
        place(&Plot::Percentiles(curves.collect()))
    }

    /// Of the first tag: several in one would be a tangle.
    pub fn timeline(log: &LogSummary) -> String {
        let Some(tag) = log.totals.keys().next() else { return String::new() };
        place(&plots::timeline(log.rows.iter().filter(|row| row.tag == *tag)))
    }

    pub fn sweep(summary: &Summary) -> String {
        place(&plots::sweep(summary))
    }
}
#[cfg(feature = "plots")]
pub use with::{percentiles, sweep, timeline};
