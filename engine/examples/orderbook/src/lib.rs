//! orderbook
