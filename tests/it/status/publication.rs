//! The published copy.

use std::fs;

use serde_json::json;

use super::ObservedGateway;
use crate::support::command_line::{CommandResult, command, ended};

fn publish(observed: &ObservedGateway) -> CommandResult {
    ended(command(&["publish", "--gateway", &observed.gateway.url]).spawn().unwrap())
}

async fn post(observed: &ObservedGateway, number: u64) {
    let object = format!("http://h/{number}");
    let body = json!({ "object": object, "items": [{ "uri": object, "change": "ADD", "stateAfter": "INACTIVE" }] });
    assert_eq!(observed.gateway.post("content-change", "application/json", body.to_string()).await.0, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_that_cannot_be_written_is_a_problem_and_so_is_one_that_may_show_too_much() {
    let folder = tempfile::tempdir().unwrap();
    let (copy, data) = (folder.path().join("copy"), folder.path().join("data"));
    let lines = |view: &str| {
        let folder = copy.display();
        format!("[publish]\nfolder = \"{folder}\"\nurl = \"http://h\"\ninterval_seconds = 3600\n{view}\n")
    };
    let observed =
        ObservedGateway::start_in(tempfile::tempdir().unwrap(), &data, &lines("[publish.view]\npublic = false"));
    post(&observed, 1).await;
    assert_eq!(publish(&observed).0, 0);
    // No file can be written.
    let unfinished = copy.join(".unfinished");
    let obstruct = || {
        fs::remove_dir_all(&unfinished).unwrap();
        fs::write(&unfinished, "a file").unwrap();
    };
    obstruct();
    post(&observed, 2).await;
    let (code, _, stderr) = publish(&observed);
    assert!(code == 1 && stderr.contains("cannot write the published copy"), "{stderr}");
    observed.shows("publication-fails", "gateway", "cannot write the published copy").await;
    fs::remove_file(&unfinished).unwrap();
    assert_eq!(publish(&observed).0, 0);
    observed.ends("publication-fails", "gateway").await;
    assert!(observed.gateway.stop().success());

    obstruct();
    let observed = ObservedGateway::start_in(tempfile::tempdir().unwrap(), &data, &lines(""));
    assert_eq!(publish(&observed).0, 1);
    observed.shows("publication-exposes", "gateway", "cannot write the published copy").await;
    fs::remove_file(&unfinished).unwrap();
    assert_eq!(publish(&observed).0, 0);
    observed.ends("publication-exposes", "gateway").await;
}
