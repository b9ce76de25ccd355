//! Where salts come from: the system, or for tests and simulation a seed.

use crate::disk::sys;

/// The source of segment salts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Salts {
    /// The kernel's random numbers.
    System,
    /// A fixed sequence that begins with this number: the same run writes the same bytes.
    Seeded(u64),
}

impl Salts {
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
