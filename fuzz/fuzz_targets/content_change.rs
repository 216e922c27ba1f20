//! Messages to the dialect `content-change`.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tidings_fuzz::{BaseUrl, Subject};

static SUBJECT: LazyLock<Subject> = LazyLock::new(|| Subject::new("content-change", BaseUrl::None));

fuzz_target!(|input: &[u8]| SUBJECT.check(input));
