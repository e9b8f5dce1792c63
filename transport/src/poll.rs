//! The fallback carrier: one byte stream in bounded HTTP requests, for paths that let nothing else through.
//!
//! It assumes nothing of what stands between the halves but that a POST of some size gets its answer: HTTP/1.0, whole
//! requests and whole answers kept back, connections closed at will, requests delivered twice, answers lost.
//!
//! All requests are `POST <prefix>/link`, told apart by headers:
//!
//! | `Yonder-Carrier` | `Yonder-Direction` | body | answer, always 200 |
//! | --- | --- | --- | --- |
//! | `open` | | none | `Yonder-Carrier:` identifier of a new carrier |
//! | identifier | `up` | bytes for the server | `Yonder-Accepted:` how many of them it took |
//! | identifier | `down` | none | bytes for the client; at once when there are any, else after a while without |
//!
//! * Each direction counts its requests in `Yonder-Sequence`, from 1. A request is repeated with its number until its
//!   answer comes; the server keeps the answer until the next number shows that it arrived. So nothing is lost or taken
//!   twice whatever happens on the way. A number that skips one ends the carrier with 409.
//! * `Yonder-Hold` asks how many seconds an idle `down` may take. The server always answers by its own clock, since a
//!   proxy that runs into its time limit may take the server for broken.
//! * `Yonder-Closed: 1` says that no more bytes will follow in this direction.
//! * Each direction has one request under way at most, and each side's buffers are bounded. Bytes that the server has
//!   no room for are not accepted and come again: buffering proxies have no back-pressure of their own.
//! * An identifier that the server does not know is answered 410: the carrier is gone, and the link resumes on another.

mod client;
mod server;

use http::HeaderName;

pub use server::{PollConfig, PollServer};

pub(crate) use client::open;

/// Longest body of an upload: just below the limit of a plain nginx, 1 MiB.
pub const UPLOAD_BYTES_MAX: usize = 1_000_000;

/// Longest body of an answer: the shape that goes fastest through a buffering nginx.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Bytes that wait on each side and in each direction between the link and the requests.
const PIPE_BYTES: usize = 1024 * 1024;

/// Names a carrier, or asks for one with [`OPEN`].
const CARRIER: HeaderName = HeaderName::from_static("yonder-carrier");
/// [`UP`] or [`DOWN`].
const DIRECTION: HeaderName = HeaderName::from_static("yonder-direction");
/// The number of a request within its direction.
const SEQUENCE: HeaderName = HeaderName::from_static("yonder-sequence");
/// Bytes of an upload that the server took.
const ACCEPTED: HeaderName = HeaderName::from_static("yonder-accepted");
/// Seconds that an idle poll may be held.
const HOLD: HeaderName = HeaderName::from_static("yonder-hold");
/// Present when no more bytes will follow.
const CLOSED: HeaderName = HeaderName::from_static("yonder-closed");

/// Asks for a new carrier.
const OPEN: &str = "open";
/// From the client to the server.
const UP: &str = "up";
/// From the server to the client.
const DOWN: &str = "down";
