//! JSON of data platforms and archives, and RO-Crate.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| tidings_fuzz::check_parser("platform_documents", input));
