//! The text files of a bag.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| tidings_fuzz::check_parser("bags", input));
