//! Captures that others made.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::super::{Block, Flaw, Flaws, Reason};
use super::{Content, payloads, read};

/// A folder of the shared cases; `None`, with a word about it, where there are none.
fn cases(folder: &str) -> Option<PathBuf> {
    let Some(cases) = std::env::var_os("TICKTAPE_CASES") else {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: set TICKTAPE_CASES to the directory of shared cases to read {folder}"
        );
        return None;
    };
    Some(Path::new(&cases).join(folder))
}

fn abbreviation(block: Block) -> &'static str {
    match block {
        Block::Section => "SHB",
        Block::Interface => "IDB",
        Block::Packet => "EPB",
        Block::SimplePacket => "SPB",
        Block::ObsoletePacket => "PB",
        Block::Names => "NRB",
        Block::Statistics => "ISB",
        Block::Custom => "CB",
        Block::CustomNotCopied => "DCB",
        Block::Record | Block::Other(_) => "other",
    }
}

/// All pcapng cases with their texts, by folder and name.
fn pcapng_cases(root: &Path) -> BTreeMap<(String, String), (Vec<u8>, String)> {
    let mut found = BTreeMap::new();
    for folder in ["output_le/basic", "output_le/advanced", "output_le/difficult", "output_be/basic"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "pcapng") {
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                let text = fs::read_to_string(path.with_extension("txt")).unwrap();
                found.insert((folder.to_string(), name), (fs::read(&path).unwrap(), text));
            }
        }
    }
    found
}

#[test]
fn every_pcapng_case_holds_what_its_text_says() {
    let Some(root) = cases("pcapng") else { return };
    let cases = pcapng_cases(&root);
    assert!(cases.len() >= 42, "{} cases", cases.len());
    for (name, (bytes, text)) in &cases {
        let content = read(bytes);
        content.ended.unwrap_or_else(|error| panic!("{name:?}: {error}"));
        let sequence: Vec<&str> = content.blocks.iter().map(|&block| abbreviation(block)).collect();
        let wanted = text.lines().find_map(|line| line.strip_prefix("Block sequence: ")).unwrap();
        assert_eq!(sequence.join(", "), wanted, "{name:?}");
        let counts = text.lines().filter_map(|line| line.strip_prefix('\t')?.split_once(": "));
        let counts: BTreeMap<&str, usize> = counts.map(|(block, count)| (block, count.parse().unwrap())).collect();
        assert!(!counts.is_empty());
        for (block, count) in counts {
            assert_eq!(sequence.iter().filter(|other| **other == block).count(), count, "{name:?}: {block}");
        }
        let packets = sequence.iter().filter(|block| ["EPB", "SPB"].contains(block)).count();
        assert_eq!((content.packets.len(), content.flaws), (packets, Flaws::default()), "{name:?}");
    }
}

#[test]
fn both_byte_orders_of_a_case_hold_the_same_packets() {
    let Some(root) = cases("pcapng") else { return };
    let cases = pcapng_cases(&root);
    let mut packets = 0;
    for ((folder, name), (bytes, _)) in &cases {
        if folder == "output_be/basic" {
            let little = &cases[&("output_le/basic".to_string(), name.clone())].0;
            assert_eq!(read(bytes).packets, read(little).packets, "{name}");
            packets += read(bytes).packets.len();
            assert_eq!(payloads(bytes).0, payloads(little).0, "{name}");
        }
    }
    assert!(packets > 30, "{packets}");
}

/// The first case is DHCP: four whole datagrams.
#[test]
fn a_cases_datagrams_are_found() {
    let Some(root) = cases("pcapng") else { return };
    let (found, flaws) = payloads(&fs::read(root.join("output_le/basic/test001.pcapng")).unwrap());
    let ports: Vec<_> = found.iter().map(|(from, to, payload)| (from.port(), to.port(), payload.len())).collect();
    assert_eq!(ports, [(68, 67, 272), (67, 68, 300), (68, 67, 272), (67, 68, 300)]);
    assert_eq!(flaws.total(), 0);
    // The fourth keeps 96 bytes of each on one interface.
    let (found, flaws) = payloads(&fs::read(root.join("output_le/basic/test004.pcapng")).unwrap());
    assert_eq!((found.len(), flaws.get(Flaw::Cut), flaws.total()), (0, 4, 4));
}

#[test]
fn captures_that_others_choke_on_are_read_or_refused_by_name() {
    let Some(root) = cases("captures-damaged") else { return };
    let file = |name: &str| fs::read(root.join(name)).unwrap();

    // Blocks without a section before them.
    let error = read(&file("err-eof.bin")).ended.unwrap_err();
    assert!(error.at == 0 && matches!(error.reason, Reason::NotACapture), "{error}");

    // Sound, but larger than some readers' buffers.
    let bytes = file("err-buffertoosmall.pcapng");
    let Content { packets, ended, flaws, .. } = read(&bytes);
    ended.unwrap();
    assert_eq!((packets.len(), flaws.total()), (27, 0));
    assert_eq!(packets[0].time_ns, Some(1_681_769_419_966_695_000));
    let error = read(&bytes[..bytes.len() - 1]).ended.unwrap_err();
    assert!(error.at == 9_920 && matches!(error.reason, Reason::Cut), "{error}");

    // An echo request, in the modified format.
    let bytes = file("modified-format.pcap");
    let content = read(&bytes);
    content.ended.unwrap();
    assert_eq!((content.packets.len(), content.packets[0].bytes.len()), (1, 98));
    assert_eq!(content.packets[0].time_ns, Some(1_712_763_541_734_807_000));
    let (found, flaws) = payloads(&bytes);
    assert_eq!((found.len(), flaws.get(Flaw::NotUdp), flaws.total()), (0, 1, 1));

    let (found, flaws) = payloads(&file("ntp.pcap"));
    assert_eq!((found.len(), flaws.total()), (12, 0));
    assert!(found.iter().all(|(from, to, payload)| (from.port(), to.port(), payload.len()) == (123, 123, 48)));
}

/// Every case cut and flipped, as far as it is small.
#[test]
fn no_damage_to_any_case_panics() {
    let (Some(pcapng), Some(damaged)) = (cases("pcapng"), cases("captures-damaged")) else { return };
    let mut files: Vec<Vec<u8>> = pcapng_cases(&pcapng).into_values().map(|(bytes, _)| bytes).collect();
    files.extend(["modified-format.pcap", "ntp.pcap"].map(|name| fs::read(damaged.join(name)).unwrap()));
    for bytes in files {
        let whole = read(&bytes).packets;
        for at in 0..bytes.len() {
            let cut = read(&bytes[..at]).packets;
            assert!(cut.len() <= whole.len() && cut == whole[..cut.len()]);
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            let _ = read(&flipped);
        }
    }
}
