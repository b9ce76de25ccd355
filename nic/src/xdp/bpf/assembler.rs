//! Strings instructions together and resolves labels to jump offsets.

use super::instruction::{Condition, Helper, Instruction, Register};

/// A place in the program that jumps lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// Collects a program. Jumps lead forward only, so that what it collects always ends.
#[derive(Default)]
pub(super) struct Assembler {
    instructions: Vec<Instruction>,
    /// Where each label stands, once it is placed.
    places: Vec<Option<usize>>,
    /// Jumps to be resolved: instruction and label.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    pub(super) fn new() -> Assembler {
        Assembler::default()
    }

    /// A label, to be placed later.
    pub(super) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The label stands before the next instruction.
    pub(super) fn place(&mut self, label: Label) {
        let place = &mut self.places[label.0];
        assert!(place.is_none(), "a label is placed once");
        *place = Some(self.instructions.len());
    }

    /// Whether a jump leads to the label.
    pub(super) fn is_wanted(&self, label: Label) -> bool {
        self.jumps.iter().any(|(_, to)| *to == label)
    }

    pub(super) fn push(&mut self, instruction: Instruction) {
        self.instructions.push(instruction);
    }

    pub(super) fn load_map(&mut self, to: Register, fd: i32) {
        self.instructions.extend(Instruction::load_map(to, fd));
    }

    pub(super) fn call(&mut self, helper: Helper) {
        self.push(Instruction::call(helper));
    }

    pub(super) fn jump(&mut self, to: Label) {
        self.push_jump(Instruction::jump(), to);
    }

    pub(super) fn jump_if(&mut self, register: Register, condition: Condition, value: u32, to: Label) {
        self.push_jump(Instruction::jump_if_immediate(register, condition, value), to);
    }

    pub(super) fn jump_if_register(&mut self, left: Register, condition: Condition, right: Register, to: Label) {
        self.push_jump(Instruction::jump_if_register(left, condition, right), to);
    }

    pub(super) fn jump_if_null(&mut self, register: Register, to: Label) {
        self.push_jump(Instruction::jump_if_null(register), to);
    }

    fn push_jump(&mut self, instruction: Instruction, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.push(instruction);
    }

    /// The program, with every jump resolved.
    ///
    /// # Panics
    /// When a jump leads to a label that is not placed, back, or beyond 32767 instructions.
    pub(super) fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let place = self.places[label.0].expect("every label that is jumped to is placed");
            assert!(at < place && place < self.instructions.len(), "a jump from {at} to {place}");
            self.instructions[at].offset = i16::try_from(place - at - 1).expect("a jump within reach");
        }
        self.instructions
    }
}

#[cfg(test)]
mod tests {
    use super::super::instruction::listing;
    use super::*;

    #[test]
    fn jumps_count_from_the_instruction_after_them() {
        let mut assembler = Assembler::new();
        let (near, far) = (assembler.label(), assembler.label());
        assembler.jump_if(Register::R1, Condition::Equal, 5, far);
        assembler.jump(near);
        assembler.load_map(Register::R1, 3);
        assembler.place(near);
        assembler.jump_if_register(Register::R1, Condition::Less, Register::R2, far);
        assembler.jump_if_null(Register::R0, far);
        assembler.place(far);
        assembler.push(Instruction::exit());
        let text = listing(&assembler.finish());
        assert_eq!(
            text,
            "   0: if r1 == 0x5 goto +5\n   1: goto +2\n   2: r1 = map fd 3\n   4: if r1 < r2 goto +1\n   \
             5: if r0 == 0x0 goto +0\n   6: exit\n"
        );
    }

    #[test]
    #[should_panic(expected = "is placed")]
    fn a_jump_to_nowhere_is_a_bug() {
        let mut assembler = Assembler::new();
        let nowhere = assembler.label();
        assembler.jump(nowhere);
        assembler.finish();
    }

    #[test]
    #[should_panic(expected = "a jump from 1 to 0")]
    fn a_jump_back_is_a_bug() {
        let mut assembler = Assembler::new();
        let start = assembler.label();
        assembler.place(start);
        assembler.push(Instruction::exit());
        assembler.jump(start);
        assembler.finish();
    }
}
