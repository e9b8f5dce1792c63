//! Chromium: its process, its sessions and tabs, and the browser operations.
//!
//! Everything goes through the debugging pipe: nothing listens on a port. The crate knows no link and
//! no proxy beyond the address and the credential that it is given.

mod actions;
mod cdp;
mod frames;
mod input;
mod page;
mod tab;
