//! The server half: it listens for the desktop half, dials targets for it, and offers its browser to agents.

pub mod cli;
pub mod config;
pub mod exit;
pub mod hub;
pub mod logging;
pub mod metrics;
pub mod state_dir;
pub mod token;
