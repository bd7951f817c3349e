//! The subcommand `sim`: senders, tunnels, a link and reflectors in virtual time.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{json, Value};
use tm_io::emulator::DirectionReport;
use tm_io::process::{Realtime, Stop};
use tm_io::records::{Kind, Records};
use tm_io::reflect::{ReflectOutcome, ReflectPlan};
use tm_io::send::{FlowPlan as SentFlow, SendOutcome, SendPlan};
use tm_link::{Counters, DirectionConfig};
use tm_probe::{Delays, Format, ReflectRecord, Schedule, SendRecord, SessionPlan, Size};
use tm_sim::{
    run, Carrier, DirectionPlan, EndCounters, EndPlan, FlowPlan, Forms, Inner, LinkPlan, PathPlan,
    Plan, Sink, WayOutcome, WayPlan, Work, START,
};
use tm_wire::{Duration, Instant};

use crate::events::Reader;
use crate::flow::FlowConfig;
use crate::link::{Between, MediumConfig};
use crate::reflect::ReflectConfig;
use crate::send::SendConfig;
use crate::sim_clients::{self, ClientConfig};
use crate::sim_tcp::{self, ConnectionConfig};
use crate::{config, emulator, link, reflect, send, Failure};

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
    /// Senders at the client.
    forward: Option<WayConfig>,
    /// Senders at the server.
    reverse: Option<WayConfig>,
    #[serde(default)]
    tcp: Vec<ConnectionConfig>,
    /// Programs at the client that ask the server over TCP.
    #[serde(default)]
    clients: Vec<ClientConfig>,
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

/// What configures `send` and `reflect`, and the path of each flow.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WayConfig {
    send: SendConfig,
    reflect: ReflectConfig,
    paths: Vec<usize>,
}

/// A way as it was checked.
struct Checked {
    send: SendPlan,
    reflect: ReflectPlan,
    plan: WayPlan,
}

const MOST_PATHS: usize = 256;
const MOST_SERVERS: usize = 1024;
const LONGEST_WORK_NS: i64 = 1_000_000_000;
const DEAREST_BYTE_PS: i64 = 1_000_000_000;
const WIDEST_SCATTER: f64 = 10.0;
const LONGEST_PACKET_BYTES: u32 = 65_535;
const NAMES: [&str; 2] = ["forward", "reverse"];

/// Runs it.
pub fn main(path: &str) -> Result<(), Failure> {
    let config: SimConfig = config::read(path)?;
    let alike: Vec<usize> = config.clients.iter().map(ClientConfig::count).collect();
    let (plan, ways) = checked(config, |place, config| {
        let (config, opportunities) = link::with_trace(place, config)?;
        Ok(DirectionPlan {
            config,
            opportunities,
        })
    })?;
    let mut files = Files::create(&ways)?;
    let mut outcome = run(&plan, &mut files);
    files.finish()?;
    let connections = outcome.ways.each_mut();
    let connections = connections.map(|way| std::mem::take(&mut way.connections));
    let clients = std::mem::take(&mut outcome.ways[0].clients);
    let (clients, asked) = sim_clients::told(&alike, clients);
    let mut summary = json!({
        "event": "summary", "end_ns": outcome.end.0, "damaged": outcome.damaged,
        "a_to_b": direction(outcome.link[0]), "b_to_a": direction(outcome.link[1]),
        "stations": outcome.stations.as_deref().map(emulator::stations),
        "paths": outcome.ends.iter().map(|ends| tunnel(ends.as_ref())).collect::<Vec<_>>(),
        "tcp": sim_tcp::told(connections), "clients": clients, "asked": asked,
    });
    for ((name, way), outcome_of) in NAMES.into_iter().zip(ways).zip(outcome.ways) {
        summary[name] = way.map_or(Value::Null, |way| told(&way, outcome_of, outcome.end));
    }
    Reader::of(&Stop::new()).finish(&summary)
}

/// Checks a configuration; traces are taken for right.
pub fn check(text: &[u8]) -> Result<(), Failure> {
    let config: SimConfig = config::parse(text).map_err(Failure::Config)?;
    let ways = [&config.forward, &config.reverse];
    let flows = ways.into_iter().flatten().flat_map(|way| &way.send.flows);
    if flows.into_iter().any(FlowConfig::names_a_file) {
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
) -> Result<(Plan, [Option<Checked>; 2]), Failure> {
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
    let mut ways = [None, None];
    let mut plans = [WayPlan::default(), WayPlan::default()];
    for (place, way) in [&config.forward, &config.reverse].into_iter().enumerate() {
        if let Some(way) = way {
            let mut found = way_plan(NAMES[place], way, &paths)?;
            plans[place] = std::mem::take(&mut found.plan);
            ways[place] = Some(found);
        }
    }
    for (way, connections) in plans.iter_mut().zip(sim_tcp::plans(&config.tcp, &paths)?) {
        way.connections = connections;
    }
    plans[0].clients = sim_clients::plans(&config.clients, &paths)?;
    let plan = Plan {
        seed: config.seed,
        link,
        paths,
        ways: plans,
    };
    Ok((plan, ways))
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
        },
    };
    Ok(PathPlan { forms, carrier })
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

fn way_plan(name: &str, way: &WayConfig, paths: &[PathPlan]) -> Result<Checked, Failure> {
    let within = |failure: Failure, what: &str| match failure {
        Failure::Config(message) => Failure::Config(format!("{name}.{what}: {message}")),
        other @ Failure::Run(_) => other,
    };
    let sent = send::plan(&way.send).map_err(|failure| within(failure, "send"))?;
    let answered = reflect::plan(&way.reflect).map_err(|failure| within(failure, "reflect"))?;
    if way.paths.len() != sent.flows.len() {
        return config::wrong(format!(
            "{name}.paths has {} entries, must have one for each of the {} flows",
            way.paths.len(),
            sent.flows.len()
        ));
    }
    let mut flows = Vec::with_capacity(sent.flows.len());
    for (index, (flow, path)) in sent.flows.iter().zip(&way.paths).enumerate() {
        let at = format!("{name}.send.flows[{index}]");
        config::within(&format!("{name}.paths[{index}]"), *path, 0, paths.len() - 1)?;
        flows.push(FlowPlan {
            path: *path,
            session: session(&at, flow, &answered)?,
            outgoing: flow.outgoing.clone(),
        });
        if let Some(missing) = unknown_size(flow, &paths[*path].forms) {
            return config::wrong(format!(
                "{at}: a payload of {missing} bytes is not among paths[{path}].sizes"
            ));
        }
    }
    let plan = WayPlan {
        flows,
        connections: Vec::new(),
        clients: Vec::new(),
        waiting: sent.waiting,
        missed: sent.missed,
        reply: answered.answer,
    };
    Ok(Checked {
        send: sent,
        reflect: answered,
        plan,
    })
}

/// The session of the reflector that a flow is of.
fn session(at: &str, flow: &SentFlow, reflector: &ReflectPlan) -> Result<SessionPlan, Failure> {
    let Format::Own { session, .. } = &flow.outgoing.format else {
        return config::wrong(format!("{at}: STAMP is not simulated"));
    };
    let known = reflector
        .sessions
        .iter()
        .find(|one| one.session == *session);
    known.copied().ok_or_else(|| {
        Failure::Config(format!(
            "{at}.session is {session}, which the reflector does not know"
        ))
    })
}

/// A payload of a flow that a path does not know; None: it knows all.
fn unknown_size(flow: &SentFlow, forms: &Forms) -> Option<u32> {
    let unknown = |size: &u32| forms.of(*size).is_none();
    match (&flow.outgoing.size, &flow.outgoing.schedule) {
        (Size::Fixed(size), _) => Some(*size).filter(unknown),
        (Size::Uniform(least, most), _) => (*least..=*most).find(unknown),
        (Size::Mix(shares), _) => shares.iter().map(|share| share.bytes).find(unknown),
        (Size::Trace, Schedule::Trace { trace, .. }) => (0..trace.length())
            .filter_map(|index| Some(trace.packet(index)?.1))
            .find(unknown),
        (Size::Trace, _) => None,
    }
}

/// The record files of both ways.
struct Files {
    sent: [Option<Records>; 2],
    reflected: [Option<Records>; 2],
}

impl Files {
    fn create(ways: &[Option<Checked>; 2]) -> Result<Self, Failure> {
        let open = |path: Option<&PathBuf>, kind, bytes| {
            let Some(path) = path else { return Ok(None) };
            Records::create(Some(path.as_path()), kind, bytes, START).map(Some)
        };
        let sent = |way: usize| {
            let path = ways[way].as_ref().and_then(|way| way.send.records.as_ref());
            open(path, Kind::Send, SendRecord::BYTES)
        };
        let reflected = |way: usize| {
            let path = ways[way]
                .as_ref()
                .and_then(|way| way.reflect.records.as_ref());
            open(path, Kind::Reflect, ReflectRecord::BYTES)
        };
        Ok(Self {
            sent: [sent(0)?, sent(1)?],
            reflected: [reflected(0)?, reflected(1)?],
        })
    }

    fn finish(self) -> Result<(), Failure> {
        for records in self.sent.into_iter().chain(self.reflected).flatten() {
            records.finish()?;
        }
        Ok(())
    }
}

impl Sink for Files {
    fn sent(&mut self, way: usize, record: &SendRecord) {
        if let Some(records) = &mut self.sent[way] {
            records.push(&record.to_bytes());
        }
    }

    fn reflected(&mut self, way: usize, record: &ReflectRecord) {
        if let Some(records) = &mut self.reflected[way] {
            records.push(&record.to_bytes());
        }
    }
}

/// What `send` and `reflect` would have said.
fn told(way: &Checked, outcome: WayOutcome, end: Instant) -> Value {
    let sent = SendOutcome {
        start: START,
        end,
        realtime: Realtime::Never,
        awake: Duration::ZERO,
        kernel_timestamps: true,
        flows: outcome.flows.into_iter().map(|flow| (flow, 0)).collect(),
    };
    let reflected = ReflectOutcome {
        realtime: Realtime::Never,
        kernel_timestamps: true,
        rejected: outcome.rejected,
        overrun: 0,
        residence: outcome.residence,
        flows: outcome.reflected,
    };
    json!({
        "send": send::summary(&way.send, &sent),
        "reflect": reflect::summary(&reflected),
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
    emulator::direction(&report, &Delays::default())
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
