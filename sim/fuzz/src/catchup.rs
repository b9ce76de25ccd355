//! Catch-up: any bytes as messages, to a client from a server, and to a server from a client.

use ticktape::catchup::layout::{MAGIC, VERSION, header};
use ticktape::catchup::{
    Decoder, EpochTable, Fetch, FetchConfig, Fetched, Hello, MESSAGE_BYTES, MESSAGE_BYTES_MIN, Message, Part, Serve,
    ServeConfig, SnapshotBegin, Source, SourceError, Standing, Step, UpTo, Welcome,
};
use ticktape::payload::Reign;
use ticktape::{Frame, Kind, Seq, Timestamp};
use ticktape_core::crc32c;

use super::Seeds;
use super::input::Input;

/// What a server has to say at most to one question about a log of a hundred frames.
const ANSWER_BYTES_MAX: usize = 64 << 10;

pub fn run(data: &[u8]) -> bool {
    let is_message = read_messages(data);
    let sealed = sealed(data);
    is_message | hear(data) | answer(data) | hear(&sealed) | answer(&sealed)
}

/// The same bytes as messages whose checksums fit, as no chance would find them: types, and bodies behind their lengths.
fn sealed(data: &[u8]) -> Vec<u8> {
    let (mut input, mut out) = (Input::new(data), Vec::new());
    while !input.is_empty() {
        let message_type = input.u8();
        let body = input.short_bytes();
        let mut head = [0; header::BYTES];
        head[..header::HEADER_CRC].copy_from_slice(&MAGIC);
        (head[header::VERSION], head[header::TYPE], head[header::LENGTH]) = (VERSION, message_type, body.len() as u8);
        head[header::BODY_CRC..].copy_from_slice(&crc32c(body).to_le_bytes());
        let crc = crc32c(&head[header::VERSION..]);
        head[header::HEADER_CRC..header::VERSION].copy_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(body);
    }
    out
}

/// What is accepted is written back as it came.
fn read_messages(data: &[u8]) -> bool {
    let (mut decoder, mut at, mut fed, mut accepted) = (Decoder::new(MESSAGE_BYTES_MIN), 0, 0, false);
    loop {
        match decoder.next() {
            Err(_) => return accepted,
            Ok(Some(message)) => {
                let mut again = Vec::new();
                message.append_to(&mut again);
                assert_eq!(again, data[at..at + again.len()]);
                at += again.len();
                accepted = true;
            }
            Ok(None) => {
                let space = decoder.space();
                assert!(!space.is_empty(), "there is room for what is asked for");
                let bytes = space.len().min(data.len() - fed);
                if bytes == 0 {
                    return accepted;
                }
                space[..bytes].copy_from_slice(&data[fed..fed + bytes]);
                decoder.filled(bytes);
                fed += bytes;
            }
        }
    }
}

/// A client hands on what is in order and whole, whoever sends it.
fn hear(data: &[u8]) -> bool {
    let config = FetchConfig { message_bytes_max: MESSAGE_BYTES_MIN, ..FetchConfig::new(1, "kv", 9, Seq(5)) };
    let (mut fetch, mut hello) = (Fetch::new(config), Vec::new());
    fetch.reconnect(0, &mut hello);
    let (mut next, mut spooled, mut fed) = (5, 0, 0);
    loop {
        let step = fetch.poll(0, |fetched| {
            match fetched {
                Fetched::Frame { frame, bytes } => {
                    assert_eq!(frame.seq.0, next);
                    assert_eq!(Frame::decode(bytes), Ok(frame));
                    next += 1;
                }
                Fetched::SnapshotBegin(begin) => {
                    assert!(begin.offset <= spooled);
                    spooled = begin.offset;
                }
                Fetched::SnapshotChunk { offset, chunk } => {
                    assert_eq!(offset, spooled);
                    spooled += chunk.len() as u64;
                }
            }
            true
        });
        match step {
            Ok(Step::SnapshotComplete(seq)) => {
                fetch.accept_snapshot(Reign::unnamed(1));
                assert!(seq.0 >= next);
                (next, spooled) = (seq.0 + 1, 0);
            }
            Ok(Step::NeedsBytes) if fed < data.len() => {
                let space = fetch.space();
                let bytes = space.len().min(data.len() - fed);
                space[..bytes].copy_from_slice(&data[fed..fed + bytes]);
                fetch.filled(bytes);
                fed += bytes;
            }
            _ => return fetch.welcome().is_some(),
        }
        assert_eq!(fetch.next_seq(), Seq(next));
    }
}

/// A hundred frames, and a snapshot of the fiftieth.
struct Log(u64);

impl Source for Log {
    fn standing(&mut self) -> Result<Standing, SourceError> {
        Ok(Standing { log_id: 5, commit: Seq(99), next: Seq(101) })
    }

    fn open_snapshot(&mut self, at_most: Seq, _: Option<Part>) -> Result<Option<SnapshotBegin>, SourceError> {
        let begin = SnapshotBegin { seq: Seq(50), file_bytes: 5000, offset: 0, header_crc: 9 };
        Ok((at_most >= Seq(50)).then_some(begin))
    }

    fn read_snapshot(&mut self, offset: u64, out: &mut [u8]) -> Result<usize, SourceError> {
        assert!(offset + out.len() as u64 <= 5000 && !out.is_empty());
        Ok(out.len())
    }

    fn seek(&mut self, from: Seq) -> Result<(), SourceError> {
        self.0 = from.0;
        if from < Seq(20) { Err(SourceError::TooOld) } else { Ok(()) }
    }

    fn next_frame(&mut self, f: &mut dyn FnMut(&Frame<'_>)) -> Result<bool, SourceError> {
        assert!(self.0 <= 99, "what is not committed is not asked for");
        let seq = Seq(self.0);
        f(&Frame { seq, timestamp: Timestamp(1), stream_id: 2, kind: Kind::Tick, payload: &[] });
        self.0 += 1;
        Ok(true)
    }
}

/// A server answers a question, and no more.
fn answer(data: &[u8]) -> bool {
    let epochs = EpochTable::new(&[(Reign { epoch: 1, id: 10 }, Seq(1)), (Reign { epoch: 3, id: 30 }, Seq(40))]);
    let (mut serve, mut log) = (Serve::new(&ServeConfig::new(1, "kv", 9), epochs, 0), Log(1));
    let (mut fed, mut answered, mut asked) = (0, 0, 0);
    while let Ok(has_some) = serve.poll(0, &mut log) {
        if has_some {
            let pending = serve.pending().len();
            assert!(pending <= MESSAGE_BYTES);
            answered += pending;
            serve.took(0, pending);
            let questions = serve.served().questions;
            if questions > asked {
                (asked, answered) = (questions, pending);
            }
            assert!(answered <= ANSWER_BYTES_MAX, "an answer has an end");
        } else if serve.listens() && fed < data.len() {
            let space = serve.space();
            let bytes = space.len().min(data.len() - fed);
            space[..bytes].copy_from_slice(&data[fed..fed + bytes]);
            serve.filled(bytes);
            fed += bytes;
        } else {
            break;
        }
    }
    asked > 0
}

pub fn seeds() -> Seeds {
    let hello = Hello {
        stream: 1,
        schema_version: 9,
        log_id: 5,
        wanted: Seq(60),
        reign: Reign { epoch: 3, id: 30 },
        replay_max: 1000,
        message_bytes_max: 4096,
        part: None,
        snapshot_max: Seq::MAX,
        service_name: "kv",
    };
    let part = Some(Part { seq: Seq(50), header_crc: 9, bytes: 1000 });
    let mut frames = Vec::new();
    for seq in 5..8 {
        let (seq, timestamp) = (Seq(seq), Timestamp(1));
        Frame { seq, timestamp, stream_id: 2, kind: Kind::Input, payload: b"add" }.append_to(&mut frames);
    }
    let welcome = Message::Welcome(Welcome { log_id: 5, reign: hello.reign, commit: Seq(7) });
    let begin = SnapshotBegin { seq: Seq(7), file_bytes: 5, offset: 0, header_crc: 9 };
    let up_to = Message::UpTo(UpTo { next: Seq(8), commit: Seq(7), reign: hello.reign });
    let stream = |messages: &[Message<'_>]| {
        let mut out = Vec::new();
        messages.iter().for_each(|message| message.append_to(&mut out));
        out
    };
    let begun = Hello { wanted: Seq(1), reign: Reign::default(), part, ..hello };
    // As `sealed` reads it: the type, and the body behind its length.
    let unsealed = |messages: &[Message<'_>]| {
        let mut out = Vec::new();
        for message in messages {
            let mut bytes = Vec::new();
            message.append_to(&mut bytes);
            let body = &bytes[header::BYTES..];
            out.extend_from_slice(&[message.message_type().code(), body.len() as u8]);
            out.extend_from_slice(body);
        }
        out
    };
    vec![
        ("unsealed_hello", unsealed(&[Message::Hello(hello), Message::Hello(begun)])),
        ("unsealed_frames", unsealed(&[welcome, Message::Frames { base: Seq(5), count: 3, frames: &frames }, up_to])),
        (
            "unsealed_snapshot",
            unsealed(&[
                welcome,
                Message::SnapshotBegin(begin),
                Message::SnapshotChunk { offset: 0, chunk: b"state" },
                up_to,
            ]),
        ),
        ("hello", stream(&[Message::Hello(hello), Message::Hello(Hello { wanted: Seq(100), ..hello })])),
        ("hello_of_another_history", stream(&[Message::Hello(Hello { reign: Reign { epoch: 3, id: 31 }, ..hello })])),
        ("hello_part", stream(&[Message::Hello(begun)])),
        ("frames", stream(&[welcome, Message::Frames { base: Seq(5), count: 3, frames: &frames }, up_to])),
        (
            "snapshot",
            stream(&[
                welcome,
                Message::SnapshotBegin(begin),
                Message::SnapshotChunk { offset: 0, chunk: b"sta" },
                Message::SnapshotChunk { offset: 3, chunk: b"te" },
                up_to,
            ]),
        ),
    ]
}
