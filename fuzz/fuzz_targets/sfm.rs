//! Messages to the dialect `sfm`.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tidings_fuzz::{BaseUrl, Subject};

static SUBJECT: LazyLock<Subject> = LazyLock::new(|| Subject::new("sfm", BaseUrl::Required));

fuzz_target!(|input: &[u8]| SUBJECT.check(input));
