//! What a cache line costs between the two cores right now. It changes with the host's mood, so rows that cross cores are
//! tagged with it, and compared within one class.

use std::fmt;

use ticktape_tuning::hop::probe;
use ticktape_tuning::pin::usable_cores;

/// The two cores that a suite uses: the first and the last usable one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// Where the measuring side runs.
    pub here: usize,
    /// Where the other side runs.
    pub there: usize,
}

impl Cores {
    /// The cores to use, `None` where there is but one.
    pub fn pair() -> Option<Cores> {
        match usable_cores()[..] {
            [here, .., there] => Some(Cores { here, there }),
            _ => None,
        }
    }
}

/// How far apart two cores are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopClass {
    /// Below 40 ns one way: two threads of one core, or neighbours.
    Near,
    /// Below 100 ns: one last-level cache.
    Mid,
    /// Above: across sockets, or a host that put the two there.
    Far,
}

impl HopClass {
    /// The class of a one-way hop.
    pub fn of(one_way_ns: u64) -> HopClass {
        match one_way_ns {
            0..40 => HopClass::Near,
            40..100 => HopClass::Mid,
            _ => HopClass::Far,
        }
    }
}

/// The hops seen beside a row, one before each round, in ns one way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HopTag(Vec<u64>);

impl HopTag {
    /// Probes now, and remembers. A probe that fails leaves no trace.
    pub fn probe(&mut self, cores: Cores) {
        self.0.extend(probe(cores.here, cores.there).map(|hop| hop.one_way_p50_ns()));
    }

    /// Whether the class was the same before every round.
    pub fn is_steady(&self) -> bool {
        self.0.windows(2).all(|pair| HopClass::of(pair[0]) == HopClass::of(pair[1]))
    }
}

impl fmt::Display for HopTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let (Some(&first), Some(&last)) = (sorted.first(), sorted.last()) else { return f.write_str("unknown") };
        let class = |ns| format!("{:?}", HopClass::of(ns)).to_lowercase();
        if self.is_steady() {
            write!(f, "{} {} ns", class(first), sorted[sorted.len() / 2])
        } else {
            write!(f, "changed {} to {}, {first} to {last} ns", class(first), class(last))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_changed_between_rounds_shows() {
        assert_eq!(HopTag(vec![47, 45, 50]).to_string(), "mid 47 ns");
        assert_eq!(HopTag(vec![30, 180, 31]).to_string(), "changed near to far, 30 to 180 ns");
        assert_eq!(HopTag::default().to_string(), "unknown");
    }
}
