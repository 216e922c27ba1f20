//! Landing pages of datasets, and `Link` headers.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| tidings_fuzz::check_parser("landing_pages", input));
