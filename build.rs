//! Build script: sets the commit that `tidings --version` prints. It is the environment variable `TIDINGS_COMMIT`, or
//! else the commit of the Git checkout. Without either, as in a source archive, only the version is printed.
//!
//! A build for development ignores the checkout: otherwise each commit would compile the whole crate again.

#![allow(clippy::print_stdout, reason = "a build script passes instructions to Cargo on standard output")]

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-env-changed=TIDINGS_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    // Git appends to this file at each commit and checkout.
    let log = Path::new(".git/logs/HEAD");
    let is_for_development = env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    if is_for_development || env::var_os("TIDINGS_COMMIT").is_some() || !log.exists() {
        return;
    }
    println!("cargo::rerun-if-changed={}", log.display());
    let Ok(output) = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output() else { return };
    let commit = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        println!("cargo::rustc-env=TIDINGS_COMMIT={}", commit.trim());
    }
}
