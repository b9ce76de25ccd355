//! The `ticktape` command.
fn main() {}
