//! The system calls: bpf(2) behind functions that check what the kernel can't, and the netlink options that no safe wrapper
//! offers. All `unsafe` of this module is here.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use super::abi::{self, arguments};
use super::instruction::Instruction;

/// One command of bpf(2).
///
/// # Safety
/// `arguments` is the command's, every address in it is valid for what the command reads or writes there, with the sizes
/// beside it, for the length of the call.
unsafe fn bpf<A>(command: u32, arguments: &mut A) -> io::Result<RawFd> {
    // SAFETY: the size goes with the structure; the rest is the caller's promise.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            libc::c_long::from(command),
            std::ptr::from_mut(arguments),
            size_of::<A>() as libc::c_long,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as RawFd) }
}

/// # Safety
/// As for [`bpf`]; the command returns a new file descriptor.
unsafe fn bpf_fd<A>(command: u32, arguments: &mut A) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, arguments)? };
    // SAFETY: the kernel has just made it, and nobody else knows of it. The kernel sets close-on-exec on all of bpf(2)'s.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

fn address<T: ?Sized>(of: &T) -> u64 {
    std::ptr::from_ref(of).cast::<u8>() as u64
}

/// A name as the kernel keeps it: cut to 15 bytes.
fn object_name(name: &str) -> [u8; abi::BPF_OBJ_NAME_LEN] {
    let mut bytes = [0; abi::BPF_OBJ_NAME_LEN];
    let len = name.len().min(abi::BPF_OBJ_NAME_LEN - 1);
    bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
    bytes
}

/// Cores that a kernel can be built for, at most, on any architecture (CONFIG_NR_CPUS): the kernel never fills more slots of
/// a per-core value. A fixed bound needs no trust in what /sys says about the cores of this host.
pub(super) const CORES_MAX: usize = 8192;

/// A map with keys of 4 bytes.
pub(super) struct Map {
    fd: OwnedFd,
    /// The bytes of a value as the kernel copies them to and from the caller.
    value: MapValue,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MapValue {
    /// A file descriptor.
    Socket,
    /// One u64 a core.
    PerCore,
}

impl Map {
    /// A map of AF_XDP sockets, one a receive queue.
    pub(super) fn sockets(name: &str, entries: u32) -> io::Result<Map> {
        let fd = map_create(abi::BPF_MAP_TYPE_XSKMAP, 4, entries, name)?;
        Ok(Map { fd, value: MapValue::Socket })
    }

    /// An array of counters, one set a core.
    pub(super) fn counters(name: &str, entries: u32) -> io::Result<Map> {
        let fd = map_create(abi::BPF_MAP_TYPE_PERCPU_ARRAY, 8, entries, name)?;
        Ok(Map { fd, value: MapValue::PerCore })
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn element(&self, key: &u32, value: u64) -> arguments::MapElement {
        arguments::MapElement {
            map_fd: number(std::os::fd::AsFd::as_fd(&self.fd)),
            key: address(key),
            value,
            ..Default::default()
        }
    }

    pub(super) fn set_socket(&self, key: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        assert!(self.value == MapValue::Socket);
        let value = number(socket);
        let mut arguments = self.element(&key, address(&value));
        // SAFETY: key and value are the 4 bytes that the map was created with.
        unsafe { bpf(abi::BPF_MAP_UPDATE_ELEM, &mut arguments) }.map(drop)
    }

    pub(super) fn remove(&self, key: u32) -> io::Result<()> {
        let mut arguments = self.element(&key, 0);
        // SAFETY: the key is the 4 bytes that the map was created with.
        unsafe { bpf(abi::BPF_MAP_DELETE_ELEM, &mut arguments) }.map(drop)
    }

    /// The sum of a counter over all cores; wraps.
    pub(super) fn sum(&self, key: u32) -> io::Result<u64> {
        assert!(self.value == MapValue::PerCore);
        let mut values = [0u64; CORES_MAX];
        let mut arguments = self.element(&key, std::ptr::from_mut(&mut values).cast::<u8>() as u64);
        // SAFETY: the key is the 4 bytes that the map was created with; the kernel writes 8 bytes for each possible core,
        // and there is room for as many as a kernel can have.
        unsafe { bpf(abi::BPF_MAP_LOOKUP_ELEM, &mut arguments)? };
        Ok(values.iter().fold(0, |sum: u64, value| sum.wrapping_add(*value)))
    }
}

fn map_create(kind: u32, value_bytes: u32, entries_max: u32, name: &str) -> io::Result<OwnedFd> {
    let mut arguments = arguments::MapCreate {
        kind,
        key_bytes: 4,
        value_bytes,
        entries_max,
        name: object_name(name),
        ..Default::default()
    };
    // SAFETY: the arguments hold no address.
    unsafe { bpf_fd(abi::BPF_MAP_CREATE, &mut arguments) }
}

/// Loads an XDP program. With a log, the verifier writes its reasoning there, as a C string.
pub(super) fn program_load(
    instructions: &[Instruction],
    license: &CStr,
    name: &str,
    log: Option<&mut [u8]>,
) -> io::Result<OwnedFd> {
    let mut arguments = arguments::ProgramLoad {
        kind: abi::BPF_PROG_TYPE_XDP,
        instruction_count: u32::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        instructions: address(instructions),
        license: address(license),
        name: object_name(name),
        expected_attach_type: abi::BPF_XDP,
        ..Default::default()
    };
    if let Some(log) = log {
        arguments.log_level = 1;
        arguments.log_bytes = u32::try_from(log.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        arguments.log = log.as_mut_ptr() as u64;
    }
    // SAFETY: instructions and log have the lengths beside them, the license ends with a zero byte; all outlive the call.
    unsafe { bpf_fd(abi::BPF_PROG_LOAD, &mut arguments) }
}

/// Runs a program over a copy of `frame`, `repeat` times. Returns its last verdict and the mean time in nanoseconds.
pub(super) fn program_test_run(program: BorrowedFd<'_>, frame: &[u8], repeat: u32) -> io::Result<(u32, u32)> {
    let mut arguments = arguments::ProgramTestRun {
        program_fd: number(program),
        data_in_bytes: u32::try_from(frame.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        data_in: address(frame),
        repeat,
        ..Default::default()
    };
    // SAFETY: the kernel reads the frame's bytes, of the length beside them; there is no output buffer.
    unsafe { bpf(abi::BPF_PROG_TEST_RUN, &mut arguments)? };
    Ok((arguments.verdict, arguments.duration_ns))
}

/// What the kernel says about a program, and the ids of its first maps.
pub(super) fn program_info(program: BorrowedFd<'_>) -> io::Result<(abi::ProgramInfo, Vec<u32>)> {
    let mut map_ids = [0u32; 8];
    let mut info = abi::ProgramInfo {
        map_count: map_ids.len() as u32,
        map_ids: std::ptr::from_mut(&mut map_ids).cast::<u8>() as u64,
        ..Default::default()
    };
    let mut arguments = arguments::ObjectInfo {
        fd: number(program),
        info_bytes: size_of::<abi::ProgramInfo>() as u32,
        info: std::ptr::from_mut(&mut info).cast::<u8>() as u64,
    };
    // SAFETY: the kernel writes at most `info_bytes` to `info` and `map_count` ids to `map_ids`; both outlive the call.
    unsafe { bpf(abi::BPF_OBJ_GET_INFO_BY_FD, &mut arguments)? };
    let count = (info.map_count as usize).min(map_ids.len());
    Ok((info, map_ids[..count].to_vec()))
}

/// A program of this host by its id. Needs CAP_SYS_ADMIN.
pub(super) fn program_by_id(id: u32) -> io::Result<OwnedFd> {
    let mut arguments = arguments::ById { id, ..Default::default() };
    // SAFETY: the arguments hold no address.
    unsafe { bpf_fd(abi::BPF_PROG_GET_FD_BY_ID, &mut arguments) }
}

/// The kinds of objects that have ids.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Program,
    Map,
}

/// The first id after `id`. Needs CAP_SYS_ADMIN.
pub(super) fn next_id(kind: Kind, id: u32) -> io::Result<Option<u32>> {
    let command = match kind {
        Kind::Program => abi::BPF_PROG_GET_NEXT_ID,
        Kind::Map => abi::BPF_MAP_GET_NEXT_ID,
    };
    let mut arguments = arguments::ById { id, ..Default::default() };
    // SAFETY: the arguments hold no address.
    match unsafe { bpf(command, &mut arguments) } {
        Ok(_) => Ok(Some(arguments.next_id)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Attaches an XDP program to an interface for as long as the returned descriptor, or a copy of it, is open.
pub(super) fn link_create(program: BorrowedFd<'_>, ifindex: u32, flags: u32) -> io::Result<OwnedFd> {
    let mut arguments =
        arguments::LinkCreate { program_fd: number(program), ifindex, attach_type: abi::BPF_XDP, flags };
    // SAFETY: the arguments hold no address.
    unsafe { bpf_fd(abi::BPF_LINK_CREATE, &mut arguments) }
}

/// Detaches what a link holds, whoever has copies of its descriptor.
pub(super) fn link_detach(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut arguments = arguments::LinkDetach { link_fd: number(link) };
    // SAFETY: the arguments hold no address.
    unsafe { bpf(abi::BPF_LINK_DETACH, &mut arguments) }.map(drop)
}

/// Turns an option of a netlink socket on.
pub(super) fn enable_netlink_option(socket: BorrowedFd<'_>, option: i32) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option takes one int, and its size goes with it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_NETLINK,
            option,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
