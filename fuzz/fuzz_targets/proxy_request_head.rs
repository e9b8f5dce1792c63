//! See `yonder_fuzz::proxy_request_head`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| yonder_fuzz::proxy_request_head(input));
