//! The peer: a plain server over kernel UDP, as one would write it first. It takes a datagram, appends it to a file, waits for fdatasync, and answers.

use std::net::UdpSocket;
use std::thread;

use ticktape_tuning::pin::pin_current_thread;

use super::echo::{ANY_PORT, End, PAYLOAD_BYTES, open};
use super::{Measured, path};
use crate::args::Options;
use crate::hop::Cores;
use crate::latency::{Latency, Stopwatch};
use crate::raw_disk::RawAppend;

/// Its name.
pub(super) const NAME: &str = "plain UDP server, fdatasync";

/// Answers each datagram once it is on the disk, until an empty one comes.
fn serve(socket: &UdpSocket, log: &mut RawAppend) -> std::io::Result<()> {
    let mut datagram = [0; PAYLOAD_BYTES];
    loop {
        let (bytes, from) = socket.recv_from(&mut datagram)?;
        if bytes == 0 {
            return Ok(());
        }
        log.append()?;
        socket.send_to(&datagram[..bytes], from)?;
    }
}

/// One datagram at a time, from its send to the answer; the client waits as that of an appliance at tier local does.
pub(super) fn round_trips(options: &Options, cores: Cores) -> Measured<Latency> {
    let fault = |error: std::io::Error| format!("{NAME}: {error}");
    let dir = tempfile::tempdir_in(&options.dir).map_err(fault)?;
    // A file that is there already: growing it would cost the server more.
    let mut log = RawAppend::buffered(&dir.path().join("log"), PAYLOAD_BYTES).map_err(fault)?;
    let socket = UdpSocket::bind(ANY_PORT).map_err(fault)?;
    let std::net::SocketAddr::V4(address) = socket.local_addr().map_err(fault)? else {
        return Err(format!("{NAME}: no IPv4 address"));
    };
    let mut near = End::new(open()?, address);
    let mut watch = Stopwatch::new(path::ROUND_TRIPS_LOCAL);
    let served = thread::scope(|scope| {
        let server = scope.spawn(|| {
            let _ = pin_current_thread(cores.there);
            serve(&socket, &mut log)
        });
        let _ = pin_current_thread(cores.here);
        for _ in 0..path::ROUND_TRIPS_LOCAL {
            watch.time(|| {
                near.send(&[0x5a; PAYLOAD_BYTES]);
                while !near.receive() && !server.is_finished() {
                    thread::yield_now();
                }
            });
        }
        near.send(&[]);
        server.join().expect("it does not panic")
    });
    served.map(|()| watch.finish(1.0)).map_err(fault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_datagram_is_answered_once_it_stands_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = RawAppend::buffered(&path, PAYLOAD_BYTES).unwrap();
        let (server, client) = (UdpSocket::bind(ANY_PORT).unwrap(), UdpSocket::bind(ANY_PORT).unwrap());
        client.connect(server.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        thread::scope(|scope| {
            let served = scope.spawn(|| serve(&server, &mut log));
            for count in 1..=3 {
                client.send(&[0x5a; PAYLOAD_BYTES]).unwrap();
                let mut answer = [0; PAYLOAD_BYTES + 1];
                assert_eq!(client.recv(&mut answer).unwrap(), PAYLOAD_BYTES);
                let file = std::fs::read(&path).unwrap();
                assert_eq!(file.iter().filter(|&&byte| byte == 0x5a).count(), count * PAYLOAD_BYTES);
            }
            client.send(&[]).unwrap();
            served.join().unwrap().unwrap();
        });
    }
}
