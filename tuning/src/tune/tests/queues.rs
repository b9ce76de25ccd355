//! Disks with many queues: of which interrupts a proposal takes cores for struck.

use super::super::cores::{Choice, choose};
use crate::doctor::tests::{fixture, plan};
use crate::doctor::{Finding, Plan, Verdict, examine};
use crate::facts::Facts;
use crate::root::Root;

/// Eight cores, one hardware thread each, and interrupts that each came to its core since the start. A row: name, mask, core.
fn facts(interrupts: &[(String, String, usize)]) -> Facts {
    let mut text = "== sys/devices/system/cpu/online\n0-7\n== proc/self/status\nCapEff:\t0\nSeccomp:\t0\nCpus_allowed_list:\t0-7\n".to_owned();
    for core in 0..8 {
        text += &format!("== sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list\n{core}\n");
    }
    text += "== proc/interrupts\nCPU0 CPU1 CPU2 CPU3 CPU4 CPU5 CPU6 CPU7\n";
    for (number, (name, _, core)) in interrupts.iter().enumerate() {
        let counts: Vec<&str> = (0..8).map(|at| if at == *core { "4711" } else { "0" }).collect();
        text += &format!("{}: {} IR-PCI-MSIX-0000:65:00.0 {number}-edge {name}\n", 200 + number, counts.join(" "));
    }
    for (number, (_, mask, core)) in interrupts.iter().enumerate() {
        let at = format!("proc/irq/{}", 200 + number);
        text += &format!("== {at}/smp_affinity_list\n{mask}\n== {at}/effective_affinity_list\n{core}\n");
    }
    plan().look(&Root::recorded(fixture("intel-untuned").with(&text.parse().unwrap())))
}

fn one_queue_a_core() -> Vec<(String, String, usize)> {
    (0..8).map(|core| (format!("nvme0q{}", core + 1), core.to_string(), core)).collect()
}

fn disk_finding(facts: &Facts, plan: &Plan) -> Finding {
    let report = examine(facts, plan);
    report.outcomes().iter().find(|outcome| outcome.check.id == "interrupts-disk").unwrap().finding.clone()
}

#[test]
fn where_each_core_has_a_queue_all_but_the_journaler_spin() {
    let facts = facts(&one_queue_a_core());
    let Choice { stages, may_spin, own_queue, why } = choose(&facts).unwrap();
    assert_eq!((stages.as_slice(), may_spin, &own_queue), (&[1, 2, 3, 4][..], true, &stages), "{why:?}");
    let backs_off = Plan { critical: stages.clone(), spinning: vec![1, 2, 4], writing: vec![3], ..plan() };
    assert_eq!(disk_finding(&facts, &backs_off).verdict, Verdict::Ok);
    let spins = Plan { spinning: stages, ..backs_off };
    let finding = disk_finding(&facts, &spins);
    assert!(finding.verdict == Verdict::Bad && finding.read.contains("came to core 3,"), "{finding:?}");
}

#[test]
fn where_cores_share_a_queue_its_interrupt_comes_of_others() {
    // Four queues of two cores each: 0 and 4, 1 and 5, and so on. Each interrupt goes to the first.
    let shared: Vec<_> =
        (0..4).map(|core| (format!("nvme0q{}", core + 1), format!("{core},{}", core + 4), core)).collect();
    let facts = facts(&shared);
    let choice = choose(&facts).unwrap();
    assert_eq!((choice.stages, choice.may_spin, choice.own_queue), (vec![4, 5, 6, 7], true, vec![]));
    let beside = |spinning: &[usize]| {
        let plan = Plan { critical: vec![1, 5, 6], spinning: spinning.to_vec(), writing: vec![6], ..plan() };
        disk_finding(&facts, &plan).verdict
    };
    assert_eq!(beside(&[1]), Verdict::Bad, "somebody on core 5 writes");
    assert_eq!(beside(&[1, 5]), Verdict::Ok, "nobody does");
    assert_eq!(beside(&[5]), Verdict::Ok);
}

#[test]
fn what_is_no_queue_of_cores_strikes_as_before() {
    let all = || "0-7".to_owned();
    let one_interrupt = facts(&[("nvme0q0, nvme0q1".to_owned(), all(), 3)]);
    assert_eq!(choose(&one_interrupt).unwrap().stages, [1, 2, 4, 5]);
    let one_queue = facts(&[("nvme0q1".to_owned(), all(), 3)]);
    assert_eq!(choose(&one_queue).unwrap().stages, [1, 2, 4, 5]);
    // A card's hash sends to any queue, whatever the masks are.
    let card: Vec<_> = (0..8).map(|core| (format!("eth1-TxRx-{core}"), core.to_string(), core)).collect();
    let facts = facts(&card);
    let plan = Plan { critical: vec![4, 5], spinning: vec![4, 5], writing: vec![5], ..plan() };
    let report = examine(&facts, &plan);
    let nic = report.outcomes().iter().find(|outcome| outcome.check.id == "interrupts-nic").unwrap();
    assert_eq!(nic.finding.verdict, Verdict::Bad, "{:?}", nic.finding);
}
