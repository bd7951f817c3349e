//! The subcommand `sim`: senders, tunnels, a link and reflectors in virtual time.

use serde::Deserialize;
use serde_json::{json, Value};
use tm_io::report::DirectionReport;
use tm_link::{Counters, DirectionConfig};
use tm_probe::Delays;
use tm_sim::{
    run, Carrier, DirectionPlan, EndCounters, EndPlan, Forms, Inner, LinkPlan, PathPlan, Plan,
    TcpCarrierPlan, Work,
};
use tm_wire::Duration;

use crate::between::{with_trace, Between, MediumConfig};
use crate::events;
use crate::sim_asked::RequesterConfig;
use crate::sim_clients::ClientConfig;
use crate::sim_tcp::{CongestionName, ConnectionConfig, Ends};
use crate::sim_traffic::{Checked, Files, TrafficConfig, WayConfig};
use crate::{config, counters, Failure};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SimConfig {
    protocol: u32,
    seed: u64,
    #[serde(default)]
    a_to_b: Option<DirectionConfig>,
    #[serde(default)]
    b_to_a: Option<DirectionConfig>,
    /// In place of the two directions: what both share.
    #[serde(default)]
    medium: Option<MediumConfig>,
    paths: Vec<PathConfig>,
    #[serde(default)]
    cores: CoresConfig,
    /// Senders at the client.
    forward: Option<WayConfig>,
    /// Senders at the server.
    reverse: Option<WayConfig>,
    #[serde(default)]
    tcp: Vec<ConnectionConfig>,
    /// Programs at the client that ask the server over TCP.
    #[serde(default)]
    clients: Vec<ClientConfig>,
    /// Likewise over UDP.
    #[serde(default)]
    requesters: Vec<RequesterConfig>,
    /// Loads beside all that, each as runs behind each other; they end with it.
    #[serde(default)]
    loads: Vec<Vec<TrafficConfig>>,
    /// So much earlier the loads begin.
    #[serde(default)]
    lead_ns: i64,
}

/// Cores that the tunnels of a host share; null: each end has its own.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CoresConfig {
    client: Option<usize>,
    server: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PathConfig {
    sizes: Vec<SizeConfig>,
    tunnel: Option<TunnelConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SizeConfig {
    payload_bytes: u32,
    packets: Vec<PacketConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PacketConfig {
    bytes: u32,
    on_link: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TunnelConfig {
    client: EndConfig,
    server: EndConfig,
    drops_copies: bool,
    /// The connection that carries it; packets on the link are then its messages.
    #[serde(default)]
    tcp: Option<CarrierConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CarrierConfig {
    ip_header_bytes: u32,
    segment_bytes: u32,
    window_bytes: u64,
    congestion: CongestionName,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EndConfig {
    servers: usize,
    in_order: bool,
    wrap: WorkConfig,
    unwrap: WorkConfig,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkConfig {
    packet_ns: i64,
    byte_ps: i64,
    scatter: f64,
    most_waiting: usize,
}

const MOST_PATHS: usize = 256;
/// Paths that a study has at most.
const STUDIED_PATHS: u64 = 64;
/// What a path takes at most: 0.9 MB for all the lengths that an MTU of 9000 bytes leaves, each in two
/// packets of the tunnel, and 11.2 MB for a client that loads the 10,000 web pages that a study has
/// at most.
const LARGEST_PATH_CONFIG_BYTES: u64 = 16 << 20;
const LARGEST_CONFIG_BYTES: u64 = STUDIED_PATHS * LARGEST_PATH_CONFIG_BYTES;
/// Runs of all loads of one simulation.
const MOST_RUNS: usize = 4096;
const MOST_SERVERS: usize = 1024;
const LONGEST_WORK_NS: i64 = 1_000_000_000;
const DEAREST_BYTE_PS: i64 = 1_000_000_000;
const WIDEST_SCATTER: f64 = 10.0;
const LONGEST_PACKET_BYTES: u32 = 65_535;
/// RFC 791 section 3.1 with all its options.
const LONGEST_IP_HEADER_BYTES: u32 = 60;

/// Runs it.
pub fn main(path: &str) -> Result<(), Failure> {
    let config = read(path)?;
    let (plan, all) = checked(config, |place, config| {
        let (config, opportunities) = with_trace(place, config)?;
        Ok(DirectionPlan {
            config,
            opportunities,
        })
    })?;
    let mut files = Files::create(&all)?;
    let outcome = run(&plan, &mut files);
    files.finish()?;
    let mut summary = json!({
        "event": "summary", "end_ns": outcome.end.0, "damaged": outcome.damaged,
        "a_to_b": direction(outcome.link[0]), "b_to_a": direction(outcome.link[1]),
        "stations": outcome.stations.as_deref().map(counters::stations),
        "paths": outcome.ends.iter().map(|ends| tunnel(ends.as_ref())).collect::<Vec<_>>(),
        "lacking": outcome.lacking,
    });
    let (mut all, end) = (all.into_iter(), outcome.end);
    let measured = all.next().map(|one| one.reported(outcome.ways, end));
    if let (Some(summary), Some(Value::Object(measured))) = (summary.as_object_mut(), measured) {
        summary.extend(measured);
    }
    let mut loads = Vec::with_capacity(outcome.loads.len());
    for (runs, plans) in outcome.loads.into_iter().zip(&plan.loads) {
        // Those that were not begun have nothing to tell.
        let of_load: Vec<Checked> = all.by_ref().take(plans.len()).collect();
        let found = of_load
            .into_iter()
            .zip(runs)
            .map(|(one, ways)| one.reported(ways, end));
        loads.push(found.collect::<Vec<_>>());
    }
    summary["loads"] = loads.into();
    events::only(&summary)
}

fn read(path: &str) -> Result<SimConfig, Failure> {
    config::read_up_to(path, LARGEST_CONFIG_BYTES)
}

/// Checks a configuration; traces are taken for right.
pub fn check(text: &[u8]) -> Result<(), Failure> {
    let config: SimConfig = config::parse(text).map_err(Failure::Config)?;
    let loads = config.loads.iter().flatten();
    let loads = loads.flat_map(|one| [&one.forward, &one.reverse]);
    let ways = [&config.forward, &config.reverse].into_iter().chain(loads);
    if ways.flatten().any(WayConfig::names_a_file) {
        return Ok(());
    }
    checked(config, |_, config| {
        Ok(DirectionPlan {
            config,
            opportunities: None,
        })
    })
    .map(|_| ())
}

/// The plan, and what configures the ways; `traced` reads the trace of a direction.
fn checked(
    config: SimConfig,
    traced: impl Fn(&str, DirectionConfig) -> Result<DirectionPlan, Failure>,
) -> Result<(Plan, Vec<Checked>), Failure> {
    config::protocol(config.protocol)?;
    config::within("paths: number of paths", config.paths.len(), 1, MOST_PATHS)?;
    let link = match Between::check(config.a_to_b, config.b_to_a, config.medium)? {
        Between::Wire(ways) => {
            let [a_to_b, b_to_a] = *ways;
            LinkPlan::Wire(Box::new([
                traced("a_to_b", a_to_b)?,
                traced("b_to_a", b_to_a)?,
            ]))
        }
        Between::Wlan(medium) => LinkPlan::Wlan(medium),
    };
    let paths = config.paths.iter().enumerate();
    let paths = paths.map(|(index, path)| path_plan(index, path));
    let paths = paths.collect::<Result<Vec<_>, _>>()?;
    let cores = [
        cores_of("cores.client", config.cores.client)?,
        cores_of("cores.server", config.cores.server)?,
    ];
    let measured = TrafficConfig {
        forward: config.forward,
        reverse: config.reverse,
        tcp: config.tcp,
        clients: config.clients,
        requesters: config.requesters,
    };
    let (ways, measured) = measured.check("", &paths)?;
    let mut all = vec![measured];
    let runs = config.loads.iter().map(Vec::len).sum();
    config::within("loads: number of runs", runs, 0, MOST_RUNS)?;
    let mut loads = Vec::with_capacity(config.loads.len());
    for (place, runs) in config.loads.iter().enumerate() {
        config::within(
            &format!("loads[{place}]: number of runs"),
            runs.len(),
            1,
            MOST_RUNS,
        )?;
        let mut plans = Vec::with_capacity(runs.len());
        for (number, one) in runs.iter().enumerate() {
            let (ways, checked) = one.check(&format!("loads[{place}][{number}]."), &paths)?;
            plans.push(ways);
            all.push(checked);
        }
        loads.push(plans);
    }
    let lead_ns = config::within("lead_ns", config.lead_ns, 0, config::LONGEST_NS)?;
    let plan = Plan {
        seed: config.seed,
        link,
        paths,
        cores,
        ways,
        loads,
        lead: Duration(lead_ns),
    };
    Ok((plan, all))
}

fn cores_of(at: &str, number: Option<usize>) -> Result<Option<usize>, Failure> {
    number
        .map(|number| config::within(at, number, 1, MOST_SERVERS))
        .transpose()
}

fn path_plan(index: usize, path: &PathConfig) -> Result<PathPlan, Failure> {
    let at = |key: &str| format!("paths[{index}].{key}");
    let mut sizes = Vec::with_capacity(path.sizes.len());
    for size in &path.sizes {
        let mut packets = Vec::with_capacity(size.packets.len());
        for packet in &size.packets {
            for bytes in std::iter::once(&packet.bytes).chain(&packet.on_link) {
                config::within(
                    &at("sizes: bytes of a packet"),
                    *bytes,
                    1,
                    LONGEST_PACKET_BYTES,
                )?;
            }
            packets.push(Inner {
                bytes: packet.bytes,
                outer: packet.on_link.clone(),
            });
        }
        sizes.push((size.payload_bytes, packets));
    }
    let forms =
        Forms::new(sizes).map_err(|error| Failure::Config(format!("{}: {error}", at("sizes"))))?;
    let carrier = match &path.tunnel {
        None => Carrier::Bare,
        Some(tunnel) => Carrier::Tunnel {
            ends: [
                end_plan(&at("tunnel.client"), &tunnel.client)?,
                end_plan(&at("tunnel.server"), &tunnel.server)?,
            ],
            drops_copies: tunnel.drops_copies,
            over: match &tunnel.tcp {
                None => None,
                Some(tcp) => Some(carrier_plan(index, &at("tunnel.tcp"), tcp)?),
            },
        },
    };
    if matches!(carrier, Carrier::Tunnel { over: Some(_), .. }) {
        let packets = path.sizes.iter().flat_map(|size| &size.packets);
        for packet in packets {
            // A packet of a tunnel over TCP is one message.
            let number = packet.on_link.len();
            config::within(&at("sizes: messages of a packet"), number, 1, 1)?;
        }
    }
    Ok(PathPlan { forms, carrier })
}

fn carrier_plan(path: usize, at: &str, tcp: &CarrierConfig) -> Result<TcpCarrierPlan, Failure> {
    let ends = Ends {
        path,
        segment_bytes: tcp.segment_bytes,
        window_bytes: tcp.window_bytes,
        congestion: tcp.congestion,
    };
    let key = format!("{at}.ip_header_bytes");
    Ok(TcpCarrierPlan {
        ip_header_bytes: config::within(&key, tcp.ip_header_bytes, 20, LONGEST_IP_HEADER_BYTES)?,
        segment_bytes: tcp.segment_bytes,
        window_bytes: tcp.window_bytes,
        congestion: ends.check(at, path + 1)?,
    })
}

fn end_plan(at: &str, end: &EndConfig) -> Result<EndPlan, Failure> {
    let servers = config::within(&format!("{at}.servers"), end.servers, 1, MOST_SERVERS)?;
    Ok(EndPlan {
        servers,
        in_order: end.in_order,
        wrap: work(&format!("{at}.wrap"), &end.wrap)?,
        unwrap: work(&format!("{at}.unwrap"), &end.unwrap)?,
    })
}

fn work(at: &str, work: &WorkConfig) -> Result<Work, Failure> {
    let packet_ns = config::within(
        &format!("{at}.packet_ns"),
        work.packet_ns,
        0,
        LONGEST_WORK_NS,
    )?;
    let byte_ps = config::within(&format!("{at}.byte_ps"), work.byte_ps, 0, DEAREST_BYTE_PS)?;
    let scatter = config::within(&format!("{at}.scatter"), work.scatter, 0.0, WIDEST_SCATTER)?;
    Ok(Work {
        packet_ns,
        byte_ps,
        scatter,
        most_waiting: work.most_waiting,
    })
}

fn direction(counters: Counters) -> Value {
    let report = DirectionReport {
        counters,
        capture_dropped: 0,
        send_errors: 0,
        oversized: 0,
        checksum_missing: 0,
        kinds: None,
        lateness: Delays::default(),
    };
    counters::direction(&report, &Delays::default())
}

fn tunnel(ends: Option<&[[EndCounters; 2]; 2]>) -> Value {
    let job =
        |c: &EndCounters| json!({"offered": c.offered, "dropped": c.dropped, "busy_ns": c.busy.0});
    let end = |[wrap, unwrap]: &[EndCounters; 2]| json!({"wrap": job(wrap), "unwrap": job(unwrap)});
    ends.map_or(
        Value::Null,
        |[client, server]| json!({"client": end(client), "server": end(server)}),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_paths_with_many_sizes_are_read() {
        let seed = include_str!("../../../fuzz/seeds/configuration/sim.json");
        let mut document: Value = serde_json::from_str(seed).unwrap();
        let sizes = (18..1518).map(|payload| {
            let packet = json!({"bytes": payload + 28, "on_link": [payload + 88]});
            json!({"payload_bytes": payload, "packets": [packet]})
        });
        let path = json!({"sizes": sizes.collect::<Vec<_>>(), "tunnel": null});
        document["paths"] = vec![path; 10].into();
        // With blanks, as others write it.
        let text = format!("{document:#}");
        assert!(text.len() > 1 << 20);
        let name = format!("tm-sim-config-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, text).unwrap();
        let place = file.to_str().unwrap();
        let found = read(place);
        let limited = [
            // That of a subcommand whose configuration is never long.
            config::read::<Value>(place),
            config::read_up_to(place, 4 << 20),
            config::read_up_to(place, 1000),
        ];
        std::fs::remove_file(&file).unwrap();
        let found = found.map_err(message).unwrap();
        assert_eq!((found.paths.len(), found.paths[9].sizes.len()), (10, 1500));
        let limited = limited.map(|read| read.map_err(message).err());
        let refused = |bytes: u64| Some(format!("{place}: is longer than {bytes} bytes"));
        assert_eq!(limited, [refused(1 << 20), None, refused(1000)]);
    }

    fn message(failure: Failure) -> String {
        match failure {
            Failure::Config(message) | Failure::Run(message) => message,
        }
    }
}
