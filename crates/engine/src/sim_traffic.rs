//! What is sent in a simulation by one sender of records and programs: measured, or a load beside it.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{json, Value};
use tm_io::process::Realtime;
use tm_io::records::{Kind, Records};
use tm_io::reflect::{ReflectOutcome, ReflectPlan};
use tm_io::send::{FlowPlan as SentFlow, SendOutcome, SendPlan};
use tm_probe::{Format, ReflectRecord, Schedule, SendRecord, SessionPlan, Size};
use tm_sim::{Enough, FlowPlan, Forms, PathPlan, Sink, WayOutcome, WayPlan, START};
use tm_wire::{Duration, Instant};

use crate::flow::FlowConfig;
use crate::reflect::ReflectConfig;
use crate::send::SendConfig;
use crate::sim_asked::{self, Asked, RequesterConfig};
use crate::sim_clients::{self, ClientConfig};
use crate::sim_tcp::{self, ConnectionConfig};
use crate::{config, reflect, send, Failure};

/// What a load sends in one of its runs; the same as what is measured.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficConfig {
    /// Senders at the client.
    pub forward: Option<WayConfig>,
    /// Senders at the server.
    pub reverse: Option<WayConfig>,
    /// Connections that carry as much as goes.
    #[serde(default)]
    pub tcp: Vec<ConnectionConfig>,
    /// Programs at the client that ask the server over TCP.
    #[serde(default)]
    pub clients: Vec<ClientConfig>,
    /// Likewise over UDP.
    #[serde(default)]
    pub requesters: Vec<RequesterConfig>,
}

/// What configures `send` and `reflect`, and the path of each flow.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WayConfig {
    send: SendConfig,
    reflect: ReflectConfig,
    paths: Vec<usize>,
    /// Ends the flows before their time.
    #[serde(default)]
    enough: Option<EnoughConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EnoughConfig {
    lost: u64,
    after_ns: i64,
}

impl WayConfig {
    /// Whether something of it comes from a file.
    pub fn names_a_file(&self) -> bool {
        self.send.flows.iter().any(FlowConfig::names_a_file)
    }
}

/// A way as it was checked.
struct Way {
    send: SendPlan,
    reflect: ReflectPlan,
}

/// Traffic as it was checked, but for what is planned of it.
pub struct Checked {
    ways: [Option<Way>; 2],
    /// How many clients of each kind.
    alike: Vec<usize>,
    /// Likewise of the requesters.
    requesters: Vec<usize>,
}

const NAMES: [&str; 2] = ["forward", "reverse"];

impl TrafficConfig {
    /// Its plan, and what is needed to tell what came of it; `at` is where it stands.
    pub fn check(&self, at: &str, paths: &[PathPlan]) -> Result<([WayPlan; 2], Checked), Failure> {
        let mut ways = [None, None];
        let mut plans = [WayPlan::default(), WayPlan::default()];
        for (place, way) in [&self.forward, &self.reverse].into_iter().enumerate() {
            if let Some(way) = way {
                let (plan, found) = way_plan(&format!("{at}{}", NAMES[place]), way, paths)?;
                plans[place] = plan;
                ways[place] = Some(found);
            }
        }
        for (way, connections) in plans.iter_mut().zip(sim_tcp::plans(&self.tcp, paths)?) {
            way.connections = connections;
        }
        plans[0].clients = sim_clients::plans(&self.clients, paths)?;
        plans[0].requesters = sim_asked::plans(&self.requesters, paths)?;
        let alike = self.clients.iter().map(ClientConfig::count).collect();
        let requesters = self.requesters.iter().map(RequesterConfig::count).collect();
        Ok((
            plans,
            Checked {
                ways,
                alike,
                requesters,
            },
        ))
    }
}

impl Checked {
    /// What came of it, as `send`, `reflect` and `ask` would have said.
    pub fn reported(self, mut outcome: [WayOutcome; 2], end: Instant) -> Value {
        let connections = outcome.each_mut();
        let connections = connections.map(|way| std::mem::take(&mut way.connections));
        let clients = std::mem::take(&mut outcome[0].clients);
        let requesters = std::mem::take(&mut outcome[0].requesters);
        let mut asked = Asked::default();
        let clients = sim_clients::reported(&self.alike, clients, &mut asked);
        asked.add_requesters(&self.requesters, requesters);
        let mut found = json!({
            "tcp": sim_tcp::reported(connections), "clients": clients, "asked": asked.reported(),
        });
        for ((name, way), outcome) in NAMES.into_iter().zip(self.ways).zip(outcome) {
            let reported = |way: Way| sent_and_reflected(&way, outcome, end);
            found[name] = way.map_or(Value::Null, reported);
        }
        found
    }
}

fn way_plan(name: &str, way: &WayConfig, paths: &[PathPlan]) -> Result<(WayPlan, Way), Failure> {
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
        requesters: Vec::new(),
        waiting: sent.waiting,
        missed: sent.missed,
        reply: answered.answer,
        enough: way
            .enough
            .as_ref()
            .map(|one| enough(name, one))
            .transpose()?,
    };
    Ok((
        plan,
        Way {
            send: sent,
            reflect: answered,
        },
    ))
}

fn enough(name: &str, config: &EnoughConfig) -> Result<Enough, Failure> {
    let at = |key: &str| format!("{name}.enough.{key}");
    let after_ns = config::within(&at("after_ns"), config.after_ns, 0, config::LONGEST_NS)?;
    Ok(Enough {
        lost: config::within(&at("lost"), config.lost, 1, u64::MAX)?,
        after: Duration(after_ns),
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

/// The record files of all ways, by the ways' numbers.
pub struct Files {
    sent: Vec<Option<Records>>,
    reflected: Vec<Option<Records>>,
}

impl Files {
    /// Those of what is measured, and of each run of a load behind it.
    pub fn create(all: &[Checked]) -> Result<Self, Failure> {
        let open = |path: Option<&PathBuf>, kind, bytes| {
            let Some(path) = path else { return Ok(None) };
            Records::create(Some(path.as_path()), kind, bytes, START).map(Some)
        };
        let (mut sent, mut reflected) = (Vec::new(), Vec::new());
        for way in all.iter().flat_map(|one| &one.ways) {
            let file = way.as_ref().and_then(|way| way.send.records.as_ref());
            sent.push(open(file, Kind::Send, SendRecord::BYTES)?);
            let file = way.as_ref().and_then(|way| way.reflect.records.as_ref());
            reflected.push(open(file, Kind::Reflect, ReflectRecord::BYTES)?);
        }
        Ok(Self { sent, reflected })
    }

    /// Writes what is left.
    pub fn finish(self) -> Result<(), Failure> {
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
fn sent_and_reflected(way: &Way, outcome: WayOutcome, end: Instant) -> Value {
    let sent = SendOutcome {
        start: outcome.began,
        end,
        realtime: Realtime::Never,
        awake: Duration::ZERO,
        kernel_timestamps: true,
        flows: outcome
            .flows
            .into_iter()
            .map(|flow| (flow, Some(0)))
            .collect(),
    };
    let reflected = ReflectOutcome {
        realtime: Realtime::Never,
        kernel_timestamps: true,
        rejected: outcome.rejected,
        overrun: Some(0),
        residence: outcome.residence,
        flows: outcome.reflected,
    };
    json!({
        "send": send::summary(&way.send, &sent),
        "reflect": reflect::summary(&reflected),
    })
}
