//! The browser through its public interface: a real Chromium behind a small proxy of the tests.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test where something is not as it must be"
)]

#[path = "browser/dialogs.rs"]
mod dialogs;
#[path = "browser/downloads.rs"]
mod downloads;
#[path = "browser/headed.rs"]
mod headed;
#[path = "browser/lifecycle.rs"]
mod lifecycle;
#[path = "browser/navigation.rs"]
mod navigation;
#[path = "browser/screenshots.rs"]
mod screenshots;
#[cfg(target_os = "linux")]
#[path = "browser/sockets.rs"]
mod sockets;
#[path = "browser/stage.rs"]
mod stage;
#[path = "browser/tabs.rs"]
mod tabs;
#[path = "browser/trace.rs"]
mod trace;
