//! One function per decoder of bytes from a peer. Each returns for every input; a panic is a bug.
//!
//! `cargo fuzz run --sanitizer none TARGET` searches for one (the code has no `unsafe`, so no sanitizer
//! is needed and the stable toolchain serves). The saved inputs in `corpus/` are also replayed by an
//! ordinary test.

mod calls;
mod profiles;
mod requests;

pub use calls::call_message;
pub use profiles::{cpu_profile, heap_snapshot, trace};
pub use requests::poll_requests;
pub use yonder_protocol::link::fuzz::decode as link_decode;
pub use yonder_protocol::link::fuzz::operations as link_operations;
pub use yonder_proxy::fuzzing::fuzz_chunked as proxy_chunked;
pub use yonder_proxy::fuzzing::fuzz_request_head as proxy_request_head;
pub use yonder_proxy::fuzzing::fuzz_response_head as proxy_response_head;
pub use yonder_transport::ssh::preamble::fuzz_scan as ssh_preamble;
pub use yonder_transport::websocket::fuzz_decode as websocket_decode;

/// A fuzz target: its name, which is also its corpus folder, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: &[Target] = &[
    ("link_decode", link_decode),
    ("link_operations", link_operations),
    ("proxy_request_head", proxy_request_head),
    ("proxy_response_head", proxy_response_head),
    ("proxy_chunked", proxy_chunked),
    ("ssh_preamble", ssh_preamble),
    ("websocket_decode", websocket_decode),
    ("call_message", call_message),
    ("poll_requests", poll_requests),
    ("heap_snapshot", heap_snapshot),
    ("cpu_profile", cpu_profile),
    ("trace", trace),
];
