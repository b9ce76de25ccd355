//! NUMA nodes: which cores they have, which of them memory of this process lies on, and what that means for threads that share it.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::cpu_list::{self, CoreSet};
use super::{Known, short};
use crate::root::{Root, Unread};

/// Where the kernel tells, of each piece of this process's memory, how many of its pages are on which node.
const MAPS: &str = "proc/self/numa_maps";

/// The nodes of a box, by core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    of_core: BTreeMap<usize, usize>,
}

/// Of a piece of memory, the pages on each node.
pub type Pages = BTreeMap<usize, u64>;

impl Nodes {
    /// Reads them. A kernel that knows of none has none here.
    pub fn read(root: &Root) -> Nodes {
        let numbers = cpu_list::read_list(root, "sys/devices/system/node/online").unwrap_or_default();
        let mut of_core = BTreeMap::new();
        for node in numbers {
            let cores = cpu_list::read_list(root, &format!("sys/devices/system/node/node{node}/cpulist"));
            of_core.extend(cores.unwrap_or_default().into_iter().map(|core| (core, node)));
        }
        Nodes { of_core }
    }

    /// The node of a core.
    pub fn of(&self, core: usize) -> Option<usize> {
        self.of_core.get(&core).copied()
    }

    /// The cores among `usable` of the node that `core` is of. `None` where there is one node only: then all are.
    pub fn beside(&self, core: usize, usable: &[usize]) -> Option<CoreSet> {
        let node = self.of(core).filter(|_| self.are_several())?;
        Some(usable.iter().copied().filter(|&other| self.of(other) == Some(node)).collect())
    }

    /// In a line, node by node, where the pages of a ring and the threads are, each with its core if it has one. `None` where there is
    /// one node only.
    pub fn describe(&self, ring: &Known<Pages>, threads: &[(String, Option<usize>)]) -> Option<String> {
        if !self.are_several() {
            return None;
        }
        let mut on: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        let pages = ring.as_ref().ok().into_iter().flatten().filter(|(_, pages)| **pages > 0);
        let all: u64 = pages.clone().map(|(_, pages)| pages).sum();
        for (&node, &pages) in pages {
            let share = if pages == all { String::new() } else { format!("{pages} of {all} pages of ") };
            on.entry(node).or_default().push(format!("{share}the ring"));
        }
        let (mut anywhere, mut stages_on) = (Vec::new(), std::collections::BTreeSet::new());
        for (name, core) in threads {
            match core.and_then(|core| Some((core, self.of(core)?))) {
                Some((core, node)) => {
                    on.entry(node).or_default().push(format!("{name}@{core}"));
                    stages_on.insert(node);
                }
                None => anywhere.push(name.as_str()),
            }
        }
        let mut line = on.iter().map(|(node, there)| format!("node {node}: {}", there.join(", "))).collect::<Vec<_>>();
        if !anywhere.is_empty() {
            line.push(format!("anywhere: {}", anywhere.join(", ")));
        }
        if let Err(unread) = ring {
            line.push(format!("where the ring is can't be told: {unread}"));
        }
        let mut line = line.join("; ");
        if on.len() > 1 {
            let help = if stages_on.len() > 1 { "plan cores of one node" } else { "its memory was full" };
            let _ = write!(line, "; what they share crosses the link between nodes: {help}");
        }
        Some(line)
    }

    fn are_several(&self) -> bool {
        let mut nodes = self.of_core.values();
        let first = nodes.next();
        nodes.any(|node| Some(node) != first)
    }
}

/// On which nodes the pages of the piece of this process's memory are that `address` lies in. Memory gets its place when it is first
/// touched, by the core that touches it.
///
/// # Errors
/// [`Unread`]: a kernel without NUMA does not tell, and one that does may not have got to that piece.
pub fn pages_at(root: &Root, address: usize) -> Known<Pages> {
    // Names of files are nobody's business.
    let reduced = |line: &str| {
        let words = line.split_whitespace().enumerate();
        let kept = words.filter(|(at, word)| *at == 0 || pages(word).is_some()).map(|(_, word)| word);
        Some(kept.collect::<Vec<_>>().join(" "))
    };
    let text = root.kept(MAPS, reduced)?;
    let mut below: Option<(usize, &str)> = None;
    for line in text.lines() {
        let (begins, rest) = line.split_once(' ').unwrap_or((line, ""));
        let begins = usize::from_str_radix(begins, 16).map_err(|_| Unread::malformed(MAPS, short(line)))?;
        if begins <= address && below.is_none_or(|(before, _)| begins >= before) {
            below = Some((begins, rest));
        }
    }
    let (_, rest) = below.ok_or_else(|| Unread::malformed(MAPS, format!("nothing at {address:x}")))?;
    let pages: Pages = rest.split(' ').filter_map(pages).collect();
    if pages.is_empty() { Err(Unread::malformed(MAPS, format!("no page at {address:x}"))) } else { Ok(pages) }
}

/// `N3=17`: 17 pages on node 3.
fn pages(word: &str) -> Option<(usize, u64)> {
    let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
    Some((node.parse().ok()?, pages.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::fixture;

    const MAPS_TEXT: &str = "== proc/self/numa_maps\n\
        00400000 default file=/usr/bin/ticktape mapped=12 N1=12 kernelpagesize_kB=4\n\
        7f0000000000 default anon=1024 dirty=1024 active=0 N0=1000 N1=24 kernelpagesize_kB=4\n\
        7f0000400000 default file=/dev/shm/book.ring dirty=3 N0=3 kernelpagesize_kB=2048\n\
        7f0000a00000 default\n";

    fn two_sockets() -> Root {
        Root::recorded(fixture("intel-tuned").with(&MAPS_TEXT.parse().unwrap()))
    }

    #[test]
    fn memory_is_on_the_node_that_its_pages_say() {
        let root = two_sockets();
        assert_eq!(pages_at(&root, 0x7f00_0040_0080), Ok(Pages::from([(0, 3)])));
        assert_eq!(pages_at(&root, 0x7f00_003f_ffff), Ok(Pages::from([(0, 1000), (1, 24)])));
        assert_eq!(pages_at(&root, 0x0040_0000), Ok(Pages::from([(1, 12)])));
        // Never touched, and below all there is.
        assert!(pages_at(&root, 0x7f00_00a0_0000).is_err() && pages_at(&root, 0x1000).is_err());
        assert!(!root.seen().to_string().contains("book"), "{}", root.seen());
        assert!(pages_at(&Root::recorded(fixture("guest")), 0x40_0000).is_err());
        let garbage = "== proc/self/numa_maps\nmaps default N0=1\n".parse().unwrap();
        assert!(pages_at(&Root::recorded(garbage), 0x40_0000).is_err());
    }

    #[test]
    fn on_two_sockets_the_line_says_what_is_where() {
        let root = two_sockets();
        let nodes = Nodes::read(&root);
        let far = nodes.of_core.iter().find(|(_, node)| **node == 1).map(|(core, _)| *core).unwrap();
        let on = |cores: [Option<usize>; 2]| {
            ["sequencer,egress", "journaler"].into_iter().map(str::to_owned).zip(cores).collect::<Vec<_>>()
        };
        let ring = pages_at(&root, 0x7f00_0040_0080);
        let told = |ring: &Known<Pages>, cores| nodes.describe(ring, &on(cores)).unwrap();
        assert_eq!(told(&ring, [Some(4), Some(5)]), "node 0: the ring, sequencer,egress@4, journaler@5");
        let link = "what they share crosses the link between nodes";
        assert_eq!(
            told(&ring, [Some(4), Some(far)]),
            format!("node 0: the ring, sequencer,egress@4; node 1: journaler@{far}; {link}: plan cores of one node")
        );
        assert_eq!(
            told(&pages_at(&root, 0x7f00_0000_0000), [Some(4), None]),
            format!(
                "node 0: 1000 of 1024 pages of the ring, sequencer,egress@4; node 1: 24 of 1024 pages of the ring; \
                 anywhere: journaler; {link}: its memory was full"
            )
        );
        let untold = told(&pages_at(&root, 0), [Some(4), Some(5)]);
        assert!(untold.contains("where the ring is can't be told: proc/self/numa_maps"), "{untold}");
    }

    #[test]
    fn what_shares_a_node_is_beside() {
        let nodes = Nodes::read(&two_sockets());
        let beside = nodes.beside(4, &[0, 1, 4, 5, 16, 17, 99]).unwrap();
        assert!(beside.contains(&4) && !beside.contains(&99), "{beside:?}");
        assert!(beside.iter().all(|&core| nodes.of(core) == nodes.of(4)), "{beside:?}");
        assert_ne!(beside.len(), 7);
        assert_eq!(nodes.beside(99, &[4]), None);
    }

    #[test]
    fn where_there_is_one_node_nothing_is_said_and_nobody_is_kept_anywhere() {
        for one in ["guest", "amd-chiplets"] {
            let nodes = Nodes::read(&Root::recorded(fixture(one)));
            assert_eq!(nodes.describe(&Ok(Pages::from([(0, 1)])), &[("sequencer".into(), Some(0))]), None, "{one}");
            assert_eq!(nodes.beside(0, &[0, 1]), None, "{one}");
        }
        assert_eq!(Nodes::read(&Root::recorded(Default::default())), Nodes::default());
    }
}
