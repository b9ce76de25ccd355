//! `ticktape nic probe`: what the interfaces of this host offer, and what to change for an appliance.

use serde::Serialize;
use ticktape_nic::packet::InterfaceInfo;
use ticktape_nic::probe::{Answer, Probe, inspect};

use crate::Failure;
use crate::args::{NicArgs, NicCommand, NicProbeArgs};
use crate::out::say;

#[derive(Serialize)]
struct Json<'a> {
    interface: &'a str,
    driver: Option<&'a str>,
    up: bool,
    carrier: bool,
    mtu: u32,
    native_mtu_max: Option<u32>,
    rx_queues: u32,
    tx_queues: u32,
    addresses: Vec<String>,
    /// Id of the program that is attached.
    program: Option<u32>,
    /// As the kernel tells of the driver; `null` where it does not.
    native: Option<bool>,
    zero_copy: Option<bool>,
    #[serde(rename = "try", skip_serializing_if = "Option::is_none")]
    trial: Option<TrialJson<'a>>,
    lines: Vec<LineJson<'a>>,
}

/// Each `null` where it was granted, else why not.
#[derive(Serialize)]
struct TrialJson<'a> {
    queue: u32,
    native_refused: Option<&'a str>,
    zero_copy_refused: Option<&'a str>,
    generic_refused: Option<&'a str>,
}

#[derive(Serialize)]
struct LineJson<'a> {
    topic: &'a str,
    /// What there is to tell; `null` where there is nothing.
    answer: Option<&'a str>,
    /// Why there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'a str>,
}

pub fn run(args: &NicArgs) -> Result<(), Failure> {
    match &args.command {
        NicCommand::Probe(args) => probe(args),
    }
}

fn probe(args: &NicProbeArgs) -> Result<(), Failure> {
    let found = match &args.interface {
        Some(name) => vec![InterfaceInfo::read(name).map_err(Failure::usage)?],
        None => InterfaceInfo::all().map_err(Failure::failed)?,
    };
    let probes: Vec<Probe> = found.into_iter().map(|info| inspect(info, args.try_it)).collect();
    if args.json {
        let all: Vec<Json<'_>> = probes.iter().map(json).collect();
        return say!("{}", crate::json::line(&all)?);
    }
    for (at, probe) in probes.iter().enumerate() {
        if at > 0 {
            say!()?;
        }
        print(probe)?;
    }
    Ok(())
}

fn print(probe: &Probe) -> Result<(), Failure> {
    say!("{}", probe.info.name)?;
    for line in &probe.lines {
        match &line.answer {
            Answer::Known(text) => say!("  {:14} {text}", line.topic)?,
            Answer::Unknown(why) => say!("  {:14} unknown: {why}", line.topic)?,
        }
        if let Some(advice) = &line.advice {
            say!("  {:14} > {advice}", "")?;
        }
    }
    Ok(())
}

fn json(probe: &Probe) -> Json<'_> {
    let info = &probe.info;
    Json {
        interface: &info.name,
        driver: info.driver.as_deref(),
        up: info.up,
        carrier: info.carrier,
        mtu: info.mtu,
        native_mtu_max: probe.native_mtu_max,
        rx_queues: info.rx_queues,
        tx_queues: info.tx_queues,
        addresses: info.addresses.iter().map(|address| format!("{}/{}", address.ip, address.prefix)).collect(),
        program: info.xdp.and_then(|attached| attached.program),
        native: probe.features.map(|features| features.is_native()),
        zero_copy: probe.features.map(|features| features.is_zero_copy()),
        trial: probe.trial.as_ref().map(|trial| TrialJson {
            queue: trial.queue,
            native_refused: trial.native.as_ref().err().map(String::as_str),
            zero_copy_refused: trial.zero_copy.as_ref().err().map(String::as_str),
            generic_refused: trial.generic.as_ref().err().map(String::as_str),
        }),
        lines: probe
            .lines
            .iter()
            .map(|line| {
                let (answer, unknown) = match &line.answer {
                    Answer::Known(text) => (Some(text.as_str()), None),
                    Answer::Unknown(why) => (None, Some(why.as_str())),
                };
                LineJson { topic: line.topic, answer, unknown, advice: line.advice.as_deref() }
            })
            .collect(),
    }
}
