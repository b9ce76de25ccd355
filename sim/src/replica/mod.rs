//! Replicas under simulation: boxes of their own that follow the leader's streams, with the stages that are live.

mod check;
mod fleet;
mod leader;
mod member;
mod place;
mod running;
mod tell;

pub(crate) use fleet::{Fleet, WorldView};
pub(crate) use leader::Led;
pub(crate) use place::{LEADER, Place, feed_config, feed_source};
pub(crate) use running::part_named;
