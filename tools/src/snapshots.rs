//! The snapshots in a journal's directory, with what is wrong with them.

use std::path::{Path, PathBuf};

use serde::Serialize;
use ticktape::Seq;
use ticktape_journal::snapshot::{self, SnapshotHeader};
use ticktape_journal::{JournalError, SnapshotError};

use crate::Failure;

/// How much of a snapshot is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Its header.
    Header,
    /// All of it.
    Whole,
}

/// One snapshot file.
#[derive(Debug)]
pub struct SnapshotFile {
    /// The seq in its name.
    pub seq: Seq,
    /// Where it is.
    pub path: PathBuf,
    /// What its header says, or what is wrong with it.
    pub header: Result<SnapshotHeader, SnapshotError>,
}

/// A snapshot file, for scripts.
#[derive(Debug, Serialize)]
pub struct SnapshotJson {
    file: String,
    seq: u64,
    epoch: Option<u64>,
    service: Option<String>,
    schema_version: Option<u32>,
    bytes: Option<u64>,
    sound: bool,
    error: Option<String>,
}

/// The snapshots in `dir`, oldest first; what is of another log than its segments is not sound here. None where `dir` is a file.
pub fn look(dir: &Path, depth: Depth) -> Result<Vec<SnapshotFile>, Failure> {
    let listed = match snapshot::list(dir) {
        Err(JournalError::Disk { .. }) if dir.is_file() => Vec::new(),
        listed => listed.map_err(Failure::failed)?,
    };
    let log_id = if listed.is_empty() { None } else { ticktape_journal::log_id(dir).map_err(Failure::failed)? };
    let files = listed.into_iter().map(|(seq, path)| {
        let header = match depth {
            Depth::Header => snapshot::read_header(&path),
            Depth::Whole => snapshot::verify(&path),
        };
        let header = header.and_then(|header| snapshot::check_log(&path, &header.meta, log_id).map(|()| header));
        SnapshotFile { seq, path, header }
    });
    // A live writer beside this reader may have retired one since it was listed.
    Ok(files.filter(|file| !file.is_gone()).collect())
}

impl SnapshotFile {
    fn is_gone(&self) -> bool {
        matches!(&self.header, Err(SnapshotError::Disk { error, .. }) if error.is_missing())
    }

    /// For scripts.
    pub fn json(&self) -> SnapshotJson {
        let header = self.header.as_ref().ok();
        SnapshotJson {
            file: self.path.display().to_string(),
            seq: self.seq.0,
            epoch: header.map(|header| header.meta.epoch),
            service: header.map(|header| header.meta.service_name.clone()),
            schema_version: header.map(|header| header.meta.schema_version),
            bytes: header.map(SnapshotHeader::file_bytes),
            sound: header.is_some(),
            error: self.header.as_ref().err().map(ToString::to_string),
        }
    }

    /// For people.
    pub fn line(&self, depth: Depth) -> String {
        let header = match &self.header {
            Ok(header) => header,
            Err(error @ SnapshotError::OtherLog { .. }) => return format!("FOREIGN {error}"),
            Err(error) => return format!("DAMAGED {error}"),
        };
        let (bytes, meta) = (header.file_bytes(), &header.meta);
        let name = if meta.service_name.is_empty() { "-" } else { &meta.service_name };
        let checked = match depth {
            Depth::Header => "its header is sound",
            Depth::Whole => "sound",
        };
        format!(
            "{}: {bytes} bytes, after seq {}, epoch {}, service {name}, {checked}",
            self.path.display(),
            meta.seq,
            meta.epoch
        )
    }
}
