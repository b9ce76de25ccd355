//! A ring's file in hostile hands: attaching and reading answer with an error or with frames, and never go astray.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use ticktape_core::{Kind, Seq, crc32c};
use ticktape_shm::layout::{CLAIM, DATA, HEADER_CRC};
use ticktape_shm::{Follower, Horizon, RingBuilder, RingConfig};

use super::Seeds;
use super::frame::sealed;
use super::input::{Input, Script};
use super::scratch::scratch;

const NAME: &str = "log";
/// More than the ring has frames.
const POLLS: usize = 200;

/// A ring that has gone round a few times.
fn sound_file() -> &'static [u8] {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    FILE.get_or_init(|| {
        let dir = scratch();
        let config = RingConfig {
            capacity_bytes: 1024,
            frame_bytes_max: 96,
            batch_bytes_max: 128,
            epoch: 4,
            commit_is_sequenced: true,
        };
        let mut ring = RingBuilder::new(config).named(dir.path(), NAME).build(Seq(1)).expect("a small ring");
        for seq in 1..=40 {
            ring.producer.push(&sealed(seq, Kind::Input, &[7; 50][..seq as usize % 50])).expect("room");
            ring.producer.publish();
        }
        fs::read(dir.path().join("log.ring")).expect("a named ring has a file")
    })
}

/// Edits a sound file as the script says, and reads it; whether a frame came out.
pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let mut file = sound_file().to_vec();
    let (repair, resize) = (input.u8().is_multiple_of(2), input.u8());
    while !input.is_empty() {
        edit(&mut file, &mut input);
    }
    if repair {
        let crc = u64::from(crc32c(&file[..HEADER_CRC]));
        file[HEADER_CRC..CLAIM].copy_from_slice(&crc.to_le_bytes());
    }
    if resize % 4 == 3 {
        file.resize(usize::from(resize) * 64, 0);
    }
    let dir = scratch();
    fs::write(dir.path().join("log.ring"), file).expect("room for a small file");
    read(dir.path())
}

fn edit(file: &mut [u8], input: &mut Input<'_>) {
    let kind = input.u8();
    // Of the words before the frames few matter, and most of those stand first.
    let (first, words) = match kind >> 6 {
        0 => (0, file.len() / 8),
        1 => (DATA / 8, (file.len() - DATA) / 8),
        _ => (0, 96),
    };
    let at = 8 * (first + input.index(words));
    let there = u64::from_le_bytes(file[at..at + 8].try_into().expect("eight bytes"));
    let word = match kind % 7 {
        0 => input.u64(),
        1 => u64::from(input.u16()),
        2 => 1 << 63 | u64::from(input.u8()),
        3 => u64::MAX,
        4 => input.wide(),
        // In the third word of a frame: its length.
        5 => u64::from(input.u8()) << 32 | there & u64::from(u32::MAX),
        _ => {
            let from = 8 * input.index(file.len() / 8);
            u64::from_le_bytes(file[from..from + 8].try_into().expect("eight bytes"))
        }
    };
    file[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

fn read(dir: &Path) -> bool {
    let mut frames = 0;
    for (from, horizon) in [(1, Horizon::Committed), (30, Horizon::Sequenced), (41, Horizon::Durable)] {
        let Ok(mut follower) = Follower::attach(dir, NAME, Seq(from), horizon) else { continue };
        for _ in 0..POLLS {
            let bytes_max = follower.header().frame_bytes_max;
            if let Ok(Some(frame)) = follower.poll() {
                assert!((32..=bytes_max).contains(&frame.len()));
                frames += 1;
            }
        }
        let _ = (follower.check_writer(), follower.durable(), follower.commit(), follower.sequenced_hint());
        let _ = follower.seek(Seq(from / 2 + 1));
        let _ = follower.drain(POLLS, |frame| assert!(frame.len() >= 32));
    }
    let _ = Follower::attach_live(dir, NAME, Horizon::Committed).map(|mut follower| follower.poll().map(drop));
    frames > 0
}

pub fn seeds() -> Seeds {
    let word = |kind: u8, at: u16| Script::default().bytes(&[0, 0, kind]).bytes(&at.to_le_bytes());
    vec![
        ("as_it_is", vec![0, 0]),
        // The kind modulo 7 says how, its two upper bits where.
        ("claim", word(0x86, 16).bytes(&2048u16.to_le_bytes()).0),
        ("skip", word(2, 1040).bytes(&[30]).0),
        ("capacity", word(0x82, 4).bytes(&[11, 1, 0]).0),
        ("anchor", word(4, 514).bytes(&[4, 40, 0]).0),
        ("length", word(0x44, 2).bytes(&[1]).0),
    ]
}
