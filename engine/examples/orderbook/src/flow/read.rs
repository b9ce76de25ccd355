//! Reading an orders file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::error::{FlowError, Reason};
use super::{HEADER_BYTES, MAGIC, RECORD_BYTES, VERSION};
use crate::command::{Command, Side, TimeInForce};

/// What a gzip file starts with.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Bytes read at once; a system call for so much costs nothing beside parsing it.
const BUFFER_BYTES: usize = 64 << 10;
/// Commands for which room is made on the header's word alone.
const TRUSTED_COUNT_MAX: usize = 1 << 16;

/// Reads all of the file's commands, plain or gzip.
///
/// # Errors
/// [`FlowError`], naming the file, the place and what would be right.
pub fn load(path: impl AsRef<Path>) -> Result<Vec<Command>, FlowError> {
    collect(FlowReader::open(path)?)
}

/// Reads all commands of a plain orders file from any source; `name` stands for it in errors.
///
/// # Errors
/// As [`load`].
pub fn read(name: &str, source: impl Read) -> Result<Vec<Command>, FlowError> {
    collect(FlowReader::new(name, BufReader::with_capacity(BUFFER_BYTES, source))?)
}

fn collect<R: Read>(reader: FlowReader<R>) -> Result<Vec<Command>, FlowError> {
    let mut commands = Vec::with_capacity((reader.announced() as usize).min(TRUSTED_COUNT_MAX));
    for command in reader {
        commands.push(command?);
    }
    Ok(commands)
}

/// Yields an orders file's commands one by one, in constant memory. After an error there is nothing more.
#[derive(Debug)]
pub struct FlowReader<R> {
    name: String,
    source: R,
    count: u32,
    records: u64,
    last_seq: Option<u64>,
    done: bool,
}

impl FlowReader<Box<dyn Read>> {
    /// Opens a file, plain or gzip by its first bytes.
    ///
    /// # Errors
    /// As [`load`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FlowError> {
        let name = path.as_ref().display().to_string();
        let at_start = |reason| FlowError { file: name.clone(), offset: 0, reason };
        let file = File::open(&path).map_err(|error| at_start(Reason::Io(error)))?;
        let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
        let start = file.fill_buf().map_err(|error| at_start(Reason::Io(error)))?;
        let source: Box<dyn Read> = if start.starts_with(&GZIP_MAGIC) {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(file)))
        } else {
            Box::new(file)
        };
        FlowReader::new(&name, source)
    }
}

impl<R: Read> FlowReader<R> {
    /// Reads the header from any source, which is best buffered; `name` stands for it in errors.
    ///
    /// # Errors
    /// As [`load`].
    pub fn new(name: &str, source: R) -> Result<Self, FlowError> {
        let mut reader = FlowReader { name: name.into(), source, count: 0, records: 0, last_seq: None, done: false };
        let mut header = [0; HEADER_BYTES];
        let read = reader.fill(&mut header).map_err(|error| reader.at(0, Reason::Io(error)))?;
        let magic = header[..8].try_into().expect("eight bytes");
        if read >= 8 && magic != MAGIC {
            return Err(reader.at(0, Reason::Magic(magic)));
        }
        if read < HEADER_BYTES {
            return Err(reader.at(read as u64, Reason::NoHeader));
        }
        let version = u32_at(&header, 8);
        if version != VERSION {
            return Err(reader.at(8, Reason::Version(version)));
        }
        reader.count = u32_at(&header, 12);
        Ok(reader)
    }

    /// Records that the header announces.
    pub fn announced(&self) -> u32 {
        self.count
    }

    fn at(&self, offset: u64, reason: Reason) -> FlowError {
        FlowError { file: self.name.clone(), offset, reason }
    }

    /// Reads until the buffer is full or the source ends.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.source.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn next_command(&mut self) -> Result<Option<Command>, FlowError> {
        let start = HEADER_BYTES as u64 + self.records * RECORD_BYTES as u64;
        let mut record = [0; RECORD_BYTES];
        let wanted = if self.records < u64::from(self.count) { RECORD_BYTES } else { 1 };
        let read = self.fill(&mut record[..wanted]).map_err(|error| self.at(start, Reason::Io(error)))?;
        if self.records == u64::from(self.count) {
            return match read {
                0 => Ok(None),
                _ => Err(self.at(start, Reason::Trailing { count: self.count })),
            };
        }
        if read < RECORD_BYTES {
            let reason = Reason::Short { records: self.records, count: self.count };
            return Err(self.at(start + read as u64, reason));
        }
        let command = command(&record).map_err(|(at, reason)| self.at(start + at, reason))?;
        if let Some(after) = self.last_seq.filter(|&after| after >= command.seq()) {
            return Err(self.at(start + 8, Reason::SeqNotAscending { seq: command.seq(), after }));
        }
        self.last_seq = Some(command.seq());
        self.records += 1;
        Ok(Some(command))
    }
}

impl<R: Read> Iterator for FlowReader<R> {
    type Item = Result<Command, FlowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.next_command().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

/// The command of a record, or the place within it that is wrong.
fn command(record: &[u8; RECORD_BYTES]) -> Result<Command, (u64, Reason)> {
    let side = match record[1] {
        0 => Side::Buy,
        1 => Side::Sell,
        side => return Err((1, Reason::Side(side))),
    };
    if record[2] > 1 || (record[2] == 1 && record[0] != 0) {
        return Err((2, Reason::Ioc(record[2])));
    }
    if record[3] != 0 {
        return Err((3, Reason::NotZero(i64::from(record[3]))));
    }
    if i64_at(record, 32) != 0 {
        return Err((32, Reason::NotZero(i64_at(record, 32))));
    }
    let (qty, seq, id, price) =
        (u32_at(record, 4), i64_at(record, 8) as u64, i64_at(record, 16) as u64, i64_at(record, 24));
    let time_in_force = if record[2] == 1 { TimeInForce::ImmediateOrCancel } else { TimeInForce::GoodTillCancel };
    match record[0] {
        0 => Ok(Command::New { seq, id, side, price, qty, time_in_force }),
        1 => Ok(Command::Cancel { seq, id }),
        2 => Ok(Command::Modify { seq, id, price, qty }),
        kind => Err((0, Reason::Type(kind))),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
