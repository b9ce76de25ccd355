//! What this host's kernel has loaded, by id. Needs CAP_SYS_ADMIN.

use std::io;
use std::os::fd::AsFd as _;

use super::{BpfError, sys};

/// What the kernel says about a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramInfo {
    /// Its id, unique on this host until it is unloaded.
    pub id: u32,
    /// The name it was loaded under, at most 15 bytes.
    pub name: String,
    /// The bytes of machine code that it was compiled to; 0 where it is interpreted.
    pub machine_code_bytes: u32,
    /// The ids of its first eight maps.
    pub map_ids: Vec<u32>,
}

/// A program by its id; `None` where it is gone.
///
/// # Errors
/// [`BpfError::Read`], mostly for want of CAP_SYS_ADMIN.
pub fn program_by_id(id: u32) -> Result<Option<ProgramInfo>, BpfError> {
    match sys::program_by_id(id) {
        Ok(fd) => info_of(fd.as_fd()).map(Some),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(BpfError::Read { error }),
    }
}

/// The ids of all programs, ascending.
///
/// # Errors
/// As for [`program_by_id`].
pub fn program_ids() -> Result<Vec<u32>, BpfError> {
    ids(sys::Kind::Program).map_err(|error| BpfError::Read { error })
}

/// The ids of all maps, ascending.
///
/// # Errors
/// As for [`program_by_id`].
pub fn map_ids() -> Result<Vec<u32>, BpfError> {
    ids(sys::Kind::Map).map_err(|error| BpfError::Read { error })
}

fn ids(kind: sys::Kind) -> io::Result<Vec<u32>> {
    let mut ids = Vec::new();
    let mut last = 0;
    while let Some(id) = sys::next_id(kind, last)? {
        ids.push(id);
        last = id;
    }
    Ok(ids)
}

pub(super) fn info_of(program: std::os::fd::BorrowedFd<'_>) -> Result<ProgramInfo, BpfError> {
    let (info, map_ids) = sys::program_info(program).map_err(|error| BpfError::Read { error })?;
    let end = info.name.iter().position(|&byte| byte == 0).unwrap_or(info.name.len());
    let name = String::from_utf8_lossy(&info.name[..end]).into_owned();
    Ok(ProgramInfo { id: info.id, name, machine_code_bytes: info.jited_bytes, map_ids })
}
