//! See `yonder_fuzz::trace`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| yonder_fuzz::trace(input));
