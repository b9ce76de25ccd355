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
    let name = path.display().to_string();
    let failed = |error| FlowError { file: name.clone(), offset: 0, reason: Reason::Io(error) };
    check(&name, commands)?;
    let file = BufWriter::new(File::create(path).map_err(failed)?);
    let flushed = if path.extension().is_some_and(|extension| extension == "gz") {
        let mut gzip = GzEncoder::new(file, Compression::default());
        write(&name, &mut gzip, commands)?;
        gzip.finish().and_then(|mut file| file.flush())
    } else {
        let mut file = file;
        write(&name, &mut file, commands)?;
        file.flush()
    };
    flushed.map_err(failed)
}

/// Writes the commands as a plain orders file; `name` stands for it in errors.
///
/// # Errors
/// As [`save`].
pub fn write(name: &str, mut out: impl Write, commands: &[Command]) -> Result<(), FlowError> {
    let count = check(name, commands)?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    let mut offset = 0;
    let mut put = |bytes: &[u8]| -> io::Result<()> { out.write_all(bytes) };
    let mut failed = put(&bytes).err();
    for command in commands {
        if let Some(error) = failed {
            return Err(FlowError { file: name.into(), offset, reason: Reason::Io(error) });
        }
        offset += RECORD_BYTES as u64;
        failed = put(&record(command)).err();
    }
    match failed {
        Some(error) => Err(FlowError { file: name.into(), offset, reason: Reason::Io(error) }),
        None => Ok(()),
    }
}

/// That the format can carry the commands, before a file is touched. Returns their count.
fn check(name: &str, commands: &[Command]) -> Result<u32, FlowError> {
    let refused = |reason| FlowError { file: name.into(), offset: 0, reason };
    let mut last_seq = None;
    for command in commands {
        let seq = command.seq();
        if let Some(after) = last_seq.filter(|&after| after >= seq) {
            return Err(refused(Reason::SeqNotAscending { seq, after }));
        }
        if let Command::New { time_in_force: TimeInForce::GoodTill(_), .. } = command {
            return Err(refused(Reason::GoodTill { seq }));
        }
        last_seq = Some(seq);
    }
    u32::try_from(commands.len()).map_err(|_| refused(Reason::TooMany(commands.len())))
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
