//! One instruction of the kernel's virtual machine: its eight bytes, and its text for error messages.
//!
//! The encoding is that of RFC 9669.

use std::fmt;

use super::abi;

/// A register of the virtual machine. R0 holds what a call or the program returns, R1 to R5 are a call's arguments and lost
/// by it, R6 to R9 survive calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    /// The frame pointer: the stack lies below it. Read-only.
    R10 = 10,
}

impl Register {
    fn name(number: u8) -> String {
        if number == Register::R10 as u8 { "fp".into() } else { format!("r{number}") }
    }
}

/// How many bytes a load or store moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Byte,
    Half,
    Word,
    Double,
}

impl Width {
    fn code(self) -> u8 {
        match self {
            Width::Byte => abi::BPF_B,
            Width::Half => abi::BPF_H,
            Width::Word => abi::BPF_W,
            Width::Double => abi::BPF_DW,
        }
    }

    fn name(code: u8) -> &'static str {
        match code & abi::SIZE_MASK {
            abi::BPF_B => "u8",
            abi::BPF_H => "u16",
            abi::BPF_W => "u32",
            _ => "u64",
        }
    }
}

/// When a conditional jump is taken. Comparisons are unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Equal,
    NotEqual,
    Greater,
    Less,
}

impl Condition {
    fn code(self) -> u8 {
        match self {
            Condition::Equal => abi::BPF_JEQ,
            Condition::NotEqual => abi::BPF_JNE,
            Condition::Greater => abi::BPF_JGT,
            Condition::Less => abi::BPF_JLT,
        }
    }

    fn name(code: u8) -> &'static str {
        match code & abi::OPERATION_MASK {
            abi::BPF_JEQ => "==",
            abi::BPF_JNE => "!=",
            abi::BPF_JGT => ">",
            _ => "<",
        }
    }
}

/// A kernel function that a program calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Helper {
    MapLookup,
    RedirectMap,
}

impl Helper {
    fn number(self) -> i32 {
        match self {
            Helper::MapLookup => abi::BPF_FUNC_MAP_LOOKUP_ELEM,
            Helper::RedirectMap => abi::BPF_FUNC_REDIRECT_MAP,
        }
    }

    fn name(number: i32) -> String {
        match number {
            abi::BPF_FUNC_MAP_LOOKUP_ELEM => "map_lookup_elem".into(),
            abi::BPF_FUNC_REDIRECT_MAP => "redirect_map".into(),
            _ => format!("function {number}"),
        }
    }
}

/// One instruction, as the kernel takes it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    code: u8,
    /// Source in the high half, destination in the low.
    registers: u8,
    pub(super) offset: i16,
    immediate: i32,
}

const _: () = assert!(size_of::<Instruction>() == 8);

impl Instruction {
    fn new(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Instruction {
        let registers =
            if cfg!(target_endian = "little") { source << 4 | destination } else { destination << 4 | source };
        Instruction { code, registers, offset, immediate }
    }

    fn destination(&self) -> u8 {
        if cfg!(target_endian = "little") { self.registers & 15 } else { self.registers >> 4 }
    }

    fn source(&self) -> u8 {
        if cfg!(target_endian = "little") { self.registers >> 4 } else { self.registers & 15 }
    }

    pub(super) fn move_immediate(to: Register, value: i32) -> Instruction {
        Instruction::new(abi::BPF_ALU64 | abi::BPF_MOV | abi::BPF_K, to as u8, 0, 0, value)
    }

    pub(super) fn move_register(to: Register, from: Register) -> Instruction {
        Instruction::new(abi::BPF_ALU64 | abi::BPF_MOV | abi::BPF_X, to as u8, from as u8, 0, 0)
    }

    pub(super) fn add_immediate(to: Register, value: i32) -> Instruction {
        Instruction::new(abi::BPF_ALU64 | abi::BPF_ADD | abi::BPF_K, to as u8, 0, 0, value)
    }

    pub(super) fn add_register(to: Register, from: Register) -> Instruction {
        Instruction::new(abi::BPF_ALU64 | abi::BPF_ADD | abi::BPF_X, to as u8, from as u8, 0, 0)
    }

    pub(super) fn and_immediate(to: Register, mask: i32) -> Instruction {
        Instruction::new(abi::BPF_ALU64 | abi::BPF_AND | abi::BPF_K, to as u8, 0, 0, mask)
    }

    /// Turns the low 16 bits from network into host order, and clears the others.
    pub(super) fn from_network_order_16(to: Register) -> Instruction {
        Instruction::new(abi::BPF_ALU | abi::BPF_END | abi::BPF_TO_BE, to as u8, 0, 0, 16)
    }

    /// `to = *(width*)(base + offset)`.
    pub(super) fn load(width: Width, to: Register, base: Register, offset: i16) -> Instruction {
        Instruction::new(abi::BPF_LDX | abi::BPF_MEM | width.code(), to as u8, base as u8, offset, 0)
    }

    /// `*(width*)(base + offset) = from`.
    pub(super) fn store(width: Width, base: Register, offset: i16, from: Register) -> Instruction {
        Instruction::new(abi::BPF_STX | abi::BPF_MEM | width.code(), base as u8, from as u8, offset, 0)
    }

    /// `*(width*)(base + offset) = value`.
    pub(super) fn store_immediate(width: Width, base: Register, offset: i16, value: i32) -> Instruction {
        Instruction::new(abi::BPF_ST | abi::BPF_MEM | width.code(), base as u8, 0, offset, value)
    }

    /// Loads a map by its file descriptor; takes two slots.
    pub(super) fn load_map(to: Register, fd: i32) -> [Instruction; 2] {
        let code = abi::BPF_LD | abi::BPF_IMM | abi::BPF_DW;
        [Instruction::new(code, to as u8, abi::BPF_PSEUDO_MAP_FD, 0, fd), Instruction::new(0, 0, 0, 0, 0)]
    }

    pub(super) fn jump() -> Instruction {
        Instruction::new(abi::BPF_JMP | abi::BPF_JA, 0, 0, 0, 0)
    }

    /// Compares the register's low 32 bits with `value`.
    pub(super) fn jump_if_immediate(register: Register, condition: Condition, value: u32) -> Instruction {
        let code = abi::BPF_JMP32 | condition.code() | abi::BPF_K;
        Instruction::new(code, register as u8, 0, 0, value.cast_signed())
    }

    /// Compares all 64 bits of both registers.
    pub(super) fn jump_if_register(left: Register, condition: Condition, right: Register) -> Instruction {
        Instruction::new(abi::BPF_JMP | condition.code() | abi::BPF_X, left as u8, right as u8, 0, 0)
    }

    /// Compares the whole register with null.
    pub(super) fn jump_if_null(register: Register) -> Instruction {
        Instruction::new(abi::BPF_JMP | abi::BPF_JEQ | abi::BPF_K, register as u8, 0, 0, 0)
    }

    pub(super) fn call(helper: Helper) -> Instruction {
        Instruction::new(abi::BPF_JMP | abi::BPF_CALL, 0, 0, 0, helper.number())
    }

    pub(super) fn exit() -> Instruction {
        Instruction::new(abi::BPF_JMP | abi::BPF_EXIT, 0, 0, 0, 0)
    }

    fn is_immediate(&self) -> bool {
        self.code & abi::BPF_X == 0
    }

    /// The right-hand operand.
    fn operand(&self) -> String {
        if self.is_immediate() { format!("{:#x}", self.immediate) } else { Register::name(self.source()) }
    }

    fn fmt_arithmetic(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = Register::name(self.destination());
        match self.code & abi::OPERATION_MASK {
            abi::BPF_MOV => write!(f, "{to} = {}", self.operand()),
            abi::BPF_ADD if self.is_immediate() => write!(f, "{to} += {}", self.immediate),
            abi::BPF_ADD => write!(f, "{to} += {}", self.operand()),
            abi::BPF_AND => write!(f, "{to} &= {}", self.operand()),
            abi::BPF_END => write!(f, "{to} = be{} {to}", self.immediate),
            _ => write!(f, "arithmetic {:#04x} {to}, {}", self.code, self.operand()),
        }
    }

    fn fmt_jump(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code & abi::OPERATION_MASK {
            abi::BPF_JA => write!(f, "goto {:+}", self.offset),
            abi::BPF_CALL => write!(f, "call {}", Helper::name(self.immediate)),
            abi::BPF_EXIT => write!(f, "exit"),
            _ => {
                let left = Register::name(self.destination());
                write!(f, "if {left} {} {} goto {:+}", Condition::name(self.code), self.operand(), self.offset)
            }
        }
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = Register::name(self.destination());
        let from = Register::name(self.source());
        let width = Width::name(self.code);
        match self.code & abi::CLASS_MASK {
            abi::BPF_LD if self.source() == abi::BPF_PSEUDO_MAP_FD => write!(f, "{to} = map fd {}", self.immediate),
            abi::BPF_LDX => write!(f, "{to} = {width} [{from}{:+}]", self.offset),
            abi::BPF_ST => write!(f, "{width} [{to}{:+}] = {:#x}", self.offset, self.immediate),
            abi::BPF_STX => write!(f, "{width} [{to}{:+}] = {from}", self.offset),
            abi::BPF_ALU | abi::BPF_ALU64 => self.fmt_arithmetic(f),
            abi::BPF_JMP | abi::BPF_JMP32 => self.fmt_jump(f),
            _ => write!(f, "instruction {:#04x}", self.code),
        }
    }
}

impl fmt::Debug for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The program as text, one line an instruction, numbered as the verifier numbers them.
pub(super) fn listing(program: &[Instruction]) -> String {
    let mut text = String::new();
    let mut second_slot = false;
    for (number, instruction) in program.iter().enumerate() {
        if !second_slot {
            text.push_str(&format!("{number:4}: {instruction}\n"));
        }
        second_slot = !second_slot && instruction.code == abi::BPF_LD | abi::BPF_IMM | abi::BPF_DW;
    }
    text
}

#[cfg(all(test, target_endian = "little"))]
mod tests {
    use super::*;

    fn bytes(instruction: Instruction) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[0] = instruction.code;
        bytes[1] = instruction.registers;
        bytes[2..4].copy_from_slice(&instruction.offset.to_le_bytes());
        bytes[4..].copy_from_slice(&instruction.immediate.to_le_bytes());
        bytes
    }

    #[test]
    fn every_instruction_has_its_bytes_and_its_text() {
        use Register::*;
        let table: [(Instruction, [u8; 8], &str); 17] = [
            (Instruction::move_immediate(R0, 2), [0xb7, 0, 0, 0, 2, 0, 0, 0], "r0 = 0x2"),
            (Instruction::move_register(R2, R10), [0xbf, 0xa2, 0, 0, 0, 0, 0, 0], "r2 = fp"),
            (Instruction::add_immediate(R2, -4), [0x07, 2, 0, 0, 0xfc, 0xff, 0xff, 0xff], "r2 += -4"),
            (Instruction::add_register(R4, R5), [0x0f, 0x54, 0, 0, 0, 0, 0, 0], "r4 += r5"),
            (Instruction::and_immediate(R4, 0xff3f), [0x57, 4, 0, 0, 0x3f, 0xff, 0, 0], "r4 &= 0xff3f"),
            (Instruction::from_network_order_16(R4), [0xdc, 4, 0, 0, 16, 0, 0, 0], "r4 = be16 r4"),
            (Instruction::load(Width::Byte, R4, R2, 14), [0x71, 0x24, 14, 0, 0, 0, 0, 0], "r4 = u8 [r2+14]"),
            (Instruction::load(Width::Half, R4, R2, 12), [0x69, 0x24, 12, 0, 0, 0, 0, 0], "r4 = u16 [r2+12]"),
            (Instruction::load(Width::Word, R6, R1, 16), [0x61, 0x16, 16, 0, 0, 0, 0, 0], "r6 = u32 [r1+16]"),
            (Instruction::load(Width::Double, R1, R0, 0), [0x79, 0x01, 0, 0, 0, 0, 0, 0], "r1 = u64 [r0+0]"),
            (Instruction::store(Width::Word, R10, -4, R6), [0x63, 0x6a, 0xfc, 0xff, 0, 0, 0, 0], "u32 [fp-4] = r6"),
            (
                Instruction::store_immediate(Width::Word, R10, -4, 7),
                [0x62, 0x0a, 0xfc, 0xff, 7, 0, 0, 0],
                "u32 [fp-4] = 0x7",
            ),
            (Instruction::jump(), [0x05, 0, 0, 0, 0, 0, 0, 0], "goto +0"),
            (
                Instruction::jump_if_immediate(R4, Condition::NotEqual, 0xe000_0001),
                [0x56, 4, 0, 0, 1, 0, 0, 0xe0],
                "if r4 != 0xe0000001 goto +0",
            ),
            (
                Instruction::jump_if_register(R4, Condition::Greater, R3),
                [0x2d, 0x34, 0, 0, 0, 0, 0, 0],
                "if r4 > r3 goto +0",
            ),
            (Instruction::call(Helper::RedirectMap), [0x85, 0, 0, 0, 51, 0, 0, 0], "call redirect_map"),
            (Instruction::exit(), [0x95, 0, 0, 0, 0, 0, 0, 0], "exit"),
        ];
        for (instruction, expected, text) in table {
            assert_eq!(bytes(instruction), expected, "{text}");
            assert_eq!(instruction.to_string(), text);
        }
    }

    #[test]
    fn a_map_takes_two_slots_and_one_line() {
        let mut program = Instruction::load_map(Register::R1, 9).to_vec();
        assert_eq!(bytes(program[0]), [0x18, 0x11, 0, 0, 9, 0, 0, 0]);
        assert_eq!(bytes(program[1]), [0; 8]);
        program.push(Instruction::exit());
        assert_eq!(listing(&program), "   0: r1 = map fd 9\n   2: exit\n");
    }

    #[test]
    fn null_is_compared_with_all_64_bits() {
        assert_eq!(bytes(Instruction::jump_if_null(Register::R0)), [0x15, 0, 0, 0, 0, 0, 0, 0]);
    }
}
