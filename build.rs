//! Names the commit that the program is built from, for `tidings --version`: `TIDINGS_COMMIT` where the environment has it,
//! or else the commit of the checkout. A source archive has none, and the version stands alone.

#![allow(clippy::print_stdout, reason = "this is how a build script speaks to Cargo")]

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-env-changed=TIDINGS_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    // Git writes to this log with each commit and checkout.
    let log = Path::new(".git/logs/HEAD");
    if env::var_os("TIDINGS_COMMIT").is_some() || !log.exists() {
        return;
    }
    println!("cargo::rerun-if-changed={}", log.display());
    let Ok(answer) = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output() else { return };
    let commit = String::from_utf8_lossy(&answer.stdout);
    if answer.status.success() {
        println!("cargo::rustc-env=TIDINGS_COMMIT={}", commit.trim());
    }
}
