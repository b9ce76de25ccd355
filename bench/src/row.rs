//! One comparison: ours, the floor under it, a peer beside it, and the budget it has to keep.

use serde::{Serialize, Serializer};

use crate::hop::HopTag;
use crate::rounds::Rounds;

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Times, counts.
    Lower,
    /// Rates.
    Higher,
}

/// What a row has to keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// This value itself, in the row's unit.
    Value(f64),
    /// So many times the floor.
    OfFloor(f64),
    /// So many times the peer.
    OfPeer(f64),
    /// The floor and so much more, in the row's unit.
    FloorPlus(f64),
}

/// Another project that does the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// Its name.
    pub name: &'static str,
    /// What it reached.
    pub rounds: Rounds,
}

/// One comparison, with a value of each contestant for each round.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The suite.
    pub suite: &'static str,
    /// What was measured. Stable: results are compared by it.
    pub row: String,
    /// The unit of all values.
    pub unit: &'static str,
    /// This project.
    pub ours: Rounds,
    /// What the hardware, or the kernel, takes for the bare minimum of it.
    pub floor: Option<Rounds>,
    /// Another project.
    pub peer: Option<Peer>,
    /// Which way is better.
    pub better: Better,
    /// What has to hold.
    pub budget: Option<Budget>,
    /// What a cache line cost between the two cores meanwhile, for rows that cross.
    pub hop: Option<HopTag>,
    /// Where its time goes, as far as the suite knows.
    pub spends: Option<String>,
}

impl Row {
    /// A row of times or counts: lower is better, nothing to compare with yet.
    pub fn lower(suite: &'static str, row: impl Into<String>, unit: &'static str, ours: Rounds) -> Self {
        let (floor, peer, budget, hop, spends) = (None, None, None, None, None);
        Row { suite, row: row.into(), unit, ours, floor, peer, better: Better::Lower, budget, hop, spends }
    }

    /// A row of rates: higher is better.
    pub fn higher(suite: &'static str, row: impl Into<String>, unit: &'static str, ours: Rounds) -> Self {
        Row { better: Better::Higher, ..Row::lower(suite, row, unit, ours) }
    }

    /// With the floor's rounds.
    #[must_use]
    pub fn floor(self, floor: Rounds) -> Self {
        Row { floor: Some(floor), ..self }
    }

    /// With a peer's rounds, where the peer was built in.
    #[must_use]
    pub fn peer(self, name: &'static str, rounds: Option<Rounds>) -> Self {
        Row { peer: rounds.map(|rounds| Peer { name, rounds }), ..self }
    }

    /// With a budget.
    #[must_use]
    pub fn budget(self, budget: Budget) -> Self {
        Row { budget: Some(budget), ..self }
    }

    /// Tagged with the cache line's hop.
    #[must_use]
    pub fn hop(self, tag: &HopTag) -> Self {
        Row { hop: Some(tag.clone()), ..self }
    }

    /// With where its time goes: what is said where it falls short.
    #[must_use]
    pub fn spends(self, what: impl Into<String>) -> Self {
        Row { spends: Some(what.into()), ..self }
    }

    /// What ours is compared with: the budget's, else the floor, else the peer.
    pub fn compared_with(&self) -> Option<&Rounds> {
        let peer = self.peer.as_ref().map(|peer| &peer.rounds);
        if matches!(self.budget, Some(Budget::OfPeer(_))) { peer } else { self.floor.as_ref().or(peer) }
    }

    /// Ours to what the budget compares with, else to the floor, else to the peer: the median of each round's own ratio, so
    /// that what drifts from round to round cancels out.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.ours.pairwise(self.compared_with()?, |ours, other| ours / other).median())
    }

    /// Whether the budget is kept, by medians. `None` without a budget, or without what it compares with.
    pub fn holds(&self) -> Option<bool> {
        let within = |value: f64, bound: f64| match self.better {
            Better::Lower => value <= bound,
            Better::Higher => value >= bound,
        };
        match self.budget? {
            Budget::Value(bound) => Some(within(self.ours.median(), bound)),
            Budget::OfFloor(times) => self.floor.is_some().then(|| within(self.ratio().expect("has a floor"), times)),
            Budget::OfPeer(times) => self.peer.is_some().then(|| within(self.ratio().expect("has a peer"), times)),
            Budget::FloorPlus(more) => {
                let beyond = self.ours.pairwise(self.floor.as_ref()?, |ours, floor| ours - floor);
                Some(within(beyond.median(), more))
            }
        }
    }

    /// The budget in words, such as `<= 1.2 x floor`.
    pub fn budget_text(&self) -> Option<String> {
        let sign = if self.better == Better::Lower { "<=" } else { ">=" };
        Some(match self.budget? {
            Budget::Value(value) => format!("{sign} {value} {}", self.unit),
            Budget::OfFloor(times) => format!("{sign} {times} x floor"),
            Budget::OfPeer(times) => {
                format!("{sign} {times} x {}", self.peer.as_ref().map_or("peer", |peer| peer.name))
            }
            Budget::FloorPlus(more) => format!("{sign} floor + {more} {}", self.unit),
        })
    }
}

/// The form for programs: medians, and `null` where a field does not apply.
#[derive(Serialize)]
struct Json<'a> {
    suite: &'a str,
    row: &'a str,
    unit: &'a str,
    ours: f64,
    floor: Option<f64>,
    peer: Option<f64>,
    peer_name: Option<&'a str>,
    ratio: Option<f64>,
    budget: Option<String>,
    holds: Option<bool>,
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let peer = self.peer.as_ref();
        Json {
            suite: self.suite,
            row: &self.row,
            unit: self.unit,
            ours: self.ours.median(),
            floor: self.floor.as_ref().map(Rounds::median),
            peer: peer.map(|peer| peer.rounds.median()),
            peer_name: peer.map(|peer| peer.name),
            ratio: self.ratio(),
            budget: self.budget_text(),
            holds: self.holds(),
        }
        .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(values: &[f64]) -> Rounds {
        values.iter().copied().collect()
    }

    #[test]
    fn a_budget_is_judged_by_each_rounds_own_ratio() {
        // The host slowed down by half in the second round: both contestants met it.
        let row = Row::lower("ring", "hop", "ns", rounds(&[110.0, 220.0, 120.0])).floor(rounds(&[100.0, 200.0, 100.0]));
        let row = row.budget(Budget::OfFloor(1.15));
        assert!((row.ratio().unwrap() - 1.1).abs() < 1e-9);
        assert_eq!(row.holds(), Some(true));
        assert_eq!(row.clone().budget(Budget::OfFloor(1.05)).holds(), Some(false));
        assert_eq!(row.clone().budget(Budget::FloorPlus(20.0)).holds(), Some(true));
        assert_eq!(row.clone().budget(Budget::FloorPlus(19.0)).holds(), Some(false));
        assert_eq!(row.clone().budget(Budget::Value(120.0)).holds(), Some(true));
        assert_eq!(row.budget(Budget::Value(119.0)).holds(), Some(false));
    }

    #[test]
    fn rates_are_judged_the_other_way_round() {
        let row = Row::higher("ring", "burst", "M/s", rounds(&[80.0])).peer("other", Some(rounds(&[64.0])));
        assert_eq!(row.clone().budget(Budget::OfPeer(1.2)).holds(), Some(true));
        assert_eq!(row.budget(Budget::OfPeer(1.3)).holds(), Some(false));
    }

    #[test]
    fn what_a_budget_compares_with_may_be_missing() {
        let row = Row::lower("ring", "hop", "ns", rounds(&[1.0])).peer("other", None);
        assert_eq!((row.ratio(), row.holds()), (None, None));
        assert_eq!(row.clone().budget(Budget::OfPeer(1.0)).holds(), None);
        assert_eq!(row.budget(Budget::OfFloor(1.0)).holds(), None);
    }

    #[test]
    fn programs_get_every_field() {
        let row = Row::lower("core", "seal", "ns", rounds(&[12.0])).floor(rounds(&[6.0])).budget(Budget::Value(15.0));
        let json = serde_json::to_value(&row).unwrap();
        let expected = serde_json::json!({
            "suite": "core", "row": "seal", "unit": "ns", "ours": 12.0, "floor": 6.0, "peer": null, "peer_name": null,
            "ratio": 2.0, "budget": "<= 15 ns", "holds": true
        });
        assert_eq!(json, expected);
    }
}
