//! Ethernet frames, as they come from a wire.

use std::net::SocketAddrV4;

use ticktape_nic::packet::{Checksum, Headers, MacAddr, PacketError, Template, Verify, parse};

use super::Seeds;

pub fn run(data: &[u8]) -> bool {
    let [full, tolerant, all] = [Verify::Full, Verify::FullOrPartial, Verify::Report].map(|verify| parse(data, verify));
    match all {
        Err(reason) => {
            // What is no datagram is none for anybody.
            assert!(!matches!(reason, PacketError::UdpChecksum | PacketError::UdpChecksumPartial));
            assert_eq!((full, tolerant), (all, all));
        }
        Ok(packet) => {
            let (wanted_full, wanted_tolerant) = match packet.checksum {
                Checksum::Absent | Checksum::Full => (all, all),
                Checksum::Partial => (Err(PacketError::UdpChecksumPartial), all),
                Checksum::Wrong => (Err(PacketError::UdpChecksum), Err(PacketError::UdpChecksum)),
            };
            assert_eq!((full, tolerant), (wanted_full, wanted_tolerant));
        }
    }
    let Ok(packet) = full else { return false };
    let headers = Headers {
        vlan: packet.vlan,
        ttl: packet.ttl,
        ..Headers::new(packet.source_mac, packet.source, packet.destination_mac, packet.destination)
    };
    let template = Template::new(&headers);
    let mut frame = vec![0; template.headers_bytes() + packet.payload.len()];
    frame[template.headers_bytes()..].copy_from_slice(packet.payload);
    assert!(frame.len() <= data.len());
    assert_eq!(template.write(&mut frame, packet.payload.len(), 0), frame.len());
    let again = parse(&frame, Verify::Full).expect("what is built is right");
    assert_eq!(again.checksum, Checksum::Full);
    assert_eq!(again, ticktape_nic::packet::UdpPacket { checksum: Checksum::Full, ..packet });
    true
}

pub fn seeds() -> Seeds {
    let address = |text: &str| text.parse::<SocketAddrV4>().expect("an address");
    let (from, to) = (address("10.0.0.1:1000"), address("239.1.2.3:30001"));
    let plain = Headers::new(MacAddr([2, 0, 0, 0, 0, 1]), from, MacAddr::multicast(*to.ip()), to);
    let frame = |headers: &Headers, payload: &[u8]| {
        let template = Template::new(headers);
        let mut frame = vec![0; template.headers_bytes() + payload.len()];
        frame[template.headers_bytes()..].copy_from_slice(payload);
        template.write(&mut frame, payload.len(), 7);
        frame
    };
    let whole = frame(&plain, b"a payload");
    let mut padded = frame(&plain, b"");
    padded.resize(60, 0);
    let mut no_checksum = whole.clone();
    no_checksum[40..42].fill(0);
    let tagged = frame(&Headers { vlan: Some(100), ..plain }, b"tagged");
    vec![("whole", whole), ("padded", padded), ("no_checksum", no_checksum), ("tagged", tagged)]
}
