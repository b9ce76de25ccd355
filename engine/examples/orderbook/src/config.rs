//! What is fixed for the life of a book.

/// Orders that a book can number at all.
pub const ORDERS_MAX: u32 = 1 << 30;

/// The book's configuration. `orders_max` and `trades_per_order_max` decide what the book answers: every replica and every
/// replay of a log uses the same. The others only decide how fast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookConfig {
    /// Orders that may be live at once; a new one beyond is refused. Bounds the memory a client can take: 50 to 100 bytes an
    /// order where they share prices, 400 to 730 where each has a price of its own, far from all others.
    pub orders_max: u32,
    /// Trades that one arriving order may make; what is left of it is then canceled. Bounds the outputs of one step, which
    /// the engine limits (16 384, and 1 MiB): a sweep through more small orders than that must not stop the node.
    pub trades_per_order_max: u32,
    /// Live orders for which memory is taken at the start and kept, so that none is allocated up to there.
    pub orders_reserved: u32,
    /// Mixed into the hash of order names. A secret one keeps clients from choosing names that collide.
    pub hash_key: u64,
}

impl Default for BookConfig {
    fn default() -> Self {
        BookConfig {
            orders_max: 4 << 20,
            trades_per_order_max: 8192,
            orders_reserved: 8192,
            hash_key: 0x6a09_e667_f3bc_c908,
        }
    }
}
