//! See `yonder_fuzz::proxy_response_head`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| yonder_fuzz::proxy_response_head(input));
