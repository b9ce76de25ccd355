//! The program itself, instruction by instruction.
//!
//! ```text
//! bounds, [one VLAN tag], IPv4 ─► version, header length ─► UDP ─► no fragment ─► lengths ─► port ─► address
//!   ─► redirect to the slot of the receive queue ─► count "redirected"
//! any other way out ─► count its reason ─► pass to the kernel
//! ```
//!
//! What matches runs straight down; what leaves jumps forward, so that the program always ends. Fields are compared in network
//! order, as they are loaded. Every load follows a compare of its end with the frame's: the verifier insists.

use super::abi;
use super::assembler::{Assembler, Label};
use super::counters::{Reason, unserved_slot};
use super::filter::Addresses;
use super::instruction::{Condition, Helper, Instruction, Register, Width};

/// The context, until the first call.
const CONTEXT: Register = Register::R1;
/// The frame; once a tag is skipped, 4 bytes into it, so that the offsets below hold for both.
const FRAME: Register = Register::R2;
const FRAME_END: Register = Register::R3;
/// What was loaded last.
const VALUE: Register = Register::R4;
const LIMIT: Register = Register::R5;
/// The receive queue; survives calls.
const QUEUE: Register = Register::R6;

const ETHERNET_BYTES: i32 = 14;
const TAG_BYTES: i32 = 4;
const IPV4_BYTES: i32 = 20;
const UDP_BYTES: i32 = 8;

const ETHERTYPE: i16 = 12;
const TAGGED_ETHERTYPE: i16 = 16;
const IP_VERSION: i16 = 14;
const IP_LENGTH: i16 = 16;
const IP_FRAGMENT: i16 = 20;
const IP_PROTOCOL: i16 = 23;
const IP_DESTINATION: i16 = 30;
const UDP_DESTINATION: i16 = 36;

const IPV4: u32 = network_16(0x0800);
const VLAN: u32 = network_16(0x8100);
/// The outer tag of two (802.1ad).
const SERVICE_VLAN: u32 = network_16(0x88a8);
/// "More fragments", or an offset.
const FRAGMENT_MASK: u32 = network_16(0x3fff);
const UDP: u32 = 17;

/// The map key on the stack.
const KEY: i16 = -4;

/// A 16-bit field as a load delivers it.
const fn network_16(value: u16) -> u32 {
    value.to_be() as u32
}

/// The maps that the program refers to, by file descriptor.
#[derive(Clone, Copy)]
pub(super) struct MapFds {
    pub sockets: i32,
    pub counters: i32,
}

/// The ways out.
struct Exits {
    not_ipv4: Label,
    not_this_ethertype: Label,
    other_version: Label,
    not_udp: Label,
    fragment: Label,
    short: Label,
    other_port: Label,
    other_address: Label,
    no_socket: Label,
}

/// Emits the program for checked rules, over queues 0 to `queues - 1`.
pub(super) fn emit(rules: &[(u16, Addresses)], allow_vlan: bool, queues: u32, maps: MapFds) -> Vec<Instruction> {
    let mut code = Assembler::new();
    let exits = Exits {
        not_ipv4: code.label(),
        not_this_ethertype: code.label(),
        other_version: code.label(),
        not_udp: code.label(),
        fragment: code.label(),
        short: code.label(),
        other_port: code.label(),
        other_address: code.label(),
        no_socket: code.label(),
    };
    ethernet(&mut code, &exits, allow_vlan);
    ipv4(&mut code, &exits);
    destination(&mut code, &exits, rules);
    redirect(&mut code, &exits, maps);
    leave(&mut code, &exits, queues, maps);
    code.finish()
}

/// Jumps unless the frame holds `bytes` from FRAME on.
fn require(code: &mut Assembler, bytes: i32, otherwise: Label) {
    code.push(Instruction::move_register(LIMIT, FRAME));
    code.push(Instruction::add_immediate(LIMIT, bytes));
    code.jump_if_register(LIMIT, Condition::Greater, FRAME_END, otherwise);
}

fn ethernet(code: &mut Assembler, exits: &Exits, allow_vlan: bool) {
    code.push(Instruction::load(Width::Word, FRAME, CONTEXT, abi::XDP_MD_DATA));
    code.push(Instruction::load(Width::Word, FRAME_END, CONTEXT, abi::XDP_MD_DATA_END));
    require(code, ETHERNET_BYTES, exits.short);
    code.push(Instruction::load(Width::Half, VALUE, FRAME, ETHERTYPE));
    if allow_vlan {
        let untagged = code.label();
        code.jump_if(VALUE, Condition::NotEqual, VLAN, untagged);
        require(code, ETHERNET_BYTES + TAG_BYTES, exits.short);
        code.push(Instruction::load(Width::Half, VALUE, FRAME, TAGGED_ETHERTYPE));
        code.push(Instruction::add_immediate(FRAME, TAG_BYTES));
        code.place(untagged);
    }
    code.jump_if(VALUE, Condition::NotEqual, IPV4, exits.not_this_ethertype);
}

fn ipv4(code: &mut Assembler, exits: &Exits) {
    require(code, ETHERNET_BYTES + IPV4_BYTES, exits.short);
    code.push(Instruction::load(Width::Byte, VALUE, FRAME, IP_VERSION));
    code.jump_if(VALUE, Condition::NotEqual, 0x45, exits.other_version);
    code.push(Instruction::load(Width::Byte, VALUE, FRAME, IP_PROTOCOL));
    code.jump_if(VALUE, Condition::NotEqual, UDP, exits.not_udp);
    code.push(Instruction::load(Width::Half, VALUE, FRAME, IP_FRAGMENT));
    code.push(Instruction::and_immediate(VALUE, FRAGMENT_MASK.cast_signed()));
    code.jump_if(VALUE, Condition::NotEqual, 0, exits.fragment);
    code.push(Instruction::load(Width::Half, VALUE, FRAME, IP_LENGTH));
    code.push(Instruction::from_network_order_16(VALUE));
    code.jump_if(VALUE, Condition::Less, (IPV4_BYTES + UDP_BYTES).cast_unsigned(), exits.short);
    // The end that the IP length declares. Frames may be longer: Ethernet pads short ones.
    code.push(Instruction::move_register(LIMIT, FRAME));
    code.push(Instruction::add_immediate(LIMIT, ETHERNET_BYTES));
    code.push(Instruction::add_register(LIMIT, VALUE));
    code.jump_if_register(LIMIT, Condition::Greater, FRAME_END, exits.short);
    // Implied by the two above, but the verifier wants constants.
    require(code, ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES, exits.short);
}

/// Falls through where a rule is met.
fn destination(code: &mut Assembler, exits: &Exits, rules: &[(u16, Addresses)]) {
    let matched = code.label();
    code.push(Instruction::load(Width::Half, VALUE, FRAME, UDP_DESTINATION));
    let (last_rule, rules) = rules.split_last().expect("a filter has rules");
    for (port, addresses) in rules {
        match addresses {
            Addresses::Any => code.jump_if(VALUE, Condition::Equal, network_16(*port), matched),
            Addresses::These(these) => {
                let next_port = code.label();
                code.jump_if(VALUE, Condition::NotEqual, network_16(*port), next_port);
                destination_address(code, exits, these, matched);
                code.jump(matched);
                code.place(next_port);
            }
        }
    }
    let (port, addresses) = last_rule;
    code.jump_if(VALUE, Condition::NotEqual, network_16(*port), exits.other_port);
    if let Addresses::These(these) = addresses {
        destination_address(code, exits, these, matched);
    }
    code.place(matched);
}

/// Falls through or goes to `matched` where the address is among these.
fn destination_address(code: &mut Assembler, exits: &Exits, these: &[std::net::Ipv4Addr], matched: Label) {
    code.push(Instruction::load(Width::Word, VALUE, FRAME, IP_DESTINATION));
    let (last, others) = these.split_last().expect("a port of a filter has addresses");
    for address in others {
        code.jump_if(VALUE, Condition::Equal, u32::from(*address).to_be(), matched);
    }
    code.jump_if(VALUE, Condition::NotEqual, u32::from(*last).to_be(), exits.other_address);
}

/// Redirects; an empty slot says so by its verdict.
fn redirect(code: &mut Assembler, exits: &Exits, maps: MapFds) {
    code.push(Instruction::load(Width::Word, QUEUE, CONTEXT, abi::XDP_MD_RX_QUEUE_INDEX));
    code.load_map(Register::R1, maps.sockets);
    code.push(Instruction::move_register(Register::R2, QUEUE));
    code.push(Instruction::move_immediate(Register::R3, abi::XDP_PASS.cast_signed()));
    code.call(Helper::RedirectMap);
    code.jump_if(Register::R0, Condition::NotEqual, abi::XDP_REDIRECT, exits.no_socket);
    code.push(Instruction::store_immediate(Width::Word, Register::R10, KEY, Reason::Redirected as i32));
    count_and_exit(code, maps, abi::XDP_REDIRECT);
}

/// All that ends with "pass".
fn leave(code: &mut Assembler, exits: &Exits, queues: u32, maps: MapFds) {
    let count = code.label();

    // Not 0x45: another version, or options (0x46 to 0x4f), or a header too short to be one.
    code.place(exits.other_version);
    code.jump_if(VALUE, Condition::Less, 0x40, exits.not_ipv4);
    code.jump_if(VALUE, Condition::Greater, 0x4f, exits.not_ipv4);
    code.jump_if(VALUE, Condition::Less, 0x45, exits.short);
    code.push(Instruction::load(Width::Byte, VALUE, FRAME, IP_PROTOCOL));
    code.jump_if(VALUE, Condition::NotEqual, UDP, exits.not_udp);
    pass(code, Reason::IpOptions, count);

    let vlan = code.label();
    code.place(exits.not_this_ethertype);
    code.jump_if(VALUE, Condition::Equal, VLAN, vlan);
    code.jump_if(VALUE, Condition::Equal, SERVICE_VLAN, vlan);
    for (label, reason) in [
        (exits.not_ipv4, Reason::NotIpv4),
        (vlan, Reason::Vlan),
        (exits.not_udp, Reason::NotUdp),
        (exits.fragment, Reason::Fragment),
        (exits.short, Reason::Short),
        (exits.other_port, Reason::OtherPort),
        (exits.other_address, Reason::OtherAddress),
    ] {
        // The verifier refuses what nothing leads to: "other address", where every rule takes any.
        if code.is_wanted(label) {
            code.place(label);
            pass(code, reason, count);
        }
    }

    let known_queue = code.label();
    code.place(exits.no_socket);
    code.jump_if(QUEUE, Condition::Less, queues, known_queue);
    code.push(Instruction::move_immediate(QUEUE, queues.cast_signed()));
    code.place(known_queue);
    code.push(Instruction::add_immediate(QUEUE, unserved_slot(0).cast_signed()));
    code.push(Instruction::store(Width::Word, Register::R10, KEY, QUEUE));

    code.place(count);
    count_and_exit(code, maps, abi::XDP_PASS);
}

fn pass(code: &mut Assembler, reason: Reason, count: Label) {
    code.push(Instruction::store_immediate(Width::Word, Register::R10, KEY, reason as i32));
    code.jump(count);
}

/// Adds one to the counter under the key on the stack. The counters are one set a core, and programs of one core don't
/// interrupt each other, so a plain addition does.
fn count_and_exit(code: &mut Assembler, maps: MapFds, verdict: u32) {
    let exit = code.label();
    code.load_map(Register::R1, maps.counters);
    code.push(Instruction::move_register(Register::R2, Register::R10));
    code.push(Instruction::add_immediate(Register::R2, i32::from(KEY)));
    code.call(Helper::MapLookup);
    code.jump_if_null(Register::R0, exit);
    code.push(Instruction::load(Width::Double, Register::R1, Register::R0, 0));
    code.push(Instruction::add_immediate(Register::R1, 1));
    code.push(Instruction::store(Width::Double, Register::R0, 0, Register::R1));
    code.place(exit);
    code.push(Instruction::move_immediate(Register::R0, verdict.cast_signed()));
    code.push(Instruction::exit());
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::filter::RULES_MAX;
    use super::super::instruction::listing;
    use super::*;

    const MAPS: MapFds = MapFds { sockets: 7, counters: 8 };

    #[test]
    fn the_listing_shows_what_is_compared() {
        let address = Ipv4Addr::new(239, 1, 2, 3);
        let program = emit(&[(0x1234, Addresses::These(vec![address]))], false, 4, MAPS);
        let text = listing(&program);
        for part in ["r4 != 0x8 ", "r4 != 0x45 ", "r4 != 0x3412 ", "r4 != 0x30201ef ", "call redirect_map", "map fd 8"]
        {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        assert!(!emit(&[(1, Addresses::Any)], false, 1, MAPS).is_empty());
    }

    #[test]
    fn a_tag_costs_its_instructions_only_where_it_is_allowed() {
        let without = emit(&[(1, Addresses::Any)], false, 1, MAPS).len();
        assert_eq!(emit(&[(1, Addresses::Any)], true, 1, MAPS).len(), without + 6);
    }

    #[test]
    fn the_largest_filter_is_a_small_program() {
        let rules: Vec<_> =
            (1..=RULES_MAX as u16).map(|port| (port, Addresses::These(vec![Ipv4Addr::LOCALHOST]))).collect();
        assert!(emit(&rules, true, 1024, MAPS).len() < 200);
    }
}
