//! See `yonder_fuzz::websocket_decode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| yonder_fuzz::websocket_decode(input));
