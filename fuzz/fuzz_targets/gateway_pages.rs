//! Pages of the snapshot and of the changes of another gateway.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| tidings_fuzz::check_parser("gateway_pages", input));
