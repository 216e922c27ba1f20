//! A repository that sends a page a byte at a time.

use std::time::Duration;

use tidings::{harvest::Timeouts, journal::harvest::RunState};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::support::{
    gateway::Gateway,
    harvest_fixture::{HarvestFixture, configuration, settings},
    nodes_fixture::until,
};

/// Starts a repository whose lists never end. Returns its URL.
async fn dripping_repository() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/oai", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let read = stream.read(&mut request).await.unwrap_or_default();
                let head = String::from_utf8_lossy(&request[..read]).into_owned();
                if head.contains("verb=Identify") {
                    let body = "<OAI-PMH xmlns='http://www.openarchives.org/OAI/2.0/'><Identify><granularity>\
                                YYYY-MM-DD</granularity></Identify></OAI-PMH>";
                    let length = body.len();
                    let answer =
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
                    let _ = stream.write_all(answer.as_bytes()).await;
                    return;
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").await;
                while stream.write_all(b" ").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn pause_ends_the_request_of_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), &dripping_repository().await, "");
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    let state_is = async |state: &str| gateway.json("/harvests/scripted").await["state"] == state;
    until("the harvest runs", async || state_is("running").await).await;
    assert_eq!(gateway.ask("POST", "/harvests/scripted/pause", None).await.0, 204);
    until("the harvest is paused", async || state_is("paused").await).await;
    assert_eq!(gateway.ask("POST", "/harvests/scripted/resume", None).await.0, 204);
    until("the harvest runs again", async || state_is("running").await).await;
    assert!(gateway.stop().success());
}

#[tokio::test]
async fn page_must_arrive_in_time() {
    let mut fixture = HarvestFixture::start(1).await;
    fixture.settings = settings(&dripping_repository().await);
    fixture.settings.timeouts = Timeouts { page: Duration::from_millis(300), ..Timeouts::default() };
    let run = fixture.run().await;
    assert_eq!(run.state, RunState::Failed);
    let reason = run.reason.unwrap_or_default();
    assert!(reason.contains("has not arrived within"), "{reason}");
}
