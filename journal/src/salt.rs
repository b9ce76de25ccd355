//! Where salts come from: the system, or for tests and simulation a seed.

use ticktape_core::Seq;

use crate::disk::sys;

/// The source of segment salts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Salts {
    /// The kernel's random numbers.
    System,
    /// A fixed sequence: the same run writes the same bytes.
    Seeded(u64),
}

impl Salts {
    /// The source for a writer that goes on at `next_seq`: a seed gives each opening salts of its own.
    pub(crate) fn from(self, next_seq: Seq) -> Salts {
        match self {
            Salts::System => Salts::System,
            Salts::Seeded(seed) => Salts::Seeded(seed ^ next_seq.0.rotate_left(32)),
        }
    }

    /// The next salt, never 0.
    pub(crate) fn next(&mut self) -> u64 {
        loop {
            let salt = match self {
                Salts::System => sys::random_u64(),
                Salts::Seeded(state) => {
                    let salt = *state;
                    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                    salt
                }
            };
            if salt != 0 {
                return salt;
            }
        }
    }
}
