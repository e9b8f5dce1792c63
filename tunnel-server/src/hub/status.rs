//! What `status` tells about a running server half. Field names are read by programs: add, do not rename.

use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use yonder_protocol::link::Role;
use yonder_protocol::operation::types::State;
use yonder_transport::link::LinkPhase;

use super::Hub;
use super::egress::EgressMode;
use super::links::LinkRecord;
use super::sessions::{Attachment, Backend};

/// A running server half at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Of the server half.
    pub version: String,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// What it may dial.
    pub egress: EgressMode,
    /// Links of desktop halves, oldest first.
    pub links: Vec<LinkStatus>,
    /// Browser sessions that a desktop half serves, by name.
    pub sessions: Vec<SessionStatus>,
    /// Counts since the start.
    pub totals: Totals,
}

/// A link.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkStatus {
    /// Short name, as in logs.
    pub id: String,
    /// Its browser session.
    pub session: String,
    /// `browser` or `tunnels`.
    pub role: String,
    /// Program and version of the desktop half.
    pub agent: String,
    /// Whether a carrier moves its bytes now.
    pub up: bool,
    /// Kind of the carrier: `websocket`, `poll` and so on. None while there is no carrier.
    pub carrier: Option<String>,
    /// The carrier in words, or what is wrong while there is none.
    pub description: String,
    /// Smoothed round trip in milliseconds, once measured.
    pub round_trip_ms: Option<f64>,
    /// Tunnels that are open or being opened.
    pub tunnels: usize,
    /// Bytes from the desktop half, frames included.
    pub bytes_in: u64,
    /// Bytes to the desktop half, frames included.
    pub bytes_out: u64,
    /// Seconds since the link came up first.
    pub age_seconds: u64,
    /// Carriers that replaced an earlier one.
    pub reconnects: u64,
}

/// A browser session that is served.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionStatus {
    /// Its name.
    pub name: String,
    /// `link` or `rpc`: how its desktop half attached.
    pub attachment: String,
    /// The link's short name, or the connection of the attachment RPC.
    pub connection: String,
    /// Seconds since it attached.
    pub age_seconds: u64,
    /// Tunnels of an attachment by RPC; those of links are told there.
    pub tunnels: usize,
    /// Its tabs, once told.
    pub state: Option<State>,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Tunnels open now.
    pub tunnels_open: u64,
    /// Tunnels whose target was reached.
    pub tunnels_opened: u64,
    /// Bytes relayed from clients to targets.
    pub bytes_to_targets: u64,
    /// Bytes relayed from targets to clients.
    pub bytes_from_targets: u64,
    /// Links that went on over a new carrier.
    pub reconnects: u64,
}

impl Hub {
    /// The server half as it is now.
    pub fn status(&self) -> Status {
        Status {
            version: yonder_transport::VERSION.to_owned(),
            uptime_seconds: age(self.started),
            egress: self.dialer.egress().mode(),
            links: self.links.all().iter().map(|record| link(record)).collect(),
            sessions: self
                .sessions
                .all()
                .iter()
                .map(|attachment| session(attachment))
                .collect(),
            totals: Totals {
                tunnels_open: self.metrics.tunnels_open.get().try_into().unwrap_or(0),
                tunnels_opened: self.metrics.tunnels_opened.get(),
                bytes_to_targets: self.metrics.bytes_to_targets.get(),
                bytes_from_targets: self.metrics.bytes_from_targets.get(),
                reconnects: self.metrics.reconnects.get(),
            },
        }
    }
}

fn age(since: Instant) -> u64 {
    since.elapsed().as_secs()
}

fn link(record: &LinkRecord) -> LinkStatus {
    let figures = record.link.status();
    let (up, carrier, description) = match figures.phase {
        LinkPhase::Up {
            kind, description, ..
        } => (true, Some(kind.name().to_owned()), description),
        LinkPhase::Reconnecting { error, .. } => (false, None, error),
        LinkPhase::Closed(reason) => (false, None, reason.to_string()),
    };
    LinkStatus {
        id: record.link.id().to_string(),
        session: record.session.clone(),
        role: match record.role {
            Role::Browser => "browser",
            Role::Tunnels => "tunnels",
        }
        .to_owned(),
        agent: record.agent.clone(),
        up,
        carrier,
        description,
        round_trip_ms: figures
            .round_trip
            .map(|round_trip| round_trip.as_secs_f64() * 1000.0),
        tunnels: record.tunnels.load(Ordering::Relaxed),
        bytes_in: figures.bytes_in,
        bytes_out: figures.bytes_out,
        age_seconds: age(record.since),
        reconnects: figures.reconnects,
    }
}

fn session(attachment: &Attachment) -> SessionStatus {
    let (kind, connection, tunnels) = match attachment.backend() {
        Backend::Link(link) => ("link", link.id().to_string(), 0),
        Backend::Rpc(rpc) => ("rpc", rpc.connection().to_owned(), rpc.tunnels()),
    };
    SessionStatus {
        name: attachment.session().to_owned(),
        attachment: kind.to_owned(),
        connection,
        age_seconds: age(attachment.since()),
        tunnels,
        state: attachment.published(),
    }
}
