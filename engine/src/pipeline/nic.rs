//! Opening the network backend that was asked for, or that works.

use ticktape_nic::xdp::BusyPoll;
use ticktape_nic::{NicError, UdpConfig, UdpNic, XdpConfig, XdpNic};

use super::start_error::StartError;
use crate::config::{ApplianceConfig, ConfigError, NicChoice};

/// The link's backend, and why it is that one.
pub(super) enum Opened {
    Udp(Box<UdpNic>, String),
    Xdp(Box<XdpNic>, String),
}

/// Opens the backend for the client link. `auto` takes XDP where an interface is named for it and grants it, else kernel UDP.
pub(super) fn open(config: &ApplianceConfig) -> Result<Opened, StartError> {
    match (config.nic, &config.xdp) {
        (NicChoice::Udp, None) => Ok(Opened::Udp(Box::new(udp(config)?), "as asked for".to_string())),
        (NicChoice::Udp, Some(xdp)) => {
            let why = format!("as asked for; [xdp] interface = {:?} is not used", xdp.interface);
            Ok(Opened::Udp(Box::new(udp(config)?), why))
        }
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
    let nic = XdpNic::open(&xdp_config(config)).map_err(StartError::from)?;
    let (asked_for, carried) = (config.datagram_bytes_max, nic.datagram_bytes_max());
    if asked_for > carried {
        // What is larger would never arrive, and be sent again for ever.
        let message = format!("{asked_for} is more than the interface and XDP's frames carry: at most {carried}");
        return Err(ConfigError { place: "datagram_bytes_max".to_string(), message }.into());
    }
    Ok(nic)
}

fn xdp_config(config: &ApplianceConfig) -> XdpConfig {
    let settings = config.xdp.clone().unwrap_or_default();
    XdpConfig {
        queues: vec![settings.queue],
        attach: settings.attach.into(),
        zero_copy: settings.zero_copy.into(),
        next_hops: settings.next_hop.0,
        // 0 is off, as for kernel UDP.
        busy_poll: config.busy_poll_us.filter(|&us| us > 0).map(|us| BusyPoll { us, ..BusyPoll::default() }),
        ..XdpConfig::new(settings.interface, config.listen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::XdpSettings;

    #[test]
    fn an_xdp_socket_is_polled_as_the_appliance_is_told() {
        let mut config = ApplianceConfig::new("journal", "10.0.0.1:7".parse().unwrap());
        config.xdp = Some(XdpSettings { interface: "eth1".to_string(), queue: 3, ..XdpSettings::default() });
        let asked = |us: Option<u32>| xdp_config(&ApplianceConfig { busy_poll_us: us, ..config.clone() }).busy_poll;
        assert_eq!(asked(Some(35)), Some(BusyPoll { us: 35, ..BusyPoll::default() }));
        assert_eq!((asked(Some(0)), asked(None)), (None, None));
        assert_eq!((xdp_config(&config).interface, xdp_config(&config).queues), ("eth1".to_string(), vec![3]));
    }
}
