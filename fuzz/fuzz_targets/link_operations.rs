//! See `yonder_fuzz::link_operations`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| yonder_fuzz::link_operations(input));
