//! The same bursts through queues of one writer and one reader: `rtrb`'s ring, and crossbeam's bounded channel.

use crossbeam_channel::TrySendError;

use super::burst::{Load, ours, round};
use super::{CHANNEL, RTRB, SUITE};
use crate::args::Options;
use crate::hop::HopTag;
use crate::rounds::{Contestant, Rounds, interleave_with};
use crate::row::Row;

/// Takes messages with `take`, which adds them up and tells how many there were, until all have come.
fn take_all(load: Load, mut take: impl FnMut(&mut u64) -> usize + Send) -> impl FnOnce() + Send {
    move || {
        let (mut seen, mut sum) = (0, 0_u64);
        while seen < load.messages() {
            match take(&mut sum) {
                0 => load.idle(),
                taken => seen += taken,
            }
        }
        let count = load.messages() as u64;
        assert_eq!(sum, count * (count + 1) / 2, "each message once");
    }
}

/// A burst goes in as one chunk; whatever is there comes out as one.
fn rtrb<const WORDS: usize>(load: Load) -> f64 {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<[u64; WORDS]>::new(load.ring_bytes / (8 * WORDS));
    let read = take_all(load, move |sum| {
        let there = consumer.slots();
        let chunk = consumer.read_chunk(there).expect("so many are there");
        let (first, second) = chunk.as_slices();
        first.iter().chain(second).for_each(|message| *sum = sum.wrapping_add(message[0]));
        chunk.commit_all();
        there
    });
    load.measure(vec![read], || {
        let (mut message, mut seq) = ([7; WORDS], 0_u64);
        for _ in 0..load.messages() / load.burst {
            let chunk = loop {
                match producer.write_chunk_uninit(load.burst) {
                    Ok(chunk) => break chunk,
                    Err(_) => std::hint::spin_loop(),
                }
            };
            chunk.fill_from_iter((0..load.burst).map(|_| {
                seq += 1;
                message[0] = seq;
                std::hint::black_box(message)
            }));
        }
    })
}

/// It knows no bursts: each message by itself.
fn channel<const WORDS: usize>(load: Load) -> f64 {
    let (sender, receiver) = crossbeam_channel::bounded::<[u64; WORDS]>(load.ring_bytes / (8 * WORDS));
    let read = take_all(load, move |sum| {
        receiver.try_recv().map_or(0, |message| {
            *sum = sum.wrapping_add(message[0]);
            1
        })
    });
    load.measure(vec![read], || {
        let mut message = [7; WORDS];
        for seq in 1..=load.messages() as u64 {
            message[0] = seq;
            while let Err(TrySendError::Full(_)) = sender.try_send(std::hint::black_box(message)) {
                std::hint::spin_loop();
            }
        }
    })
}

/// A row for each queue, with messages of `BYTES` bytes, which are `WORDS` words.
pub(super) fn rows<const BYTES: usize, const WORDS: usize>(options: &Options, load: Load) -> [Row; 2] {
    const { assert!(BYTES == 8 * WORDS) };
    let pausing = Load { pauses: true, ..load };
    let mut contestants: Vec<Contestant<'_, f64>> = vec![
        Box::new(|| round(|| ours::<BYTES>(load))),
        Box::new(|| round(|| rtrb::<WORDS>(load))),
        Box::new(|| round(|| rtrb::<WORDS>(pausing))),
        Box::new(|| round(|| channel::<WORDS>(load))),
        Box::new(|| round(|| channel::<WORDS>(pausing))),
    ];
    let mut tag = HopTag::default();
    let results = interleave_with(options.rounds, &mut contestants, || tag.probe(load.cores));
    let all = |at: usize| results[at].iter().copied().collect::<Rounds>();
    [(RTRB, 1), (CHANNEL, 3)].map(|(name, at)| {
        // Run both ways, as the other peer is; the better one counts.
        let peer = if all(at + 1).median() > all(at).median() { all(at + 1) } else { all(at) };
        Row::higher(SUITE, format!("{}, against {name}", load.name(BYTES)), "M/s", all(0))
            .peer(name, Some(peer))
            .hop(&tag)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hop::Cores;

    #[test]
    fn every_message_comes_through() {
        let cores = Cores { here: 0, there: 0 };
        for burst in [1, 10] {
            let load = Load { cores, ring_bytes: 1 << 20, burst, readers: 2, pauses: false };
            assert!(rtrb::<8>(load) > 0.0 && channel::<8>(load) > 0.0);
        }
    }
}
