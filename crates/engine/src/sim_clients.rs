//! The TCP clients of the subcommand `sim`.

use serde::Deserialize;
use serde_json::{json, Value};
use tm_sim::{ClientOutcome, ClientPlan, Exchange, Exchanged, PathPlan, StagePlan, Turns};
use tm_wire::Duration;

use crate::sim_asked::{Asked, Flow};
use crate::sim_tcp::{self, CongestionName, Ends, MOST_CONNECTIONS};
use crate::{config, Failure};

/// Clients as the configuration has them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientConfig {
    path: usize,
    segment_bytes: u32,
    window_bytes: u64,
    congestion: CongestionName,
    /// So many alike.
    count: usize,
    stages: Vec<StageConfig>,
    patience_ns: i64,
    limit_ns: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StageConfig {
    wait_ns: i64,
    connections: usize,
    fresh: bool,
    awaits_close: bool,
    opening_counts: bool,
    opening: Vec<ExchangeConfig>,
    exchanges: Vec<ExchangeConfig>,
    lasts_ns: Option<i64>,
    #[serde(default)]
    turns: Option<TurnsConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_field_names)] // the names of the configuration
struct TurnsConfig {
    turn_bytes: u64,
    record_bytes: u64,
    seal_bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExchangeConfig {
    request: Vec<u64>,
    reply: Vec<u64>,
    #[serde(default)]
    goes_on: bool,
    #[serde(default)]
    readable_bytes: u64,
    #[serde(default)]
    held: bool,
    #[serde(default)]
    ahead: usize,
    #[serde(default)]
    due_ns: i64,
    /// Of each piece, or of none.
    #[serde(default)]
    request_due_ns: Vec<i64>,
    #[serde(default)]
    reply_due_ns: Vec<i64>,
}

impl ClientConfig {
    /// So many alike.
    pub fn count(&self) -> usize {
        self.count
    }
}

const MOST_STAGES: usize = 1 << 16;
const MOST_EXCHANGES: usize = 1 << 17;
const MOST_PIECES: usize = 1 << 17;
const LARGEST_PIECE_BYTES: u64 = 1 << 32;

/// The plans, those of one configuration behind each other.
pub fn plans(configs: &[ClientConfig], paths: &[PathPlan]) -> Result<Vec<ClientPlan>, Failure> {
    let count = configs
        .iter()
        .fold(0_usize, |count, one| count.saturating_add(one.count));
    config::within("clients: number of clients", count, 0, MOST_CONNECTIONS)?;
    let mut found = Vec::with_capacity(count);
    for (index, config) in configs.iter().enumerate() {
        let plan = plan(&format!("clients[{index}]"), config, paths)?;
        found.extend(std::iter::repeat_n(plan, config.count));
    }
    Ok(found)
}

fn plan(at: &str, config: &ClientConfig, paths: &[PathPlan]) -> Result<ClientPlan, Failure> {
    let ends = Ends {
        path: config.path,
        segment_bytes: config.segment_bytes,
        window_bytes: config.window_bytes,
        congestion: config.congestion,
    };
    let congestion = ends.check(at, paths.len())?;
    let key = |name: &str| format!("{at}.{name}");
    config::within(&key("count"), config.count, 1, MOST_CONNECTIONS)?;
    let count = config.stages.len();
    config::within(&key("stages: number of stages"), count, 1, MOST_STAGES)?;
    let stages = config.stages.iter().enumerate();
    let stages = stages.map(|(index, one)| stage(&format!("{at}.stages[{index}]"), one));
    let plan = ClientPlan {
        path: config.path,
        segment_bytes: config.segment_bytes,
        window_bytes: config.window_bytes,
        congestion,
        stages: stages.collect::<Result<_, _>>()?,
        patience: config::duration(&key("patience_ns"), config.patience_ns)?,
        limit: config::duration(&key("limit_ns"), config.limit_ns)?,
    };
    sim_tcp::known(at, config.path, plan.sizes(), paths)?;
    Ok(plan)
}

fn stage(at: &str, config: &StageConfig) -> Result<StagePlan, Failure> {
    let key = |name: &str| format!("{at}.{name}");
    config::within(&key("wait_ns"), config.wait_ns, 0, config::LONGEST_NS)?;
    let count = config.exchanges.len();
    let number = key("exchanges: number of exchanges");
    config::within(&number, count, 1, MOST_EXCHANGES)?;
    Ok(StagePlan {
        wait: Duration(config.wait_ns),
        connections: config::within(&key("connections"), config.connections, 1, MOST_CONNECTIONS)?,
        fresh: config.fresh,
        awaits_close: config.awaits_close,
        opening_counts: config.opening_counts,
        opening: exchanges(&key("opening"), &config.opening, 0)?,
        exchanges: exchanges(&key("exchanges"), &config.exchanges, 1)?,
        lasts: config
            .lasts_ns
            .map(|lasts_ns| config::duration(&key("lasts_ns"), lasts_ns))
            .transpose()?,
        turns: config
            .turns
            .as_ref()
            .map(|one| turns(&key("turns"), one))
            .transpose()?,
    })
}

fn turns(at: &str, config: &TurnsConfig) -> Result<Turns, Failure> {
    let within = |name: &str, bytes: u64, least: u64| {
        config::within(&format!("{at}.{name}"), bytes, least, LARGEST_PIECE_BYTES)
    };
    Ok(Turns {
        turn_bytes: within("turn_bytes", config.turn_bytes, 1)?,
        record_bytes: within("record_bytes", config.record_bytes, 1)?,
        seal_bytes: within("seal_bytes", config.seal_bytes, 0)?,
    })
}

/// Checked exchanges, each of whose replies has so many pieces at least.
fn exchanges(at: &str, configs: &[ExchangeConfig], least: usize) -> Result<Vec<Exchange>, Failure> {
    let mut found = Vec::with_capacity(configs.len());
    for (index, config) in configs.iter().enumerate() {
        for (name, pieces, due, least) in [
            ("request", &config.request, &config.request_due_ns, 1),
            ("reply", &config.reply, &config.reply_due_ns, least),
        ] {
            let place = format!("{at}[{index}].{name}");
            let number = format!("{place}: number of pieces");
            config::within(&number, pieces.len(), least, MOST_PIECES)?;
            for bytes in pieces {
                config::within(&place, *bytes, 1, LARGEST_PIECE_BYTES)?;
            }
            let place = format!("{at}[{index}].{name}_due_ns");
            if !due.is_empty() && due.len() != pieces.len() {
                let (found, wanted) = (due.len(), pieces.len());
                let message = format!("{place}: {found} times for {wanted} pieces");
                return Err(Failure::Config(message));
            }
            for due_ns in due {
                config::within(&place, *due_ns, 0, config::LONGEST_NS)?;
            }
        }
        let due_ns = format!("{at}[{index}].due_ns");
        config::within(&due_ns, config.due_ns, 0, config::LONGEST_NS)?;
        let readable = format!("{at}[{index}].readable_bytes");
        let written = config.reply.iter().sum();
        config::within(&readable, config.readable_bytes, 0, written)?;
        if config.goes_on && least > 0 {
            let place = format!("{at}[{index}].goes_on");
            let message = format!("{place}: only what a connection begins with goes on so");
            return Err(Failure::Config(message));
        }
        let times = |all: &[i64]| all.iter().map(|due_ns| Duration(*due_ns)).collect();
        found.push(Exchange {
            request: config.request.clone(),
            reply: config.reply.clone(),
            goes_on: config.goes_on,
            readable_bytes: config.readable_bytes,
            held: config.held,
            ahead: config.ahead,
            due: Duration(config.due_ns),
            request_due: times(&config.request_due_ns),
            reply_due: times(&config.reply_due_ns),
        });
    }
    Ok(found)
}

/// What became of the clients, in the order of the configuration; their transactions go to `asked`.
pub fn reported(counts: &[usize], outcomes: Vec<ClientOutcome>, asked: &mut Asked) -> Value {
    let mut outcomes = outcomes.into_iter();
    let mut clients = Vec::new();
    for count in counts {
        let mut flow = Flow::default();
        let (mut gave_up, mut stopped) = (0, 0);
        let (mut retransmits, mut timeouts) = (0, 0);
        let mut exchanges = Vec::new();
        for one in outcomes.by_ref().take(*count) {
            flow.add(one.begun, &one.delays, one.span);
            gave_up += u64::from(!one.finished && !one.stopped);
            stopped += u64::from(one.stopped);
            retransmits += one.retransmits;
            timeouts += one.timeouts;
            exchanges.extend(one.exchanges.iter().map(exchanged));
        }
        asked.add(&flow);
        clients.push(json!({
            "gave_up": gave_up, "stopped": stopped, "retransmits": retransmits, "timeouts": timeouts,
            "exchanges": exchanges,
        }));
    }
    clients.into()
}

fn exchanged(one: &Exchanged) -> Value {
    let (first, done) = one.replied;
    json!({
        "stage": one.place.0, "exchange": one.place.1, "began_ns": one.began.0,
        "connected_ns": one.opened.map(|(connected, _)| connected.0),
        "opened_ns": one.opened.map(|(_, opened)| opened.0),
        "first_ns": first.0, "done_ns": done.0,
    })
}
