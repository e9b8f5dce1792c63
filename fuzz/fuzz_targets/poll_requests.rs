//! See `yonder_fuzz::poll_requests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| yonder_fuzz::poll_requests(input));
