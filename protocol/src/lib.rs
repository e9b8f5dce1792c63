//! What the two halves say to each other, free of I/O and of clocks.
//!
//! * [`link`]: the frames and the state machine of the multiplexed, resumable link.
//! * [`operation`]: the browser operations, their types, bounds and JSON Schemas.
//! * [`call`]: the envelope in which an operation travels to the desktop and its outcome back.
//! * [`target`]: what a tunnel is opened to, and why it failed; [`builtin`]: targets that the server half serves by itself.
//! * [`limits`]: every bound that both halves share, with its reason.
//!
//! Nothing here opens a socket, reads a clock or imports a runtime; `transport`, `proxy`, `browser`
//! and `mcp` build on it and do not know each other.

pub mod builtin;
pub mod call;
pub mod limits;
pub mod link;
pub mod operation;
pub mod target;

pub use builtin::Builtin;
pub use operation::error::{ErrorCode, OperationError};
pub use target::{Target, TunnelError, TunnelErrorCode};
