//! The server half: it listens for the desktop half, dials targets for it, and offers its browser to agents.
//!
//! * [`server`] and [`http`]: listener, TLS, requests, authentication, graceful stop.
//! * [`hub`]: links, attachments, tunnels, operations and files; everything behind the requests.
//! * [`cli`], [`config`], [`commands`]: the program around them.
//! * [`state_dir`], [`token`]: what is kept on disk.
//! * [`metrics`], [`logging`]: what can be watched.
//!
//! Futures of this crate are cancel safe in the sense that dropping one leaves no task behind; what it had begun
//! counts as cancelled.

pub mod cli;
pub mod commands;
pub mod config;
pub mod exit;
pub mod http;
pub mod hub;
pub mod logging;
pub mod metrics;
pub mod server;
pub mod state_dir;
pub mod token;

mod client;
mod operations;
