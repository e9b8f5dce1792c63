//! The I/O shell of the link: everything between the state machine in `yonder_protocol::link` and the network.
//!
//! * [`carrier`]: what a link runs over, and the means to get another.

pub mod carrier;
