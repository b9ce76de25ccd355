//! What the program lets through to the socket.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use super::BpfError;

/// Rules in one filter, at most. Each costs the frames that match none of them a compare or two; what an appliance listens
/// on is a handful.
pub const RULES_MAX: usize = 16;

/// One destination whose datagrams go to the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// The IPv4 destination, unicast or multicast; `None` is any.
    pub address: Option<Ipv4Addr>,
    /// The UDP destination port; not 0.
    pub port: u16,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{address}:{}", self.port),
            None => write!(f, "*:{}", self.port),
        }
    }
}

/// Which frames the program redirects: unfragmented UDP datagrams over IPv4 without options that meet one of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Any of them suffices; 1 to [`RULES_MAX`].
    pub rules: Vec<Rule>,
    /// Whether a frame may carry one 802.1Q tag, whatever its VLAN. Untagged frames may pass in any case, and so do tagged ones
    /// where the card takes the tag off before the program sees the frame (`rx-vlan-offload` in `ethtool -k`).
    pub allow_vlan: bool,
}

/// Where datagrams to one port may be addressed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Addresses {
    Any,
    These(Vec<Ipv4Addr>),
}

impl Filter {
    /// A filter for one destination, without VLAN tags.
    pub fn one(address: Option<Ipv4Addr>, port: u16) -> Filter {
        Filter { rules: vec![Rule { address, port }], allow_vlan: false }
    }

    /// The rules by port, checked; ports in the order of their first rule, so that the first is the cheapest.
    pub(super) fn by_port(&self) -> Result<Vec<(u16, Addresses)>, BpfError> {
        if self.rules.is_empty() || self.rules.len() > RULES_MAX {
            return Err(BpfError::RuleCount { count: self.rules.len() });
        }
        let mut ports: Vec<(u16, Addresses)> = Vec::new();
        let mut index_of = BTreeMap::new();
        for rule in &self.rules {
            if rule.port == 0 || rule.address.is_some_and(|address| address.is_unspecified()) {
                return Err(BpfError::Rule { rule: *rule });
            }
            let index = *index_of.entry(rule.port).or_insert_with(|| {
                ports.push((rule.port, Addresses::These(Vec::new())));
                ports.len() - 1
            });
            let addresses = &mut ports[index].1;
            match (rule.address, &mut *addresses) {
                (None, _) => *addresses = Addresses::Any,
                (Some(address), Addresses::These(these)) if !these.contains(&address) => these.push(address),
                (Some(_), _) => {}
            }
        }
        Ok(ports)
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, rule) in self.rules.iter().enumerate() {
            write!(f, "{}{rule}", if i == 0 { "" } else { ", " })?;
        }
        if self.allow_vlan { write!(f, " (one VLAN tag allowed)") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
    const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn filter(rules: &[(Option<Ipv4Addr>, u16)]) -> Filter {
        Filter { rules: rules.iter().map(|&(address, port)| Rule { address, port }).collect(), allow_vlan: false }
    }

    #[test]
    fn rules_of_one_port_are_gathered() {
        let rules = filter(&[(Some(HOST), 9), (Some(GROUP), 7), (Some(GROUP), 9), (Some(HOST), 9), (None, 7)]);
        assert_eq!(rules.by_port().unwrap(), [(9, Addresses::These(vec![HOST, GROUP])), (7, Addresses::Any)]);
        let any_first = filter(&[(None, 7), (Some(HOST), 7)]);
        assert_eq!(any_first.by_port().unwrap(), [(7, Addresses::Any)]);
        assert_eq!(rules.to_string(), "10.0.0.1:9, 239.1.2.3:7, 239.1.2.3:9, 10.0.0.1:9, *:7");
    }

    #[test]
    fn too_few_and_too_many_rules_are_refused_by_name() {
        let none = filter(&[]).by_port().unwrap_err();
        assert_eq!(none.to_string(), "an XDP filter with 0 rules: give 1 to 16 (address, port) pairs");
        let most: Vec<_> = (1..=RULES_MAX as u16).map(|port| (None, port)).collect();
        assert_eq!(filter(&most).by_port().unwrap().len(), RULES_MAX);
        let many: Vec<_> = (1..=RULES_MAX as u16 + 1).map(|port| (None, port)).collect();
        assert!(matches!(filter(&many).by_port(), Err(BpfError::RuleCount { count: 17 })));
    }

    #[test]
    fn a_rule_that_can_match_nothing_is_refused_by_name() {
        let port = filter(&[(Some(HOST), 0)]).by_port().unwrap_err();
        assert!(port.to_string().starts_with("XDP filter rule 10.0.0.1:0"), "{port}");
        let address = filter(&[(Some(Ipv4Addr::UNSPECIFIED), 5)]).by_port().unwrap_err();
        assert!(address.to_string().starts_with("XDP filter rule 0.0.0.0:5"), "{address}");
    }
}
