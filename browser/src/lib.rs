//! Chromium: its process, its sessions and tabs, and the browser operations.
//!
//! Everything goes through the debugging pipe: nothing listens on a port. The crate knows no link and
//! no proxy beyond the address and the credential that it is given.
//!
//! [`Browser::launch`] starts a browser, [`Browser::open_session`] a session in it, and
//! [`BrowserSession::execute`] carries out operations.
//!
//! # Cancel safety
//! Every future of this crate may be dropped at any time. A command that the browser has is carried out,
//! nothing more; tabs, sessions and the browser stay usable.

mod actions;
mod browser;
mod cdp;
mod console;
mod cpu;
mod devtools;
mod dialog;
mod execute;
mod files;
mod frames;
mod input;
mod launch;
mod listing;
mod memory;
mod navigation;
mod network;
mod page;
mod prime;
mod process;
mod profile;
mod redact;
mod screenshot;
mod session;
mod tab;
mod trace;
mod watch;

pub use self::browser::{Browser, Exit};
pub use self::execute::{CapturedFile, Done, GivenFile};
pub use self::launch::{BrowserConfig, LaunchError, find_executable};
pub use self::navigation::FailureLookup;
pub use self::navigation::address::normalise as complete_address;
pub use self::prime::ProxyCredential;
pub use self::process::Ended;
pub use self::profile::Profile;
pub use self::session::{BrowserSession, SessionError};
