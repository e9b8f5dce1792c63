//! The commands, one module each.

pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod forward;
pub(crate) mod forward_spec;
pub(crate) mod mcp;
pub(crate) mod open;
pub(crate) mod proxy;
