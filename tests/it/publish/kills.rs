//! The copy is readable at each moment, whatever happens to the gateway.

use std::time::Duration;

use super::{WebServer, post, publish, seen};
use crate::support::{gateway::Gateway, views_fixture::ViewedGateway};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_find_each_document_while_the_gateway_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let server = WebServer::start(folder.path());
    let lines = server.lines("[publish.view]\npublic = false\n");
    let mut gateway = ViewedGateway::start(&lines);
    let mut number = 0;
    let mut before = 0;
    for round in 0..6 {
        for _ in 0..250 {
            number += 1;
            post(&gateway, number).await;
        }
        // The request is enough: the kill comes during the run, or after it.
        let request = gateway.gateway.http.post(format!("{}/publication", gateway.gateway.url));
        assert_eq!(request.bearer_auth("tdg_admin").send().await.unwrap().status(), 202);
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..60))).await;
        gateway.gateway.kill();
        if round > 0 || server.folder.join("feed.atom").exists() {
            let (found, _) = server.walk().await;
            let numbers: Vec<_> = found.keys().copied().collect();
            assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "the copy has no gap");
            assert!(numbers.len() >= before, "the copy went back");
        }
        let ViewedGateway { config, folder, .. } = gateway;
        let started = Gateway::start_with(&folder.path().join("data"), &["--config", config.to_str().unwrap()]);
        gateway = ViewedGateway { gateway: started, config, folder };
        let (code, _, stderr) = publish(&gateway);
        assert_eq!(code, 0, "{stderr}");
        let (found, _) = server.walk().await;
        assert_eq!(found, seen(&gateway, "reader").await);
        before = found.len();
    }
}
