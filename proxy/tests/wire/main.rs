//! The proxy as seen from outside: raw bytes over real sockets, a client on one side and a target on the
//! other, both played by the test.

mod bodies;
mod connections;
mod errors;
mod forward;
mod refusals;
mod support;
mod tunnel;
