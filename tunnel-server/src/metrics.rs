//! What the server half counts, in the form that Prometheus collects.
//!
//! One [`Metrics`] per server, with a registry of its own, so that several servers in one process (as in tests)
//! do not mix. Handles are plain atomics: counting takes no lock except the short one of a labelled family. No label holds
//! anything that a peer chose, so the number of series is bounded.

use std::time::Duration;

use prometheus_client::encoding::prometheus_text;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use yonder_protocol::{ErrorCode, TunnelErrorCode};
use yonder_transport::carrier::CarrierKind;
use yonder_transport::relay::Meter;

/// Upper bounds of the buckets for durations of operations, in seconds: from a warm `tabs.list` to the longest deadline.
const OPERATION_SECONDS: [f64; 12] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 120.0,
];

/// Every counter and gauge of a server half.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Links that exist, those waiting for a new carrier included.
    pub links: Gauge,
    /// Browser sessions that a desktop serves now.
    pub attachments: Gauge,
    /// Tunnels open now.
    pub tunnels_open: Gauge,
    /// Tunnels whose target was reached.
    pub tunnels_opened: Counter,
    /// Bytes relayed from clients to targets.
    pub bytes_to_targets: Counter,
    /// Bytes relayed from targets to clients.
    pub bytes_from_targets: Counter,
    /// Links that went on over a new carrier.
    pub reconnects: Counter,
    tunnels_failed: Family<FailureLabels, Counter>,
    carriers: Family<CarrierLabels, Counter>,
    operations: Family<OperationLabels, Counter>,
    operation_seconds: Histogram,
    requests: Family<RequestLabels, Counter>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct FailureLabels {
    code: Name,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct CarrierLabels {
    kind: Name,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct OperationLabels {
    name: Name,
    outcome: Name,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct RequestLabels {
    route: Name,
    status: u16,
}

/// A label value out of a fixed set.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Name(&'static str);

impl EncodeLabelValue for Name {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        EncodeLabelValue::encode(&self.0, encoder)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Meter for Metrics {
    fn wrote(&self, bytes: usize) {
        self.bytes_to_targets.inc_by(bytes as u64);
    }

    fn took(&self, bytes: usize) {
        self.bytes_from_targets.inc_by(bytes as u64);
    }
}

impl Metrics {
    /// All counts at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("yonder");
        let links = Gauge::default();
        registry.register("links", "Links that exist", links.clone());
        let attachments = Gauge::default();
        registry.register(
            "attachments",
            "Browser sessions that a desktop serves",
            attachments.clone(),
        );
        let tunnels_open = Gauge::default();
        registry.register("tunnels_open", "Tunnels open now", tunnels_open.clone());
        let tunnels_opened = Counter::default();
        registry.register(
            "tunnels_opened",
            "Tunnels whose target was reached",
            tunnels_opened.clone(),
        );
        let tunnels_failed = Family::default();
        registry.register(
            "tunnels_failed",
            "Tunnels whose target was not reached, by reason",
            tunnels_failed.clone(),
        );
        let bytes_to_targets = Counter::default();
        registry.register_with_unit(
            "to_targets",
            "Bytes relayed from clients to targets",
            Unit::Bytes,
            bytes_to_targets.clone(),
        );
        let bytes_from_targets = Counter::default();
        registry.register_with_unit(
            "from_targets",
            "Bytes relayed from targets to clients",
            Unit::Bytes,
            bytes_from_targets.clone(),
        );
        let carriers = Family::default();
        registry.register("carriers", "Carriers accepted, by kind", carriers.clone());
        let reconnects = Counter::default();
        registry.register(
            "reconnects",
            "Links that went on over a new carrier",
            reconnects.clone(),
        );
        let operations = Family::default();
        registry.register(
            "operations",
            "Browser operations, by name and outcome",
            operations.clone(),
        );
        let operation_seconds = Histogram::new(OPERATION_SECONDS);
        registry.register_with_unit(
            "operation",
            "Time from the call of a browser operation to its outcome",
            Unit::Seconds,
            operation_seconds.clone(),
        );
        let requests = Family::default();
        registry.register(
            "http_requests",
            "HTTP requests answered, by route and status",
            requests.clone(),
        );
        Self {
            registry,
            links,
            attachments,
            tunnels_open,
            tunnels_opened,
            bytes_to_targets,
            bytes_from_targets,
            reconnects,
            tunnels_failed,
            carriers,
            operations,
            operation_seconds,
            requests,
        }
    }

    /// Counts a tunnel that did not come about.
    pub fn tunnel_failed(&self, code: TunnelErrorCode) {
        let code = Name(tunnel_error_name(code));
        self.tunnels_failed
            .get_or_create(&FailureLabels { code })
            .inc();
    }

    /// Counts a carrier that a link came over.
    pub fn carrier_accepted(&self, kind: CarrierKind) {
        let kind = Name(kind.name());
        self.carriers.get_or_create(&CarrierLabels { kind }).inc();
    }

    /// Counts an operation that took `elapsed`; `name` must come from the table of operations, never from a caller.
    pub fn operation(&self, name: &'static str, outcome: Result<(), ErrorCode>, elapsed: Duration) {
        let outcome = match outcome {
            Ok(()) => "ok",
            Err(code) => code.as_str(),
        };
        self.operations
            .get_or_create(&OperationLabels {
                name: Name(name),
                outcome: Name(outcome),
            })
            .inc();
        self.operation_seconds.observe(elapsed.as_secs_f64());
    }

    /// Counts an answered HTTP request; `route` is the name of a route, never a caller's path.
    pub fn request(&self, route: &'static str, status: http::StatusCode) {
        self.requests
            .get_or_create(&RequestLabels {
                route: Name(route),
                status: status.as_u16(),
            })
            .inc();
    }

    /// Media type of [`Self::to_text`].
    pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

    /// Everything in the text format of Prometheus, version 0.0.4.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)
            .expect("writing to a string does not fail");
        text
    }
}

/// The label of a tunnel's failure.
fn tunnel_error_name(code: TunnelErrorCode) -> &'static str {
    match code {
        TunnelErrorCode::Refused => "refused",
        TunnelErrorCode::Unreachable => "unreachable",
        TunnelErrorCode::NameNotFound => "name_not_found",
        TunnelErrorCode::TimedOut => "timed_out",
        TunnelErrorCode::Denied => "denied",
        TunnelErrorCode::Reset => "reset",
        TunnelErrorCode::Overloaded => "overloaded",
        TunnelErrorCode::FlowControl => "flow_control",
        TunnelErrorCode::Cancelled => "cancelled",
        TunnelErrorCode::LinkDown => "link_down",
        _ => "internal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_show_in_the_text() {
        let metrics = Metrics::new();
        metrics.tunnels_open.inc();
        metrics.tunnel_failed(TunnelErrorCode::Refused);
        metrics.operation(
            "tabs.list",
            Err(ErrorCode::Disconnected),
            Duration::from_millis(3),
        );
        metrics.request("call", http::StatusCode::OK);
        metrics.bytes_to_targets.inc_by(7);
        let text = metrics.to_text();
        for line in [
            "yonder_tunnels_open 1",
            "yonder_tunnels_failed_total{code=\"refused\"} 1",
            "yonder_operations_total{name=\"tabs.list\",outcome=\"disconnected\"} 1",
            "yonder_operation_seconds_count 1",
            "yonder_http_requests_total{route=\"call\",status=\"200\"} 1",
            "yonder_to_targets_bytes_total 7",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} not in\n{text}");
        }
    }
}
