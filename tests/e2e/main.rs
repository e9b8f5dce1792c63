//! The whole system with real programs: the two halves, Chromium, dev servers, databases, reverse
//! proxies and MCP clients.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a panic is how a test reports, and measured figures are printed"
)]

mod bench;
mod browser;
mod churn;
mod curl;
mod forward;
mod idle;
mod mcp;
mod outages;
mod reload;
mod replaced;
mod resume;
mod reverse_proxies;
mod rpc;
mod ssh;
mod vite;
