//! `tidings check --connect` connects to the servers of webhooks without a request, and opens the folders of harvests. Its
//! words are those of a gateway with the same configuration.

use std::{fs, path::Path};

use serde_json::Value;

use crate::{
    status::access_and_certificates::put_certificate,
    support::{
        command_line::{CommandResult, command, ended},
        gateway::{Gateway, free_address},
        http_receiver::{Receiver, Reply},
        journal_fixture::configuration,
        subscription_fixture::post,
        webhook_fixture::webhook,
    },
};

fn check(config: &str, data: &Path) -> CommandResult {
    let arguments = ["check", "--connect", "--config", config, "--data", data.to_str().unwrap()];
    ended(command(&[&arguments[..], &["--listen", "127.0.0.1:0"]].concat()).spawn().unwrap())
}

/// Returns the lines of standard error that begin with a thing, without it.
fn reason(error: &str, thing: &str) -> String {
    let start = format!("tidings: {thing}: ");
    let mut lines = error.lines().filter_map(|line| line.strip_prefix(&start));
    let reason = lines.next().unwrap_or_else(|| panic!("{thing}: {error}")).to_owned();
    assert_eq!(lines.next(), None, "{error}");
    reason
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_reports_every_receiver_that_cannot_be_reached_in_the_words_of_serve() {
    let folder = tempfile::tempdir().unwrap();
    // A server whose certificate no authority of the system has signed.
    let own = tempfile::tempdir().unwrap();
    let tls = configuration(own.path(), &put_certificate(own.path(), 100));
    let server = Gateway::start_with(own.path(), &["--config", &tls]);
    let server = server.url.replace("http://", "https://");
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let ca = format!("ca = {:?}", own.path().join("cert.pem"));
    let lines = [
        webhook("closed", &format!("http://{}/in", free_address()), ""),
        webhook("foreign", &server, ""),
        webhook("trusted", &server, &ca),
        webhook("nowhere", "https://receiver.invalid/in?key=hush-hush", ""),
        webhook("plain", &receiver.url().replace("http://", "https://"), "connect_seconds = 1"),
        webhook("right", &receiver.url(), ""),
    ];
    let config = configuration(folder.path(), &lines.concat());
    let data = folder.path().join("data");
    let (code, out, error) = check(&config, &data);
    assert_eq!(code, 1, "{error}");
    assert!(error.ends_with("tidings: 4 problems found\n") && !error.contains("hush"), "{error}");
    let tried = "\ntried         0 brokers, 6 webhooks and 0 folders; nothing was declared, consumed or sent\n";
    assert!(out.ends_with(tried), "{out}");
    assert_eq!((receiver.requests().len(), receiver.connections()), (0, 2), "no request was sent");
    let gateway = Gateway::start_with(&data, &["--config", &config]);
    post(&gateway, 1).await;
    for name in ["closed", "foreign", "nowhere", "plain"] {
        let failed = |status: &Value| status["lastError"].is_object();
        let status = gateway.until(name, "the delivery fails", failed).await;
        let reason = reason(&error, &format!("subscription {name}"));
        assert_eq!(status["lastError"]["reason"], reason, "{name}");
    }
    for (name, words) in [
        ("closed", "no connection: Connection refused"),
        ("foreign", "its certificate is not signed by a trusted authority"),
        ("nowhere", "failed to lookup address information"),
        ("plain", "no response in time"),
    ] {
        assert!(reason(&error, &format!("subscription {name}")).contains(words), "{error}");
    }
    gateway.until_at("right", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_reports_every_folder_that_cannot_be_read_in_the_words_of_serve() {
    let folder = tempfile::tempdir().unwrap();
    let [missing, link, present, archive] =
        ["missing", "link", "present", "archive.zip"].map(|name| folder.path().join(name));
    fs::create_dir(&present).unwrap();
    fs::write(present.join("a.txt"), "a").unwrap();
    // Only the header of an archive is read in a run, so the check opens it alone.
    fs::write(&archive, "").unwrap();
    std::os::unix::fs::symlink(&link, &link).unwrap();
    let source = |name: &str, path: &Path| {
        format!("[sources.{name}]\ntransport = \"folder\"\ndialect = \"folder\"\npath = {path:?}\nevery = \"1h\"\n")
    };
    let lines =
        [source("missing", &missing), source("loop", &link), source("present", &present), source("archive", &archive)];
    let config = configuration(folder.path(), &lines.concat());
    let data = folder.path().join("data");
    let (code, out, error) = check(&config, &data);
    assert_eq!(code, 1, "{error}");
    assert!(error.ends_with("tidings: 2 problems found\n"), "{error}");
    assert!(out.contains("\ntried         0 brokers, 0 webhooks and 4 folders; "), "{out}");
    let gateway = Gateway::start_with(&data, &["--config", &config]);
    for name in ["missing", "loop"] {
        let reason = reason(&error, &format!("source {name}"));
        let failed = || async {
            let harvest = gateway.json(&format!("/harvests/{name}")).await;
            harvest["lastError"]["reason"].as_str().map(str::to_owned)
        };
        let began = std::time::Instant::now();
        let failure = loop {
            if let Some(failure) = failed().await {
                break failure;
            }
            assert!(began.elapsed() < crate::support::gateway::PATIENCE, "timeout while waiting until the run fails");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        };
        assert_eq!(failure, reason);
        assert!(reason.contains("check the path, the permissions, and whether it is mounted"), "{reason}");
    }
}
