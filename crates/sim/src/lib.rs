//! A measurement in virtual time: senders, tunnels, a link and reflectors as one event loop.
//!
//! Sender, reflector and link are the state machines that also run in real time ([`tm_probe`],
//! [`tm_link`]); what is modelled here is the tunnel: which packets a datagram becomes ([`Forms`]) and
//! how long an end of the tunnel works on each ([`End`]). TCP connections have ends of their own
//! ([`ConnectionPlan`]), since a kernel's cannot be had in virtual time. There is no clock and no socket, so the
//! same plan gives the same outcome, bit by bit, on every computer.

mod client_plan;
mod end;
mod forms;
mod link;
mod loads;
mod mailbox;
mod pending;
mod plan;
mod requester;
mod tcp;
mod tcp_carrier;
mod tcp_client;
mod tcp_congestion;
mod tcp_line;
mod tcp_receiver;
mod tcp_rtt;
mod tcp_segment;
mod tcp_sender;
mod tcp_used;
mod under_way;
mod way;
mod world;

pub use client_plan::{ClientOutcome, ClientPlan, Exchange, Exchanged, StagePlan, Turns};
pub use end::{Cores, End, EndCounters, EndPlan, Job, Work};
pub use forms::{Forms, FormsError, Inner, LARGEST_FORMS, MOST_INNER, MOST_OUTER};
pub use plan::{Carrier, DirectionPlan, Enough, FlowPlan, LinkPlan, PathPlan, Plan, WayPlan};
pub use requester::{RequesterOutcome, RequesterPlan};
pub use tcp::{Congestion, ConnectionOutcome, ConnectionPlan, ConnectionSecond};
pub use tcp_carrier::TcpCarrierPlan;
pub use way::WayOutcome;
pub use world::{run, Outcome, Sink, START};
