//! A reader of the IIIF Change Discovery API, `examples/iiif_walk.py`, which knows the API and nothing of the gateway.

use std::{collections::BTreeSet, path::Path, process::Command};

/// Resources that a reader includes and removes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Walk {
    pub(crate) included: BTreeSet<String>,
    pub(crate) removed: BTreeSet<String>,
}

/// Walks a stream backwards, until the time `since`. Fails with the message of the reader.
pub(crate) fn walk(url: &str, since: Option<&str>, token: Option<&str>) -> Result<Walk, String> {
    let mut reader = Command::new("python3");
    reader.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/iiif_walk.py")).arg(url);
    for (option, value) in [("--since", since), ("--token", token)] {
        reader.args(value.iter().flat_map(|value| [option, value]));
    }
    let output = reader.output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8(output.stderr).unwrap());
    }
    let mut walk = Walk::default();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let (action, uri) = line.split_once(' ').unwrap();
        let set = if action == "include" { &mut walk.included } else { &mut walk.removed };
        assert!(set.insert(uri.to_owned()), "{uri} comes twice");
    }
    Ok(walk)
}
