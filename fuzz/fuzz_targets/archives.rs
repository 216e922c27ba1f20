//! Zip and tar archives: none panics, or takes more time or memory than its limits allow.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let path = std::env::temp_dir().join(format!("archive-{}", std::process::id()));
    if std::fs::write(&path, body).is_ok() {
        let _ = tidings::harvest::folder::count_members(&path, 1 << 20);
    }
});
