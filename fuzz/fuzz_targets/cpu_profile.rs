//! See `yonder_fuzz::cpu_profile`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| yonder_fuzz::cpu_profile(input));
