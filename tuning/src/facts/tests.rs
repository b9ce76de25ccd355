use super::*;
use crate::root::Recording;

fn read(root: &Root) -> Facts {
    Facts::read(root, Some("eth0"), Path::new("/data"))
}

#[test]
fn of_a_box_without_files_nothing_is_known() {
    let facts = read(&Root::recorded(Recording::default()));
    assert!(facts.cores.online.is_err() && facts.cores.threads.is_err() && facts.cores.places.is_empty());
    assert!(facts.interrupts.devices.is_err() && facts.memory.swap.is_err() && facts.disk.name.is_err());
    assert!(facts.limits.capabilities.unwrap_err().is_missing());
}

#[test]
fn of_this_box_the_cores_are_known() {
    let root = Root::live();
    let facts = Facts::read(&root, None, Path::new("/"));
    let online = facts.cores.online.unwrap();
    assert_eq!(online, facts.cores.places.keys().copied().collect::<Vec<_>>());
    let allowed = facts.cores.allowed.unwrap();
    assert!(!allowed.is_empty() && cpu_list::without(&allowed, &online).is_empty());
    let again = Facts::read(&Root::recorded(root.seen().to_string().parse().unwrap()), None, Path::new("/"));
    assert_eq!(again.cores.online.unwrap(), online);
    assert_eq!(again.cores.threads.unwrap(), facts.cores.threads.unwrap());
    assert_eq!(again.disk.mount, facts.disk.mount);
}

#[test]
fn words_in_brackets_are_the_chosen_ones() {
    assert_eq!(chosen("always [madvise] never"), "madvise");
    assert_eq!(chosen("none"), "none");
    assert_eq!(chosen("]["), "][");
}
