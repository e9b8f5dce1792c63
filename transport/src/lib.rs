//! The I/O shell of the link: everything between the state machine in `yonder_protocol::link` and the network.
//!
//! * [`address`], [`token`], [`tls`]: where the server half is, the shared secret, and whom to trust.
//! * [`carrier`]: what a link runs over, and the means to get another.
//! * [`websocket`]: the carrier inside the messages of a WebSocket.
//! * [`message`]: how calls are framed on a stream.

pub mod address;
pub mod carrier;
pub mod message;
pub mod tls;
pub mod token;
pub mod websocket;
