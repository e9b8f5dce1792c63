//! The operations that look at pages and act on them, on a real Chromium: success, each kind of failure,
//! and bounds. Every test has a browser of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/site.rs"]
mod site;

#[path = "page/act.rs"]
mod act;
#[path = "page/click.rs"]
mod click;
#[path = "page/cpu.rs"]
mod cpu;
#[path = "page/evaluate.rs"]
mod evaluate;
#[path = "page/fill.rs"]
mod fill;
#[path = "page/heap.rs"]
mod heap;
#[path = "page/locators.rs"]
mod locators;
#[path = "page/observe.rs"]
mod observe;
#[path = "page/press.rs"]
mod press;
#[path = "page/stage.rs"]
mod stage;
#[path = "page/upload.rs"]
mod upload;
#[path = "page/wait.rs"]
mod wait;
