//! Opening the network backend that was asked for, or that works.

use ticktape_nic::{NicError, UdpConfig, UdpNic, XdpConfig, XdpNic};

use super::appliance::StartError;
use crate::config::{ApplianceConfig, ConfigError, NicChoice};

/// The link's backend, and why it is that one.
pub(super) enum Opened {
    Udp(Box<UdpNic>, String),
    Xdp(Box<XdpNic>, String),
}

/// Opens the backend for the client link. `auto` takes XDP where an interface is named for it and grants it, else kernel UDP.
pub(super) fn open(config: &ApplianceConfig) -> Result<Opened, StartError> {
    match (config.nic, &config.xdp) {
        (NicChoice::Udp, _) => Ok(Opened::Udp(Box::new(udp(config)?), "as asked for".to_string())),
        (NicChoice::Xdp, _) => Ok(Opened::Xdp(Box::new(xdp(config)?), "as asked for".to_string())),
        (NicChoice::Auto, None) => {
            Ok(Opened::Udp(Box::new(udp(config)?), "auto: no interface is named for XDP".to_string()))
        }
        (NicChoice::Auto, Some(_)) => match xdp(config) {
            Ok(nic) => Ok(Opened::Xdp(Box::new(nic), "auto: the interface grants it".to_string())),
            Err(error) => Ok(Opened::Udp(Box::new(udp(config)?), format!("auto: XDP can't be had: {error}"))),
        },
    }
}

fn udp(config: &ApplianceConfig) -> Result<UdpNic, NicError> {
    UdpNic::open(&UdpConfig {
        busy_poll_us: config.busy_poll_us,
        datagram_bytes_max: config.datagram_bytes_max,
        ..UdpConfig::new(config.listen)
    })
}

fn xdp(config: &ApplianceConfig) -> Result<XdpNic, StartError> {
    let nic = open_xdp(config)?;
    let (asked_for, carried) = (config.datagram_bytes_max, nic.datagram_bytes_max());
    if asked_for > carried {
        // What is larger would never arrive, and be sent again for ever.
        let message = format!("{asked_for} is more than the interface and XDP's frames carry: at most {carried}");
        return Err(ConfigError { place: "datagram_bytes_max".to_string(), message }.into());
    }
    Ok(nic)
}

fn open_xdp(config: &ApplianceConfig) -> Result<XdpNic, NicError> {
    let settings = config.xdp.clone().unwrap_or_default();
    XdpNic::open(&XdpConfig {
        queues: vec![settings.queue],
        attach: settings.attach.into(),
        zero_copy: settings.zero_copy.into(),
        next_hops: settings.next_hop.0,
        ..XdpConfig::new(settings.interface, config.listen)
    })
}
