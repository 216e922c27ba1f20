//! Places of a copy that are refused, and the end of waiting for a run.

use wiremock::{Mock, MockServer, ResponseTemplate, matchers::method};

use crate::support::{
    command_line::{command, ended},
    config_loader::load,
};

#[test]
fn place_that_overlaps_another_one_of_the_gateway_is_refused() {
    let lines = |folder: &str| {
        format!(
            "[publish]\nfolder = \"{folder}\"\nurl = \"http://h\"\n[journal]\ndata = \"/g/data\"\n[files]\nfolder = \
             \"/g/files\"\n[segments]\nfolder = \"/g/segments\"\n"
        )
    };
    for (folder, name) in [
        ("/g/data", "the journal"),
        ("/g/data/copy", "the journal"),
        ("/g", "the journal"),
        ("/g/files/a", "the downloaded files"),
        ("/g/segments", "the segments"),
    ] {
        let error = load(&lines(folder), &[]).unwrap_err();
        assert!(error.contains("publish.folder") && error.contains(&format!("{name} would be published")), "{error}");
    }
    assert!(load(&lines("/g/copy"), &[]).is_ok());
    let bucket = |prefix: &str| {
        format!(
            "s3 = {{ endpoint = \"http://h\", bucket = \"b\", prefix = \"{prefix}\", access_key = \"a\", secret_key = \"s\" }}\n"
        )
    };
    let buckets = |copy: &str| format!("[publish]\nurl = \"http://h\"\n{}[files]\n{}", bucket(copy), bucket("x/files"));
    assert!(load(&buckets("x"), &[]).unwrap_err().contains("the downloaded files would be published"));
    assert!(load(&buckets("x/copy"), &[]).is_ok());
}

/// Lets a gateway answer, and returns the result of the command.
async fn publish_at(requested_later: u64, wait: &str) -> (i32, String) {
    let server = MockServer::start().await;
    let state = |requested: u64| {
        let state = serde_json::json!({ "here": true, "requested": requested, "answered": 0 });
        ResponseTemplate::new(200).set_body_json(state)
    };
    Mock::given(method("POST")).respond_with(state(5)).mount(&server).await;
    Mock::given(method("GET")).respond_with(state(requested_later)).mount(&server).await;
    let publish = command(&["publish", "--gateway", &server.uri(), "--wait", wait]).spawn().unwrap();
    let (code, _, stderr) = tokio::task::spawn_blocking(move || ended(publish)).await.unwrap();
    (code, stderr)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publish_waits_neither_for_ever_nor_for_a_request_that_a_restart_has_lost() {
    let (code, stderr) = publish_at(5, "1").await;
    assert!(code == 1 && stderr.contains("has not ended within 1 s"), "{stderr}");
    let (code, stderr) = publish_at(0, "60").await;
    assert!(code == 1 && stderr.contains("the gateway was restarted"), "{stderr}");
}
