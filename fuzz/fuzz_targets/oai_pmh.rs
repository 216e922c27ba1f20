//! Responses of a repository with OAI-PMH.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| tidings_fuzz::check_parser("oai_pmh", input));
