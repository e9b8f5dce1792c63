//! An HTTP/1.1 proxy on a loopback port whose connections are opened by a [`Dial`].
//!
//! It takes absolute-form requests and `CONNECT`, checks the credential that says which browser
//! session a request belongs to, and relays bytes. It knows neither Chromium nor the link: the desktop
//! half hands it a [`Dial`] whose streams are tunnels, the tests one that connects plain sockets.
//!
//! Bytes are forwarded as they come. Only message heads are rewritten (`head`); bodies keep
//! their framing, which is checked on the way through (`body`) so that the proxy always knows where a
//! message ends and never has to guess. Nothing is buffered beyond one block per direction.
//!
//! # Cancel safety
//!
//! [`Proxy::close`] may be dropped and called again. The future of [`Dial::dial`] is dropped when the
//! client goes away, and so is the stream it returned: dropping without `shutdown` means "cut", and a
//! [`Dial`] should tell its target so with a reset.

mod answer;
mod body;
mod buffer;
mod client;
mod config;
mod connection;
mod credential;
mod dial;
mod exchange;
mod head;
mod limits;
mod pool;
mod reach;
mod relay;
mod server;

#[doc(hidden)]
pub mod fuzzing;

pub use config::{Challenge, ProxyConfig};
pub use credential::{Credential, Secret};
pub use dial::{Dial, DialMode};
pub use server::Proxy;

/// The host that a browser visits once so that it learns its credential: 204 with a valid one, 407
/// without, and never dialled. The top-level domain is reserved for names that do not exist (RFC 6761,
/// section 6.4).
pub const PRIMING_HOST: &str = "prime.invalid";
