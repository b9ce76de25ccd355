//! Writing an orders file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::error::{FlowError, Reason};
use super::{HEADER_BYTES, MAGIC, RECORD_BYTES, VERSION};
use crate::command::{Command, TimeInForce};

/// Writes the commands to a file, as gzip where its name ends in `.gz`. What a command does not say (a cancel's side, price and
/// size, a modify's side) is written as zero.
///
/// # Errors
/// [`FlowError`], naming the file and what would be right.
pub fn save(path: impl AsRef<Path>, commands: &[Command]) -> Result<(), FlowError> {
    let path = path.as_ref();
    let count = check(&path.display().to_string(), commands)?;
    let mut writer = FlowWriter::create(path, count, is_gzip(path))?;
    commands.iter().try_for_each(|command| writer.push(command))?;
    writer.finish()?.end().map_err(|error| at_start(path, error))
}

/// Writes the commands as a plain orders file; `name` stands for it in errors.
///
/// # Errors
/// As [`save`].
pub fn write(name: &str, out: impl Write, commands: &[Command]) -> Result<(), FlowError> {
    let count = check(name, commands)?;
    let mut writer = FlowWriter::new(name, out, count)?;
    commands.iter().try_for_each(|command| writer.push(command))?;
    writer.finish().map(drop)
}

/// Whether a file of this name is to be gzip.
pub fn is_gzip(path: impl AsRef<Path>) -> bool {
    path.as_ref().extension().is_some_and(|extension| extension == "gz")
}

fn at_start(path: &Path, error: io::Error) -> FlowError {
    FlowError { file: path.display().to_string(), offset: 0, reason: Reason::Io(error) }
}

/// Writes commands one by one, in constant memory.
#[derive(Debug)]
pub struct FlowWriter<W> {
    name: String,
    out: W,
    count: u32,
    written: u32,
    last_seq: Option<u64>,
}

/// A file that is written, plain or gzip.
#[derive(Debug)]
pub enum FlowFile {
    /// As it is.
    Plain(BufWriter<File>),
    /// Compressed; without a time, so that the same orders are the same bytes.
    Gzip(GzEncoder<BufWriter<File>>),
}

impl Write for FlowFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            FlowFile::Plain(file) => file.write(bytes),
            FlowFile::Gzip(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            FlowFile::Plain(file) => file.flush(),
            FlowFile::Gzip(file) => file.flush(),
        }
    }
}

impl FlowFile {
    /// Writes what is still held back.
    ///
    /// # Errors
    /// What the system says.
    pub fn end(self) -> io::Result<()> {
        match self {
            FlowFile::Plain(mut file) => file.flush(),
            FlowFile::Gzip(file) => file.finish()?.flush(),
        }
    }
}

impl FlowWriter<FlowFile> {
    /// Makes a file for `count` commands.
    ///
    /// # Errors
    /// As [`save`].
    pub fn create(path: impl AsRef<Path>, count: u32, gzip: bool) -> Result<Self, FlowError> {
        let path = path.as_ref();
        let file = BufWriter::new(File::create(path).map_err(|error| at_start(path, error))?);
        let file =
            if gzip { FlowFile::Gzip(GzEncoder::new(file, Compression::default())) } else { FlowFile::Plain(file) };
        FlowWriter::new(&path.display().to_string(), file, count)
    }
}

impl<W: Write> FlowWriter<W> {
    /// Writes the header of a file of `count` commands; `name` stands for it in errors.
    ///
    /// # Errors
    /// As [`save`].
    pub fn new(name: &str, mut out: W, count: u32) -> Result<Self, FlowError> {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[12..].copy_from_slice(&count.to_le_bytes());
        let failed = |error| FlowError { file: name.into(), offset: 0, reason: Reason::Io(error) };
        out.write_all(&header).map_err(failed)?;
        Ok(FlowWriter { name: name.into(), out, count, written: 0, last_seq: None })
    }

    /// Writes a command.
    ///
    /// # Errors
    /// As [`save`]; more commands than were announced are refused.
    pub fn push(&mut self, command: &Command) -> Result<(), FlowError> {
        check_one(command, self.last_seq).map_err(|reason| self.failed(reason))?;
        if self.written == self.count {
            return Err(self.failed(Reason::Trailing { count: self.count }));
        }
        self.out.write_all(&record(command)).map_err(|error| self.failed(Reason::Io(error)))?;
        self.last_seq = Some(command.seq());
        self.written += 1;
        Ok(())
    }

    /// Ends the file, and hands back what was written to.
    ///
    /// # Errors
    /// As [`save`]; fewer commands than were announced are a mistake.
    pub fn finish(self) -> Result<W, FlowError> {
        if self.written < self.count {
            return Err(self.failed(Reason::Short { records: self.written.into(), count: self.count }));
        }
        Ok(self.out)
    }

    fn failed(&self, reason: Reason) -> FlowError {
        let offset = HEADER_BYTES as u64 + u64::from(self.written) * RECORD_BYTES as u64;
        FlowError { file: self.name.clone(), offset, reason }
    }
}

/// That the format can carry the commands, before a file is touched. Returns their count.
fn check(name: &str, commands: &[Command]) -> Result<u32, FlowError> {
    let refused = |reason| FlowError { file: name.into(), offset: 0, reason };
    let mut last_seq = None;
    for command in commands {
        check_one(command, last_seq).map_err(refused)?;
        last_seq = Some(command.seq());
    }
    u32::try_from(commands.len()).map_err(|_| refused(Reason::TooMany(commands.len())))
}

/// That the format can carry a command behind the one of `last_seq`.
fn check_one(command: &Command, last_seq: Option<u64>) -> Result<(), Reason> {
    let seq = command.seq();
    if let Some(after) = last_seq.filter(|&after| after >= seq) {
        return Err(Reason::SeqNotAscending { seq, after });
    }
    match command {
        Command::New { time_in_force: TimeInForce::GoodTill(_), .. } => Err(Reason::GoodTill { seq }),
        _ => Ok(()),
    }
}

fn record(command: &Command) -> [u8; RECORD_BYTES] {
    let (kind, side, ioc, price, qty) = match *command {
        Command::New { side, price, qty, time_in_force, .. } => {
            (0, side as u8, u8::from(time_in_force == TimeInForce::ImmediateOrCancel), price, qty)
        }
        Command::Cancel { .. } => (1, 0, 0, 0, 0),
        Command::Modify { price, qty, .. } => (2, 0, 0, price, qty),
    };
    let mut record = [0; RECORD_BYTES];
    record[..3].copy_from_slice(&[kind, side, ioc]);
    record[4..8].copy_from_slice(&qty.to_le_bytes());
    record[8..16].copy_from_slice(&command.seq().to_le_bytes());
    record[16..24].copy_from_slice(&command.id().to_le_bytes());
    record[24..32].copy_from_slice(&price.to_le_bytes());
    record
}
