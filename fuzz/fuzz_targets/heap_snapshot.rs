//! See `yonder_fuzz::heap_snapshot`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| yonder_fuzz::heap_snapshot(input));
