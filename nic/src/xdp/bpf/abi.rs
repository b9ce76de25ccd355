//! The kernel's numbers and layouts that this module uses, as Linux 6.18 declares them in its uapi headers. They are
//! stable: nothing here may change, only grow.

/// Declares numbers under the names that the headers give them.
macro_rules! numbers {
    ($($kind:ty: { $($name:ident = $value:expr,)* })*) => { $($(pub const $name: $kind = $value;)*)* };
}

// linux/bpf.h and linux/bpf_common.h: the parts of an opcode.
numbers! {
    u8: {
        CLASS_MASK = 0x07,
        SIZE_MASK = 0x18,
        OPERATION_MASK = 0xf0,
        BPF_LD = 0x00,
        BPF_LDX = 0x01,
        BPF_ST = 0x02,
        BPF_STX = 0x03,
        BPF_ALU = 0x04,
        BPF_JMP = 0x05,
        BPF_JMP32 = 0x06,
        BPF_ALU64 = 0x07,
        BPF_W = 0x00,
        BPF_H = 0x08,
        BPF_B = 0x10,
        BPF_DW = 0x18,
        BPF_IMM = 0x00,
        BPF_MEM = 0x60,
        BPF_K = 0x00,
        BPF_X = 0x08,
        BPF_ADD = 0x00,
        BPF_AND = 0x50,
        BPF_MOV = 0xb0,
        BPF_END = 0xd0,
        BPF_TO_BE = 0x08,
        BPF_JA = 0x00,
        BPF_JEQ = 0x10,
        BPF_JGT = 0x20,
        BPF_JNE = 0x50,
        BPF_CALL = 0x80,
        BPF_EXIT = 0x90,
        BPF_JLT = 0xa0,
        BPF_PSEUDO_MAP_FD = 1,
    }
}

// linux/bpf.h: commands, kinds, functions and verdicts.
numbers! {
    u32: {
        BPF_MAP_CREATE = 0,
        BPF_MAP_LOOKUP_ELEM = 1,
        BPF_MAP_UPDATE_ELEM = 2,
        BPF_MAP_DELETE_ELEM = 3,
        BPF_PROG_LOAD = 5,
        BPF_PROG_TEST_RUN = 10,
        BPF_PROG_GET_NEXT_ID = 11,
        BPF_MAP_GET_NEXT_ID = 12,
        BPF_PROG_GET_FD_BY_ID = 13,
        BPF_OBJ_GET_INFO_BY_FD = 15,
        BPF_LINK_CREATE = 28,
        BPF_LINK_DETACH = 34,
        BPF_MAP_TYPE_PERCPU_ARRAY = 6,
        BPF_MAP_TYPE_XSKMAP = 17,
        BPF_PROG_TYPE_XDP = 6,
        BPF_XDP = 37,
        XDP_ABORTED = 0,
        XDP_DROP = 1,
        XDP_PASS = 2,
        XDP_TX = 3,
        XDP_REDIRECT = 4,
    }
    i32: {
        BPF_FUNC_MAP_LOOKUP_ELEM = 1,
        BPF_FUNC_REDIRECT_MAP = 51,
    }
    usize: {
        BPF_OBJ_NAME_LEN = 16,
    }
}

// linux/bpf.h: offsets in `struct xdp_md`, the context of an XDP program.
numbers! {
    i16: {
        XDP_MD_DATA = 0,
        XDP_MD_DATA_END = 4,
        XDP_MD_RX_QUEUE_INDEX = 16,
    }
}

// linux/if_link.h.
numbers! {
    u32: {
        XDP_FLAGS_UPDATE_IF_NOEXIST = 1 << 0,
        XDP_FLAGS_SKB_MODE = 1 << 1,
        XDP_FLAGS_DRV_MODE = 1 << 2,
        XDP_FLAGS_REPLACE = 1 << 4,
    }
    u16: {
        IFLA_IFNAME = 3,
        IFLA_EXT_MASK = 29,
        IFLA_XDP = 43,
        IFLA_XDP_FD = 1,
        IFLA_XDP_FLAGS = 3,
        IFLA_XDP_PROG_ID = 4,
        IFLA_XDP_DRV_PROG_ID = 5,
        IFLA_XDP_SKB_PROG_ID = 6,
        IFLA_XDP_HW_PROG_ID = 7,
        IFLA_XDP_EXPECTED_FD = 8,
    }
}

// linux/netlink.h and linux/rtnetlink.h.
numbers! {
    u16: {
        NLMSG_ERROR = 2,
        RTM_NEWLINK = 16,
        RTM_GETLINK = 18,
        RTM_SETLINK = 19,
        NLM_F_REQUEST = 0x01,
        NLM_F_ACK = 0x04,
        NLM_F_CAPPED = 0x100,
        NLM_F_ACK_TLVS = 0x200,
        NLA_F_NESTED = 1 << 15,
        NLA_TYPE_MASK = 0x3fff,
        NLMSGERR_ATTR_MSG = 1,
    }
    u32: {
        RTEXT_FILTER_SKIP_STATS = 8,
    }
    usize: {
        NLMSG_HEADER_BYTES = 16,
        IFINFO_BYTES = 16,
        ATTRIBUTE_HEADER_BYTES = 4,
    }
    i32: {
        NETLINK_ROUTE = 0,
        NETLINK_EXT_ACK = 11,
        NETLINK_CAP_ACK = 10,
    }
}

/// The arguments of each command of bpf(2): a prefix of the member of `union bpf_attr` that the command reads. The kernel
/// takes what is missing as zero. Padding is spelled out, so that every byte is initialised.
pub mod arguments {
    /// BPF_MAP_CREATE.
    #[repr(C)]
    #[derive(Default)]
    pub struct MapCreate {
        pub kind: u32,
        pub key_bytes: u32,
        pub value_bytes: u32,
        pub entries_max: u32,
        pub flags: u32,
        pub inner_map_fd: u32,
        pub numa_node: u32,
        pub name: [u8; super::BPF_OBJ_NAME_LEN],
    }

    /// BPF_MAP_LOOKUP_ELEM, BPF_MAP_UPDATE_ELEM, BPF_MAP_DELETE_ELEM.
    #[repr(C)]
    #[derive(Default)]
    pub struct MapElement {
        pub map_fd: u32,
        pub padding: u32,
        pub key: u64,
        pub value: u64,
        pub flags: u64,
    }

    /// BPF_PROG_LOAD.
    #[repr(C)]
    #[derive(Default)]
    pub struct ProgramLoad {
        pub kind: u32,
        pub instruction_count: u32,
        pub instructions: u64,
        pub license: u64,
        pub log_level: u32,
        pub log_bytes: u32,
        pub log: u64,
        pub kernel_version: u32,
        pub flags: u32,
        pub name: [u8; super::BPF_OBJ_NAME_LEN],
        pub ifindex: u32,
        pub expected_attach_type: u32,
    }

    /// BPF_PROG_TEST_RUN.
    #[repr(C)]
    #[derive(Default)]
    pub struct ProgramTestRun {
        pub program_fd: u32,
        pub verdict: u32,
        pub data_in_bytes: u32,
        pub data_out_bytes: u32,
        pub data_in: u64,
        pub data_out: u64,
        pub repeat: u32,
        pub duration_ns: u32,
    }

    /// BPF_PROG_GET_NEXT_ID, BPF_MAP_GET_NEXT_ID, BPF_PROG_GET_FD_BY_ID.
    #[repr(C)]
    #[derive(Default)]
    pub struct ById {
        pub id: u32,
        pub next_id: u32,
        pub open_flags: u32,
    }

    /// BPF_OBJ_GET_INFO_BY_FD.
    #[repr(C)]
    #[derive(Default)]
    pub struct ObjectInfo {
        pub fd: u32,
        pub info_bytes: u32,
        pub info: u64,
    }

    /// BPF_LINK_CREATE.
    #[repr(C)]
    #[derive(Default)]
    pub struct LinkCreate {
        pub program_fd: u32,
        pub ifindex: u32,
        pub attach_type: u32,
        pub flags: u32,
    }

    /// BPF_LINK_DETACH.
    #[repr(C)]
    #[derive(Default)]
    pub struct LinkDetach {
        pub link_fd: u32,
    }

    const _: () = assert!(size_of::<LinkDetach>() == 4);
    const _: () = assert!(size_of::<MapCreate>() == 44);
    const _: () = assert!(size_of::<MapElement>() == 32);
    const _: () = assert!(size_of::<ProgramLoad>() == 72);
    const _: () = assert!(size_of::<ProgramTestRun>() == 40);
    const _: () = assert!(size_of::<ById>() == 12);
    const _: () = assert!(size_of::<ObjectInfo>() == 16);
    const _: () = assert!(size_of::<LinkCreate>() == 16);
}

/// The start of `struct bpf_prog_info`; the kernel fills as much as there is room for.
#[repr(C)]
#[derive(Default)]
pub struct ProgramInfo {
    pub kind: u32,
    pub id: u32,
    pub tag: [u8; 8],
    pub jited_bytes: u32,
    pub translated_bytes: u32,
    pub jited: u64,
    pub translated: u64,
    pub load_time: u64,
    pub created_by_uid: u32,
    pub map_count: u32,
    pub map_ids: u64,
    pub name: [u8; BPF_OBJ_NAME_LEN],
}

const _: () = assert!(size_of::<ProgramInfo>() == 80);
const _: () = assert!(std::mem::offset_of!(ProgramInfo, map_ids) == 56);
const _: () = assert!(std::mem::offset_of!(ProgramInfo, name) == 64);
