//! See `yonder_fuzz::call_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| yonder_fuzz::call_message(input));
