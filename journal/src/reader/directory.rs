//! What a reader sees of the directory, while its writer begins segments, renames them and takes them away.

use std::ops::Range;
use std::path::{Path, PathBuf};

use ticktape_core::Seq;

use super::{JournalReader, LIST_TRIES, Place};
use crate::disk::{Disk, Op, OpenMode, Outcome};
use crate::error::JournalError;
use crate::format::segment::HeaderError;
use crate::limits::{ALIGNMENT_BYTES_MAX, READ_CHUNK_BYTES};
use crate::names;
use crate::recover::{self, Segment, at, run};
use crate::scan::Chain;
use crate::sealed::read_seal;
use crate::window::Window;

impl<D: Disk> JournalReader<D> {
    /// The open segment, opened anew past the page cache, which may be older than what a writer beside it wrote; `None` if it was
    /// taken away: it has another header, or is not there any more.
    pub(super) fn reopen(&mut self, chain: Chain) -> Result<Option<Chain>, JournalError> {
        for _ in 0..LIST_TRIES {
            let is_it =
                |segment: &&Segment| segment.header.first_seq == self.current && segment.header.salt() == chain.salt;
            let Some(path) = self.segments.iter().find(is_it).map(|segment| segment.path.clone()) else { break };
            let file = match self.disk.run(Op::Open { path: &path, mode: OpenMode::ReadDirect }) {
                Ok(Outcome::Opened(file)) => file,
                Ok(_) => unreachable!("open opens"),
                Err(error) if error.is_missing() => {
                    self.refresh()?;
                    continue;
                }
                Err(error) => return Err(at(&path, error)),
            };
            let mut window = Window::new(ALIGNMENT_BYTES_MAX);
            let header = recover::header(&mut self.disk, &mut window, file);
            window.release(&mut self.disk);
            let (leaves, keeps) = match header.map_err(|error| at(&path, error))? {
                Ok((header, _)) if header.salt() == chain.salt => (chain.file, Some(Chain { file, ..chain })),
                Ok(_) | Err(HeaderError::Recycled) => (file, None),
                // Its header is damaged: what it held is still there.
                Err(_) => (file, Some(chain)),
            };
            run(&mut self.disk, &path, Op::Close { file: leaves })?;
            if let Some(chain) = keeps {
                self.window.forget();
                self.place = Place::Chain(chain);
            }
            return Ok(keeps);
        }
        Ok(None)
    }

    /// The open segment is gone: so is what comes next, unless it is in another one.
    pub(super) fn taken_away(&mut self) -> Result<bool, JournalError> {
        self.from = self.next_seq();
        self.at_seq = self.from;
        self.close_current()?;
        // What is known of a file by its name may be of its last use.
        self.segments.clear();
        self.refresh()?;
        match self.first_seq() {
            Some(first) if first > self.from => Err(self.too_old(first)),
            _ => Ok(true),
        }
    }

    /// Why seqs are not there, if it is a file that by its name begins at one of these and has lost its header.
    pub(super) fn header_lost(&mut self, seqs: Range<Seq>) -> Option<JournalError> {
        // Beside a writer one look may meet a header that is just being replaced.
        self.header_lost_at_a_look(seqs.clone())?;
        self.header_lost_at_a_look(seqs)
    }

    fn header_lost_at_a_look(&mut self, seqs: Range<Seq>) -> Option<JournalError> {
        let mut window = Window::new(READ_CHUNK_BYTES);
        let mut tries = 0;
        let lost = loop {
            match recover::header_lost(&mut self.disk, &mut window, &self.dir, seqs.clone()) {
                Err(JournalError::Disk { error, .. }) if error.is_missing() && tries < LIST_TRIES => tries += 1,
                other => break other,
            }
        };
        window.release(&mut self.disk);
        lost.unwrap_or_else(Some)
    }

    fn known_durable_once(&mut self, window: &mut Window) -> Result<Seq, JournalError> {
        if let Place::Chain(chain) = &self.place
            && let Some(durable) = recover::known_durable_at_end(&mut self.disk, window, &self.dir, chain, self.seen)?
        {
            return Ok(durable);
        }
        recover::known_durable(&mut self.disk, window, &self.dir)
    }

    pub(super) fn known_durable(&mut self) -> Result<Seq, JournalError> {
        let mut window = Window::new(READ_CHUNK_BYTES);
        let mut tries = 0;
        let durable = loop {
            match self.known_durable_once(&mut window) {
                Err(JournalError::Disk { error, .. }) if error.is_missing() && tries < LIST_TRIES => tries += 1,
                other => break other,
            }
        };
        window.release(&mut self.disk);
        durable
    }

    /// Lists the directory, reading the headers of files not known yet.
    pub(super) fn refresh(&mut self) -> Result<(), JournalError> {
        let mut window = Window::new(ALIGNMENT_BYTES_MAX);
        let mut tries = 0;
        let listed = loop {
            match self.list(&mut window) {
                Err(JournalError::Disk { error, .. }) if error.is_missing() && tries < LIST_TRIES => tries += 1,
                other => break other,
            }
        };
        window.release(&mut self.disk);
        self.segments = listed?;
        recover::check_one_log(&self.segments)
    }

    fn list(&mut self, window: &mut Window) -> Result<Vec<Segment>, JournalError> {
        let (names, has_seal) = recover::list(&mut self.disk, &self.dir)?;
        if has_seal {
            let sealed = read_seal(&mut self.disk, window, &self.dir)?.unwrap_or_default();
            self.sealed = self.sealed.max(sealed.durable);
        }
        let mut segments = Vec::with_capacity(names.len());
        for name in names {
            let path = names::within(&self.dir, &name);
            let is_it = |known: &&Segment| known.path.as_os_str() == path.as_os_str() && !names::is_spare(&path);
            if let Some(known) = self.segments.iter().find(is_it) {
                segments.push(known.clone());
                continue;
            }
            let Some(file) = recover::open_listed(&mut self.disk, &path)? else { continue };
            let header = recover::header(&mut self.disk, window, file).map_err(|error| at(&path, error))?;
            run(&mut self.disk, &path, Op::Close { file })?;
            match header {
                Ok((header, header_crc)) => segments.push(Segment { path, header, header_crc }),
                Err(HeaderError::Version(version)) => return Err(JournalError::Version { segment: path, version }),
                // Not begun yet, or damaged: then what it held is missed, if it was acknowledged.
                Err(_) => {}
            }
        }
        segments.sort_by_key(|segment| segment.header.first_seq);
        Ok(segments)
    }

    pub(super) fn check_it_is_a_journal(&mut self) -> Result<(), JournalError> {
        let op = Op::List { path: &self.dir };
        let Outcome::Names(names) = run(&mut self.disk, &self.dir, op)? else { unreachable!("list lists") };
        let known = |name: &PathBuf| {
            // With snapshots alone a journal goes on from the newest of them.
            let is_snapshot = names::snapshot_seq(name).is_some();
            is_snapshot || names::may_be_segment(name) || name == Path::new(names::LOCK)
        };
        if names.iter().any(known) { Ok(()) } else { Err(JournalError::Empty { dir: self.dir.clone() }) }
    }
}
