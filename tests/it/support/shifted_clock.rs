//! A process whose clock is wrong. libfaketime shifts the clock that can be set, and leaves the monotonic one alone.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

/// Path of the library below the folder of an architecture, in Debian's package libfaketime.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// Runs a command with a clock that is ahead by so many seconds, or behind if they are negative.
pub(crate) fn shift_clock(command: &mut Command, seconds: i64) {
    command.env("LD_PRELOAD", library()).env("FAKETIME", format!("{seconds:+}"));
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
}

/// Runs a command with a clock that [`set_clock`] sets while the command runs.
pub(crate) fn shift_clock_by_file(command: &mut Command, file: &Path, seconds: i64) {
    set_clock(file, seconds);
    command.env("LD_PRELOAD", library()).env("FAKETIME_TIMESTAMP_FILE", file).env("FAKETIME_NO_CACHE", "1");
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
}

/// Sets a clock ahead by so many seconds, or behind if they are negative.
pub(crate) fn set_clock(file: &Path, seconds: i64) {
    // Renamed, so that the command never reads a half of it.
    let new = file.with_extension("new");
    fs::write(&new, format!("{seconds:+}\n")).unwrap();
    fs::rename(new, file).unwrap();
}

/// Returns by how many seconds a clock is ahead that shows noon (UTC), or behind if they are negative. No day ends while a test
/// runs with it.
pub(crate) fn seconds_to_noon() -> i64 {
    const DAY: i64 = 24 * 60 * 60;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    DAY / 2 - i64::try_from(now).unwrap() % DAY
}

fn library() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().map(|folder| folder.unwrap().path());
    let library = folders.map(|folder| folder.join(LIBRARY)).find(|library| library.exists());
    library.expect("this test needs libfaketime: run scripts/test, which installs Debian's faketime")
}
