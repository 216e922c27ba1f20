//! The reference client of LDES, npm `ldes-client`, which knows nothing of the gateway.

use std::{path::Path, process::Command};

/// Version of the client.
const PACKAGE: &str = "ldes-client@0.3.0";

/// Output of a run.
#[derive(Debug)]
pub(crate) struct ClientRun {
    /// Members in the order in which the client emitted them, in Turtle.
    pub(crate) members: Vec<String>,
    /// Whether the client ended without an error.
    pub(crate) succeeded: bool,
    pub(crate) errors: String,
}

impl ClientRun {
    /// Returns the numbers of the changes, in the order of the members.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.members.iter().map(|member| number(member).unwrap()).collect()
    }
}

/// Returns the number of the change in the Turtle of a member.
fn number(member: &str) -> Option<u64> {
    let (_, rest) = member.split_once("<urn:tidings:change:1:seq> ")?;
    let digits = rest.trim_start_matches('"');
    digits[..digits.find(|c: char| !c.is_ascii_digit())?].parse().ok()
}

/// Reads a stream in order, page after page: with several requests at once the client emits members of a page before those of
/// an earlier one that takes longer. With a folder `state`, the next run reads what is new alone.
pub(crate) fn read(url: &str, state: Option<&Path>, more: &[&str]) -> ClientRun {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut client = Command::new(here.join("scripts/node"));
    client.arg(PACKAGE).arg(here.join("tests/it/support/ldes_client.js")).arg(url);
    client.args(["--ordered", "ascending", "--concurrent", "1"]).args(more);
    client.args(state.iter().flat_map(|state| ["--save".as_ref(), state.as_os_str()]));
    let output = client.output().unwrap();
    let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    // A member is followed by an empty line, and each of its triples has a line of its own.
    let members = text.split("\n\n").filter(|member| number(member).is_some()).map(ToOwned::to_owned).collect();
    ClientRun { members, succeeded: output.status.success(), errors }
}
