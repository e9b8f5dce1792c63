//! Tests of the wire and of a pair of lanes in simulated time.

mod codec;
mod pair;
mod rules;
