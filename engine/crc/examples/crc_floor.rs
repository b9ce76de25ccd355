//! What a checksum costs here and in the `crc32c` crate, by length.
//!
//! `cargo run --release -p ticktape-crc --example crc_floor`. Rows are interleaved, so that noise falls on all of them; each
//! figure is the median of its rounds in nanoseconds, the loop's own overhead (first row) included. The bytes start 4 past an
//! 8-byte boundary, where a frame's payload does.

use std::hint::black_box;
use std::time::Instant;

use ticktape_crc::{crc32c, crc32c_two};

const ROUNDS: usize = 41;
const BYTES_PER_ROUND: usize = 1 << 20;
const LENGTHS: [usize; 19] =
    [4, 7, 8, 24, 31, 64, 80, 96, 104, 128, 192, 256, 320, 384, 600, 1_024, 4_096, 16_384, 65_536];
const HEADER_BYTES: usize = 24;

#[repr(align(64))]
struct Aligned([u8; 4 + 65_536]);

type Row<'a> = Box<dyn Fn(usize) -> u64 + 'a>;

fn main() {
    let bytes = Aligned(std::array::from_fn(|i| (i * 131) as u8));
    let header = [0x5a; HEADER_BYTES];
    println!(
        "{:>8}{:>10}{:>10}{:>8}{:>12}{:>12}{:>8}",
        "bytes", "ours ns", "crate ns", "ratio", "+header ns", "crate ns", "ratio"
    );
    let loop_alone = measure(&[(Box::new(|i: usize| i as u64) as Row<'_>, 1 << 16)]);
    println!("{:>8}{:>10.2}", "none", loop_alone[0]);
    for len in LENGTHS {
        let bytes = &bytes.0[4..4 + len];
        let calls = (BYTES_PER_ROUND / len).clamp(16, 20_000);
        let rows: [(Row<'_>, usize); 4] = [
            (Box::new(|_| u64::from(crc32c(black_box(bytes)))), calls),
            (Box::new(|_| u64::from(::crc32c::crc32c(black_box(bytes)))), calls),
            (Box::new(|_| sum(crc32c_two(black_box(&header), black_box(bytes)))), calls),
            (Box::new(|_| sum((::crc32c::crc32c(black_box(&header)), ::crc32c::crc32c(black_box(bytes))))), calls),
        ];
        let ns = measure(&rows);
        println!(
            "{len:>8}{:>10.2}{:>10.2}{:>8.2}{:>12.2}{:>12.2}{:>8.2}",
            ns[0],
            ns[1],
            ns[0] / ns[1],
            ns[2],
            ns[3],
            ns[2] / ns[3]
        );
    }
}

fn sum((a, b): (u32, u32)) -> u64 {
    u64::from(a) + u64::from(b)
}

fn measure(rows: &[(Row<'_>, usize)]) -> Vec<f64> {
    let mut taken = vec![Vec::with_capacity(ROUNDS); rows.len()];
    for _ in 0..ROUNDS {
        for ((step, calls), taken) in rows.iter().zip(&mut taken) {
            let start = Instant::now();
            for i in 0..*calls {
                black_box(step(black_box(i)));
            }
            taken.push(start.elapsed().as_nanos() as f64 / *calls as f64);
        }
    }
    taken.iter_mut().for_each(|taken| taken.sort_by(f64::total_cmp));
    taken.iter().map(|taken| taken[ROUNDS / 2]).collect()
}
