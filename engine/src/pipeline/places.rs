//! On which NUMA node memory and threads are, where a box has more than one.

use ticktape_shm::Tap;
use ticktape_tuning::facts::nodes::{Nodes, pages_at};
use ticktape_tuning::pin::{self, KeptTo};
use ticktape_tuning::root::Root;

use super::plan::{CorePlan, StageName};
use super::replica_plan::ReplicaPlan;

/// The box's nodes.
pub(super) struct Places(Nodes);

impl Places {
    /// Reads them.
    pub(super) fn read() -> Self {
        Places(Nodes::read(&Root::live()))
    }

    /// Keeps the calling thread on the node of the ring's writer while it takes memory, which lies where it is first touched. Nothing
    /// where there is one node only, or the writer may be anywhere.
    pub(super) fn keep_beside(&self, writer: Option<usize>) -> Option<KeptTo> {
        let cores = self.0.beside(writer?, &pin::usable_cores())?;
        // Where it can't be, the line that tells where the ring is says so.
        pin::keep_to_for_now(&cores).ok()
    }

    /// In a line, where an appliance's ring and threads are; `None` where there is one node only.
    pub(super) fn describe(&self, ring: &Tap, plan: &CorePlan, cores: &[usize]) -> Option<String> {
        let name = |stages: &[StageName]| stages.iter().map(|stage| stage.as_str()).collect::<Vec<_>>().join(",");
        let threads = plan.slots().iter().zip(cores).map(|(slot, &core)| (name(&slot.stages), Some(core)));
        self.tell(ring, &threads.collect::<Vec<_>>())
    }

    /// The same of a replica.
    pub(super) fn describe_replica(&self, ring: &Tap, plan: &ReplicaPlan) -> Option<String> {
        let threads = ReplicaPlan::THREADS.map(|thread| (thread.as_str().to_string(), plan.place(thread).core));
        self.tell(ring, &threads)
    }

    fn tell(&self, ring: &Tap, threads: &[(String, Option<usize>)]) -> Option<String> {
        self.0.describe(&pages_at(&Root::live(), ring.address()), threads)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ticktape_core::Seq;
    use ticktape_shm::{RingBuilder, RingConfig};

    use super::*;

    /// A box whose cores are said to be on two nodes: those, and the others.
    fn two_nodes(first: &[usize], second: &[usize]) -> Places {
        let list = |node: usize, cores: &[usize]| {
            format!("== sys/devices/system/node/node{node}/cpulist\n{}\n", pin::list(cores))
        };
        let text = format!("== sys/devices/system/node/online\n0-1\n{}{}", list(0, first), list(1, second));
        Places(Nodes::read(&Root::recorded(text.parse().unwrap())))
    }

    /// Where the calling thread may run.
    fn allowed() -> String {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        list.trim().to_string()
    }

    #[test]
    fn memory_is_taken_on_the_node_of_the_rings_writer() {
        let usable = pin::usable_cores();
        let (core, others) = (*usable.last().unwrap(), usable[..usable.len() - 1].to_vec());
        if others.is_empty() {
            return;
        }
        let places = two_nodes(&others, &[core]);
        std::thread::spawn(move || {
            let before = allowed();
            let kept = places.keep_beside(Some(core));
            assert_eq!(allowed(), core.to_string());
            drop(kept);
            assert_eq!(allowed(), before);
            assert!(places.keep_beside(None).is_none() && allowed() == before);
            assert!(two_nodes(&usable, &[]).keep_beside(Some(core)).is_none() && allowed() == before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn where_ring_and_threads_are_is_told_of_an_appliance_and_of_a_replica() {
        let ring = RingBuilder::new(RingConfig::default()).heap().build(Seq::FIRST).unwrap();
        let places = two_nodes(&[0, 1], &[2, 3]);
        let plan = "sequencer,executor,egress@0|journaler,publisher@2".parse().unwrap();
        let line = places.describe(&ring.tap, &plan, &[0, 2]).unwrap();
        for said in
            ["the ring", "sequencer,executor,egress@0", "node 1: ", "journaler,publisher@2", "plan cores of one node"]
        {
            assert!(line.contains(said), "{said}: {line}");
        }
        let line = places.describe_replica(&ring.tap, &"intake@2|journaler@3".parse().unwrap()).unwrap();
        for said in ["intake@2, journaler@3", "anywhere: executor, feed-server"] {
            assert!(line.contains(said), "{said}: {line}");
        }
        assert_eq!(two_nodes(&[0, 1], &[]).describe(&ring.tap, &plan, &[0, 1]), None);
    }
}
