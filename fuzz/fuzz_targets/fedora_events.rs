//! Messages to the dialect `fedora-events`.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tidings_fuzz::Subject;

static SUBJECT: LazyLock<Subject> = LazyLock::new(|| Subject::new("fedora-events", true));

fuzz_target!(|input: &[u8]| SUBJECT.check(input));
