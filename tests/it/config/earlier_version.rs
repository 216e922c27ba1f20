//! A configuration of an earlier version works: `tidings check` accepts it and `tidings serve` starts with it.

use std::{fs, process::Stdio};

use crate::support::{
    command_line::{command, ended},
    gateway::Gateway,
    journal_fixture::configuration,
};

/// Every setting of version 0.1.0, with `FOLDER` in place of the folder of its files.
const VERSION_0_1_0: &str = include_str!("../../../fixtures/configuration/version-0.1.0.toml");

#[test]
fn earlier_configuration_passes_check_and_starts_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(folder.path().join("cert.pem"), certificate.cert.pem()).unwrap();
    fs::write(folder.path().join("key.pem"), certificate.signing_key.serialize_pem()).unwrap();
    let text = VERSION_0_1_0.replace("FOLDER", folder.path().to_str().unwrap());
    let config = configuration(folder.path(), &text);
    let check = command(&["check", "--config", &config]).stdin(Stdio::null()).spawn().unwrap();
    let (code, output, errors) = ended(check);
    // Its source with a signature gets a warning.
    assert!(
        code == 0 && errors.starts_with("tidings: source staging: ") && errors.lines().count() == 1,
        "{output}{errors}"
    );
    // The brokers and receivers in it do not exist; the gateway serves and retries them.
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    assert!(gateway.stop().success());
}
