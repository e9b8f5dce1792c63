//! The I/O shell of the link: everything between the state machine in `yonder_protocol::link` and the network.
//!
//! * [`address`], [`token`], [`tls`]: where the server half is, the shared secret, and whom to trust.
//! * [`carrier`]: what a link runs over, and the means to get another.
//! * [`connect`]: gets carriers from a server half, by whatever way passes.
//! * [`ssh`]: gets carriers through the person's own `ssh`.
//! * [`websocket`], [`poll`]: the carrier inside the messages of a WebSocket, and the one in plain requests.
//! * [`client`], [`acceptor`]: the two ways to a link; [`link`], [`stream`]: what it is used by.
//! * [`relay`]: joins a stream and a TCP socket.
//! * [`message`]: how calls are framed on a stream.

pub mod acceptor;
pub mod address;
pub mod carrier;
pub mod client;
pub mod connect;
pub mod link;
pub mod message;
pub mod poll;
pub mod relay;
pub mod ssh;
pub mod stream;
pub mod tls;
pub mod token;
pub mod websocket;

mod dial;
mod driver;
mod handshake;
mod http_client;
mod hub;
mod lanes;
mod wire;

pub use dial::tune_carrier_socket;

use http::HeaderName;

/// The version of this half, as it stands in [`VERSION_HEADER`].
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Set in every answer of the server half, and thereby the mark that tells its answers from those of login pages,
/// interstitials and proxies; set in requests of the desktop half for the server's log.
pub const VERSION_HEADER: HeaderName = HeaderName::from_static("yonder-version");

/// Carries the token where a reverse proxy wants `Authorization` for itself.
pub const TOKEN_HEADER: HeaderName = HeaderName::from_static("yonder-token");

/// The route of the link below the server's path prefix: a WebSocket upgrade, or the requests of [`poll`].
pub const LINK_ROUTE: &str = "link";
