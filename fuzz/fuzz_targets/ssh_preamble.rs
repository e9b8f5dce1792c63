//! See `yonder_fuzz::ssh_preamble`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| yonder_fuzz::ssh_preamble(input));
