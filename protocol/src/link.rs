//! Frames and state machine of the link.
