//! Tests of the wire and of a pair of lanes in simulated time.

mod codec;
mod faults;
mod pair;
mod rules;
