//! The interface and the stack.

use super::{Check, Cost, Finding, Group, Plan, bad, known, not_applicable, ok, size, warn};
use crate::facts::network::{Coalesced, Network};
use crate::facts::{Facts, Known, value};
use crate::root::{Unread, Why};

/// Drivers that run XDP programs and AF_XDP sockets without a copy, in the kernel as it is published.
const ZERO_COPY: [&str; 9] = ["i40e", "ice", "igb", "igc", "ixgbe", "idpf", "mlx5_core", "stmmac", "virtio_net"];

/// Drivers that run XDP programs, but copy.
const NATIVE: [&str; 12] =
    ["bnxt_en", "ena", "mlx4_en", "nfp", "qede", "sfc", "thunder-nicvf", "tun", "veth", "hv_netvsc", "mvneta", "gve"];

/// The least receive ring that takes a burst while the reader is away for some µs, at 10 Gbit/s.
const RX_RING_MIN: u64 = 512;

/// Packets that a core may have waiting, where they come in bursts.
const BACKLOG_MIN: u64 = 4_096;

/// Headers of IP and UDP.
const HEADER_BYTES: u64 = 28;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "network-link",
        group: Group::Network,
        wants: "the interface is up",
        why: "nothing comes, and nothing goes",
        cost: Cost::Failure,
        source: "kernel documentation, networking/operstates",
        judge: link,
    },
    Check {
        id: "network-driver",
        group: Group::Network,
        wants: "a driver that runs XDP by itself, where AF_XDP is planned",
        why: "generic mode copies each packet, after the kernel has made one of its own of it",
        cost: Cost::Nanoseconds,
        source: "kernel documentation, networking/af_xdp (XDP_SKB, XDP_DRV, XDP_ZEROCOPY); ticktape nic probe asks the kernel",
        judge: driver,
    },
    Check {
        id: "network-mtu",
        group: Group::Network,
        wants: "where AF_XDP is planned, the largest datagram fits the MTU; and that is at most 3506 for veth and virtio_net",
        why: "AF_XDP neither sends nor takes fragments; a larger MTU keeps these drivers from native mode",
        cost: Cost::Failure,
        source: "kernel documentation, bpf/redirect; RFC 791",
        judge: mtu,
    },
    Check {
        id: "network-fragments",
        group: Group::Network,
        wants: "where the kernel's stack is used, the largest datagram fits the MTU",
        why: "the kernel cuts larger ones up: one lost fragment loses the datagram, and many receivers take none",
        cost: Cost::Losses,
        source: "RFC 8900; ip(7), IP_MTU_DISCOVER",
        judge: fragments,
    },
    Check {
        id: "network-spread",
        group: Group::Network,
        wants: "the card's hash spreads packets over the plan's queue alone",
        why: "an AF_XDP socket sees its own queue: what comes by another goes through the kernel, or is lost",
        cost: Cost::Losses,
        source: "kernel documentation, networking/scaling (RSS) and networking/af_xdp; ethtool(8), -X",
        judge: spread,
    },
    Check {
        id: "network-filters",
        group: Group::Network,
        wants: "no filter of the card takes clients' packets past the plan's queue, and those that lead there are in force",
        why: "filters go before the hash: an AF_XDP socket of another queue never sees what they take away",
        cost: Cost::Losses,
        source: "kernel documentation, networking/scaling (accelerated RFS, n-tuple filters); ethtool(8), -N and -K ntuple",
        judge: filters,
    },
    Check {
        id: "network-ring",
        group: Group::Network,
        wants: "a receive ring of 512 slots at least, where the card has them",
        why: "a burst is lost for want of slots before anybody could read it",
        cost: Cost::Losses,
        source: "ethtool(8), -g",
        judge: ring,
    },
    Check {
        id: "network-losses",
        group: Group::Network,
        wants: "nothing was lost at the interface since the start",
        why: "each loss is a repair: a round trip, and all behind it waits",
        cost: Cost::Losses,
        source: "kernel documentation, networking/statistics",
        judge: losses,
    },
    Check {
        id: "network-backlog",
        group: Group::Network,
        wants: "room for 4096 packets at each core, where fewer were not enough since the start: net.core.netdev_max_backlog",
        why: "the kernel drops what goes beyond",
        cost: Cost::Losses,
        source: "kernel documentation, networking/scaling; proc_net(5), softnet_stat",
        judge: backlog,
    },
    Check {
        id: "network-sockets",
        group: Group::Network,
        wants: "no datagram found its socket full since the start",
        why: "whoever reads came too late, or its buffer was too small",
        cost: Cost::Losses,
        source: "kernel documentation, networking/snmp_counter (UdpRcvbufErrors)",
        judge: sockets,
    },
    Check {
        id: "network-buffers",
        group: Group::Network,
        wants: "sockets may have the buffers that they ask for: net.core.rmem_max and wmem_max",
        why: "they get less without a word, and bursts are lost",
        cost: Cost::Losses,
        source: "socket(7), SO_RCVBUF",
        judge: buffers,
    },
    Check {
        id: "network-coalescing",
        group: Group::Network,
        wants: "no coalescing: adaptive-rx off, rx-usecs 0",
        why: "the card holds its interrupt back for so long, to make one for several packets",
        cost: Cost::TensOfMicroseconds,
        source: "ethtool(8), -C; vendors' manuals: up to 96 µs by load (be2net), 18 (bnx2)",
        judge: coalescing,
    },
    Check {
        id: "network-merging",
        group: Group::Network,
        wants: "the card does not merge packets: large-receive-offload off, and rx-gro-hw too where AF_XDP is planned",
        why: "it waits for more of them, and drivers refuse XDP beside either",
        cost: Cost::Microseconds,
        source: "kernel documentation, networking/segmentation-offloads",
        judge: merging,
    },
    Check {
        id: "network-pause",
        group: Group::Network,
        wants: "no flow control: pause frames off",
        why: "one slow receiver on the switch stops this sender, for all its receivers",
        cost: Cost::Milliseconds,
        source: "ethtool(8), -A; IEEE 802.3x",
        judge: pause,
    },
    Check {
        id: "network-busy-polling",
        group: Group::Network,
        wants: "where the kernel polls within calls, interrupts stay off meanwhile: napi_defer_hard_irqs 1 or more, gro_flush_timeout 20 µs or more",
        why: "else each packet still raises its interrupt, beside the polling",
        cost: Cost::Microseconds,
        source: "kernel documentation, networking/napi (software IRQ coalescing, busy polling)",
        judge: busy_polling,
    },
    Check {
        id: "network-irq-suspension",
        group: Group::Network,
        wants: "no queue keeps its interrupts off for a program that polls by epoll: irq-suspend-timeout 0",
        why: "no stage polls by epoll; while another program does, on that queue, nobody else's packets are seen for as long",
        cost: Cost::Milliseconds,
        source: "kernel documentation, networking/napi (IRQ suspension); kernel commit 8a6de2627fd3",
        judge: irq_suspension,
    },
    Check {
        id: "network-bpf-jit",
        group: Group::Network,
        wants: "BPF programs are compiled, where AF_XDP is planned",
        why: "else an interpreter runs the program for each packet",
        cost: Cost::Nanoseconds,
        source: "kernel documentation, sysctl/net (bpf_jit_enable)",
        judge: bpf_jit,
    },
    Check {
        id: "network-reverse-path",
        group: Group::Network,
        wants: "where groups are received, rp_filter is not strict (1)",
        why: "packets whose sender would not be reached by this interface are dropped without a word",
        cost: Cost::Losses,
        source: "kernel documentation, networking/ip-sysctl (rp_filter)",
        judge: reverse_path,
    },
    Check {
        id: "network-memberships",
        group: Group::Network,
        wants: "a socket may be in 20 groups at least",
        why: "joining one more is refused",
        cost: Cost::Failure,
        source: "kernel documentation, networking/ip-sysctl (igmp_max_memberships)",
        judge: memberships,
    },
    Check {
        id: "network-igmp",
        group: Group::Network,
        wants: "where groups are received, IGMP version 2 or 3",
        why: "version 1 knows no leaving, and an old querier on the network brings everybody down to it",
        cost: Cost::Losses,
        source: "RFC 3376 (compatibility with older queriers); kernel documentation, networking/ip-sysctl (force_igmp_version)",
        judge: igmp,
    },
    Check {
        id: "network-link-losses",
        group: Group::Network,
        wants: "the link came up once, and stayed",
        why: "whatever was on its way is lost, and the switch learns anew",
        cost: Cost::Losses,
        source: "kernel documentation, ABI (carrier_down_count)",
        judge: link_losses,
    },
];

/// The plan's interface; and whether a device is behind it.
fn with(facts: &Facts, judge: impl FnOnce(&Network) -> Known<Finding>) -> Known<Finding> {
    match &facts.network {
        None => not_applicable("the plan has no interface"),
        Some(network) => judge(network),
    }
}

fn with_card(facts: &Facts, judge: impl FnOnce(&Network) -> Known<Finding>) -> Known<Finding> {
    with(facts, |network| match &network.driver {
        Err(unread) if unread.is_missing() => not_applicable(format!("no card is behind {}", network.name)),
        _ => judge(network),
    })
}

/// The interfaces that feeds leave by: where that is not known, that of the clients stands for them.
pub(crate) fn feeds<'a>(facts: &'a Facts, plan: &Plan) -> Vec<&'a Network> {
    match &plan.feed_interfaces {
        _ if !plan.is_multicast => Vec::new(),
        None => facts.network.iter().collect(),
        Some(names) => {
            facts.network.iter().chain(&facts.feeds).filter(|network| names.contains(&network.name)).collect()
        }
    }
}

/// What is worst of several interfaces, by name where there are several.
fn each(all: &[&Network], judge: impl Fn(&Network) -> Known<Finding>) -> Known<Finding> {
    let mut findings = Vec::new();
    for network in all {
        let mut finding = judge(network)?;
        if all.len() > 1 {
            finding.read = format!("{}: {}", network.name, finding.read);
        }
        findings.push(finding);
    }
    // The first of those that are as bad.
    let worst = findings.into_iter().rev().max_by_key(|finding| finding.verdict);
    worst.map_or_else(|| not_applicable("the plan has no interface"), Ok)
}

fn with_feeds(facts: &Facts, plan: &Plan, judge: impl Fn(&Network) -> Known<Finding>) -> Known<Finding> {
    match feeds(facts, plan) {
        _ if !plan.is_multicast => not_applicable("no groups in the plan"),
        feeds if feeds.is_empty() && plan.feed_interfaces.is_some() => not_applicable("its feeds stay within this box"),
        feeds => each(&feeds, judge),
    }
}

fn link(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let clients: Vec<&Network> = facts.network.iter().collect();
    let others = feeds(facts, plan).into_iter().filter(|feed| clients.iter().all(|known| known.name != feed.name));
    let all: Vec<&Network> = clients.iter().copied().chain(others).collect();
    each(&all, |network| match known(&network.state)?.as_str() {
        "up" => ok(format!("{} is up", network.name)),
        // Loopback and tunnels don't know.
        "unknown" => ok(format!("{} is up as far as it knows", network.name)),
        state => bad(
            format!("{} is {state}", network.name),
            format!("ip link set {} up; look at cable and switch", network.name),
        ),
    })
}

fn driver(facts: &Facts, plan: &Plan) -> Known<Finding> {
    if let Some(name) = &plan.bypass_lacking {
        return warn(
            format!("there is no interface {name} in this box: kernel UDP is used"),
            "the right name in [xdp] interface, or nic = \"udp\"; with nic = \"xdp\" it would not start",
        );
    }
    with(facts, |network| {
        if plan.bypass_queue.is_none() {
            return not_applicable("no AF_XDP is planned");
        }
        let name = match &network.driver {
            Err(unread) if unread.is_missing() => {
                return warn(
                    format!("{}: no card", network.name),
                    "generic mode is all that works there; ticktape nic probe tells",
                );
            }
            name => known(name)?.as_str(),
        };
        match name {
            name if ZERO_COPY.contains(&name) => ok(format!("{name}: without a copy, where card and kernel have it")),
            name if NATIVE.contains(&name) => ok(format!("{name}: native, with a copy")),
            name => warn(
                format!("{name}: generic mode, as far as is known"),
                "ticktape nic probe asks the kernel; a card of another make, or nic = \"udp\"",
            ),
        }
    })
}

/// The MTU, and what to do where the plan's largest datagram is beyond it.
fn beyond_mtu(network: &Network, plan: &Plan) -> Known<(String, Option<String>)> {
    let mtu = *known(&network.mtu)?;
    let wanted = plan.datagram_bytes_max + HEADER_BYTES;
    let fits = mtu.saturating_sub(HEADER_BYTES);
    let fix = format!("datagram_bytes_max = {fits}, or ip link set {} mtu {wanted}", network.name);
    Ok((format!("{mtu}, datagrams take {wanted} with their headers"), (mtu < wanted).then_some(fix)))
}

fn mtu(facts: &Facts, plan: &Plan) -> Known<Finding> {
    with(facts, |network| {
        if plan.bypass_queue.is_none() {
            return not_applicable("no AF_XDP is planned");
        }
        let (read, fix) = beyond_mtu(network, plan)?;
        if let Some(fix) = fix {
            return bad(read, fix);
        }
        let is_limited = network.driver.as_ref().is_ok_and(|driver| matches!(driver.as_str(), "veth" | "virtio_net"));
        if is_limited && *known(&network.mtu)? > 3_506 {
            return warn(read, format!("ip link set {} mtu 3506, or generic mode is used", network.name));
        }
        ok(read)
    })
}

fn fragments(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let mut all = feeds(facts, plan);
    match &facts.network {
        // What goes past the kernel is never cut in pieces; feeds go through it, and may have an interface of their own.
        Some(clients) if plan.bypass_queue.is_some() => all.retain(|feed| feed.name != clients.name),
        Some(clients) if all.iter().all(|feed| feed.name != clients.name) => all.insert(0, clients),
        _ => {}
    }
    if all.is_empty() && plan.bypass_queue.is_some() {
        return not_applicable("AF_XDP is planned");
    }
    each(&all, |network| match beyond_mtu(network, plan)? {
        (read, None) => ok(read),
        (read, Some(fix)) => warn(read, fix),
    })
}

fn spread(facts: &Facts, plan: &Plan) -> Known<Finding> {
    with_card(facts, |network| {
        let Some(queue) = plan.bypass_queue else { return not_applicable("no AF_XDP is planned") };
        if known(&network.rx_queues)? == &1 {
            return if queue == 0 { ok("one queue") } else { bad("one queue, 0", "queue = 0 in [xdp]") };
        }
        if leads_to(&network.filtered_to(plan.port)?, queue) {
            return not_applicable(format!("a filter takes port {} to queue {queue}", plan.port));
        }
        let queues = network.spread_over()?;
        let read = format!("over queues {}, the plan's is {queue}", crate::pin::list(&queues));
        if queues == [queue as usize] {
            return ok(read);
        }
        let name = &network.name;
        bad(
            read,
            format!(
                "ethtool -X {name} start {queue} equal 1; or ethtool -N {name} flow-type udp4 dst-port PORT action {queue}"
            ),
        )
    })
}

/// Whether filters take packets to that queue, and to no other.
fn leads_to(filters: &[String], queue: u32) -> bool {
    let there = format!("Direct to queue {queue}");
    !filters.is_empty() && filters.iter().all(|action| *action == there)
}

fn filters(facts: &Facts, plan: &Plan) -> Known<Finding> {
    with_card(facts, |network| {
        let Some(queue) = plan.bypass_queue else { return not_applicable("no AF_XDP is planned") };
        let (port, name) = (plan.port, &network.name);
        let filters = network.filtered_to(port)?;
        if filters.is_empty() {
            return ok(format!("none for port {port}: the hash decides"));
        }
        let read = format!("port {port}: {}", filters.join(", ").to_lowercase());
        if !leads_to(&filters, queue) {
            return bad(read, format!("ethtool -n {name} lists them; ethtool -N {name} delete NUMBER"));
        }
        // A card that has no such switch has them in force.
        if network.feature("ntuple-filters") == Ok(false) {
            return warn(format!("{read}, but not in force"), format!("ethtool -K {name} ntuple on"));
        }
        ok(read)
    })
}

fn ring(facts: &Facts, _: &Plan) -> Known<Finding> {
    with_card(facts, |network| {
        let (max, now) = network.rx_ring()?;
        let read = format!("{now} of {max} slots");
        if now >= RX_RING_MIN.min(max) {
            ok(read)
        } else {
            warn(read, format!("ethtool -G {} rx {}", network.name, max.min(1_024)))
        }
    })
}

fn losses(facts: &Facts, _: &Plan) -> Known<Finding> {
    with(facts, |network| {
        let mut lost = Vec::new();
        for (reason, count) in &network.losses {
            if *known(count)? > 0 {
                lost.push(format!("{reason} {}", known(count)?));
            }
        }
        if lost.is_empty() {
            return ok("none");
        }
        warn(
            lost.join(", "),
            format!("ethtool -S {} names the reasons; larger rings, and a reader that is not kept away", network.name),
        )
    })
}

fn backlog(facts: &Facts, _: &Plan) -> Known<Finding> {
    with(facts, |network| {
        let (dropped, squeezed) = *known(&network.stack.backlog)?;
        if dropped == 0 {
            return ok(format!("none dropped; {squeezed} turns were cut short"));
        }
        // When they were dropped is not told, so where there is room now the count is history.
        let max = *known(&network.stack.backlog_max)?;
        let read = format!("room for {max}; {dropped} dropped since the start");
        if max >= BACKLOG_MIN {
            return ok(read);
        }
        warn(read, format!("sysctl net.core.netdev_max_backlog={BACKLOG_MIN}; less on the cores of the interrupts"))
    })
}

fn sockets(facts: &Facts, _: &Plan) -> Known<Finding> {
    with(facts, |network| match *known(&network.stack.socket_drops)? {
        0 => ok("none"),
        dropped => warn(
            format!("{dropped} dropped, of any program"),
            "ss -uamp shows whose; more buffer, or a reader that is not kept away",
        ),
    })
}

fn buffers(facts: &Facts, plan: &Plan) -> Known<Finding> {
    with(facts, |network| {
        let (rx, tx) = (*known(&network.stack.rx_buffer_bytes_max)?, *known(&network.stack.tx_buffer_bytes_max)?);
        let wanted = plan.socket_buffer_bytes;
        let read = format!("receive {}, send {}, {} are asked for", size(rx), size(tx), size(wanted));
        if rx.min(tx) >= wanted {
            return ok(read);
        }
        if facts.limits.has("CAP_NET_ADMIN")? {
            return ok(format!("{read}; CAP_NET_ADMIN goes beyond"));
        }
        warn(read, format!("sysctl net.core.rmem_max={wanted} net.core.wmem_max={wanted}"))
    })
}

fn coalescing(facts: &Facts, _: &Plan) -> Known<Finding> {
    with_card(facts, |network| {
        let Coalesced { is_adaptive, us, frames } = network.coalesced()?;
        let shown = |number: Option<u64>| number.map_or("n/a".to_owned(), |number| number.to_string());
        let mut read = format!("adaptive-rx {}, rx-usecs {}", on(is_adaptive), shown(us));
        // Of one packet the interrupt comes at once.
        if frames > Some(1) {
            read += &format!(", rx-frames {}", shown(frames));
        }
        if is_adaptive || us > Some(0) {
            return warn(read, format!("ethtool -C {} adaptive-rx off rx-usecs 0", network.name));
        }
        // Without a time to end it, the last packet of a burst would wait for others.
        if frames > Some(1) {
            return warn(read, format!("ethtool -C {} rx-frames 1", network.name));
        }
        ok(read)
    })
}

fn merging(facts: &Facts, plan: &Plan) -> Known<Finding> {
    with_card(facts, |network| {
        let features = known(&network.features)?;
        let lro = network.feature("large-receive-offload")?;
        // Older kernels don't know the second. Beside the kernel's stack it merges what the stack would merge.
        let hardware = value(features, "rx-gro-hw").is_some() && network.feature("rx-gro-hw")?;
        let read = format!("large-receive-offload {}, rx-gro-hw {}", on(lro), on(hardware));
        if lro || hardware && plan.bypass_queue.is_some() {
            let is_fixed = |feature| value(features, feature).is_some_and(|value| value.ends_with("on [fixed]"));
            let fix = if is_fixed("large-receive-offload") || is_fixed("rx-gro-hw") {
                "the driver, or the host of a guest, fixes it: generic mode is what remains".to_owned()
            } else {
                format!("ethtool -K {} lro off rx-gro-hw off", network.name)
            };
            return warn(read, fix);
        }
        ok(read)
    })
}

fn on(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

fn pause(facts: &Facts, _: &Plan) -> Known<Finding> {
    with_card(facts, |network| {
        if let Err(Unread { why: Why::Failed(error), .. }) = &network.pause
            && error.ends_with("Operation not supported")
        {
            return not_applicable(format!("{} has none", network.name));
        }
        let (rx, tx) = network.pauses()?;
        if rx || tx {
            return warn(
                format!("RX {}, TX {}", on(rx), on(tx)),
                format!("ethtool -A {} autoneg off rx off tx off", network.name),
            );
        }
        ok("off")
    })
}

fn busy_polling(facts: &Facts, plan: &Plan) -> Known<Finding> {
    with_card(facts, |network| {
        if !plan.is_busy_polling {
            return not_applicable("the plan has no busy polling");
        }
        let (defer, timeout) = (*known(&network.defer_hard_irqs)?, *known(&network.flush_timeout_ns)?);
        let read = format!("napi_defer_hard_irqs {defer}, gro_flush_timeout {timeout} ns");
        if defer >= 1 && timeout >= 20_000 {
            return ok(read);
        }
        let at = format!("/sys/class/net/{}", network.name);
        warn(read, format!("echo 2 > {at}/napi_defer_hard_irqs; echo 200000 > {at}/gro_flush_timeout"))
    })
}

fn irq_suspension(facts: &Facts, _: &Plan) -> Known<Finding> {
    with_card(facts, |network| match &network.suspend_timeout_ns {
        Ok(0) => ok("0"),
        Ok(ns) => warn(
            format!("up to {ns} ns"),
            "ynl --family netdev --do napi-set --json '{\"id\": ID, \"irq-suspend-timeout\": 0}', for each ID of napi-get",
        ),
        Err(unread) if unread.is_missing() => not_applicable("the kernel has none"),
        Err(unread) => Err(unread.clone()),
    })
}

fn bpf_jit(facts: &Facts, plan: &Plan) -> Known<Finding> {
    with(facts, |network| {
        if plan.bypass_queue.is_none() {
            return not_applicable("no AF_XDP is planned");
        }
        match &network.stack.bpf_jit {
            Ok(0) => warn("interpreted", "sysctl net.core.bpf_jit_enable=1"),
            Ok(_) => ok("compiled"),
            Err(unread) => Err(unread.clone()),
        }
    })
}

fn reverse_path(facts: &Facts, plan: &Plan) -> Known<Finding> {
    with_feeds(facts, plan, |network| match *known(&network.reverse_path)? {
        // The larger one of the interface's and of all interfaces' counts, and 2 is loose. With slashes, as there are dots in names of VLANs.
        1 => warn("1, strict", format!("sysctl net/ipv4/conf/{}/rp_filter=2", network.name)),
        value => ok(value.to_string()),
    })
}

fn memberships(facts: &Facts, plan: &Plan) -> Known<Finding> {
    with_feeds(facts, plan, |network| match *known(&network.stack.memberships_max)? {
        groups @ 20.. => ok(groups.to_string()),
        groups => warn(groups.to_string(), "sysctl net.ipv4.igmp_max_memberships=20"),
    })
}

fn igmp(facts: &Facts, plan: &Plan) -> Known<Finding> {
    with_feeds(facts, plan, |network| match known(&network.igmp)?.as_str() {
        "V1" => warn(
            "V1",
            format!(
                "sysctl net/ipv4/conf/{}/force_igmp_version=0, and no querier of version 1 on the network",
                network.name
            ),
        ),
        version => ok(version),
    })
}

fn link_losses(facts: &Facts, _: &Plan) -> Known<Finding> {
    with_card(facts, |network| match *known(&network.link_losses)? {
        // It counts as down before it first came up.
        times @ 0..=2 => ok(format!("times down: {times}")),
        times => warn(format!("times down since the start: {times}"), "look at cable, transceiver and switch"),
    })
}
