//! See `yonder_fuzz::link_decode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| yonder_fuzz::link_decode(input));
