//! The peer between processes: `iceoryx2`, one publish-subscribe service each way.

use std::path::{Path, PathBuf};

use iceoryx2::node::{Node, NodeBuilder};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::{Config, FileName, LogLevel, SemanticString, ServiceName, ipc, set_log_level};

use ticktape_shm::DEFAULT_DIR;

use super::Measured;
use super::hop::Side;
use crate::suites::ring::hop::{Link, word};
use crate::suites::ring::{MESSAGE_BYTES, Message};

type Payload = [u64; MESSAGE_BYTES / 8];

/// What a subscriber may not have taken yet: as many as a round trip leaves, and some.
const BUFFERED: usize = 64;

/// One side's ports.
pub(super) struct Services {
    publisher: Publisher<ipc::Service, Payload, ()>,
    subscriber: Subscriber<ipc::Service, Payload, ()>,
    /// What both belong to; they end before it.
    _node: Node<ipc::Service>,
}

/// What the names of its shared memory begin with.
fn prefix(dir: &Path) -> String {
    format!("{}_", dir.file_name().unwrap_or_default().to_string_lossy())
}

/// Shared memory that a pair's two processes leave for whoever comes next, a count of nodes: removed when this goes, after both.
pub(super) struct Leftovers(String);

impl Leftovers {
    /// Those of the pair that is named after `dir`.
    pub(super) fn of(dir: &Path) -> Self {
        Leftovers(prefix(dir))
    }

    fn found(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(DEFAULT_DIR).into_iter().flatten().flatten();
        let is_ours = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&self.0);
        entries.filter(is_ours).map(|entry| entry.path()).collect()
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        for path in self.found() {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn failed(error: impl std::fmt::Debug) -> String {
    format!("iceoryx2: {error:?}")
}

impl Services {
    /// The ports of one side; both services are named after `dir`, which is this pair's alone.
    pub(super) fn open(dir: &Path, side: Side) -> Measured<Self> {
        // It says on standard output that it has no file of its own to read.
        set_log_level(LogLevel::Error);
        let mut config = Config::default();
        let root = iceoryx2::prelude::Path::new(dir.as_os_str().as_encoded_bytes()).map_err(failed)?;
        config.global.set_root_path(&root);
        config.global.prefix = FileName::new(prefix(dir).as_bytes()).map_err(failed)?;
        let node = NodeBuilder::new().config(&config).create::<ipc::Service>().map_err(failed)?;
        let service = |way: &str| {
            let name = format!("{}/{way}", dir.file_name().unwrap_or_default().to_string_lossy());
            let name = ServiceName::new(&name).map_err(failed)?;
            let service = node.service_builder(&name).publish_subscribe::<Payload>();
            let service = service.enable_safe_overflow(false).subscriber_max_buffer_size(BUFFERED);
            service.open_or_create().map_err(failed)
        };
        let (there, back) = (service("there")?, service("back")?);
        let (out, into) = if side == Side::Near { (there, back) } else { (back, there) };
        let publisher = out.publisher_builder().create().map_err(failed)?;
        let subscriber = into.subscriber_builder().create().map_err(failed)?;
        Ok(Services { publisher, subscriber, _node: node })
    }
}

impl Link for Services {
    #[inline]
    fn send(&mut self, _seq: u64, message: &Message) {
        let sample = self.publisher.loan_uninit().expect("one message at a time");
        sample.write_payload(std::array::from_fn(|at| word(message, at))).send().expect("the other side takes it");
    }

    #[inline]
    fn receive(&mut self, _seq: u64) -> u64 {
        loop {
            if let Some(sample) = self.subscriber.receive().expect("the other side is there") {
                return std::hint::black_box(*sample.payload())[MESSAGE_BYTES / 8 - 1];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::ring::sealed;
    use crate::suites::shm::place::ring_dir;

    #[test]
    fn a_message_comes_through_and_nothing_is_left_of_it() {
        let dir = ring_dir().unwrap();
        let leftovers = Leftovers::of(dir.path());
        let [mut near, mut far] = [Side::Near, Side::Far].map(|side| Services::open(dir.path(), side).unwrap());
        let message = sealed(1);
        near.send(1, &message);
        assert_eq!(far.receive(1), word(&message, MESSAGE_BYTES / 8 - 1));
        drop((near, far));
        assert!(!leftovers.found().is_empty(), "else they are somewhere else");
        drop(leftovers);
        assert_eq!(Leftovers::of(dir.path()).found(), [] as [PathBuf; 0]);
    }
}
