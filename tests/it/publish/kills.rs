//! The copy is readable at each moment, whatever happens to the gateway.

use std::time::Duration;

use super::{WebServer, post, publish, seen};
use crate::support::{
    gateway::{Gateway, client},
    views_fixture::ViewedGateway,
};

/// Follows the links of the IIIF documents forwards and backwards. Each must lead to a document. Returns the numbers of pages.
async fn walk_iiif(server: &WebServer) -> [usize; 2] {
    let get = async |url: String| -> serde_json::Value {
        let response = client().get(&url).send().await.unwrap();
        assert_eq!(response.status(), 200, "{url}");
        response.json().await.unwrap()
    };
    let mut pages = [0; 2];
    for (pages, (begin, link)) in pages.iter_mut().zip([("first", "next"), ("last", "prev")]) {
        let collection = get(format!("{}/iiif/collection.json", server.url)).await;
        let mut next = collection[begin]["id"].as_str().map(str::to_owned);
        while let Some(url) = next {
            *pages += 1;
            next = get(url).await[link]["id"].as_str().map(str::to_owned);
        }
    }
    pages
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_find_each_document_while_the_gateway_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let server = WebServer::start(folder.path());
    let lines = server.lines("documents = [\"feed\", \"iiif\"]\n[publish.view]\npublic = false\n");
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
        if server.folder.join("iiif/collection.json").exists() {
            walk_iiif(&server).await;
        }
        let ViewedGateway { config, folder, .. } = gateway;
        let started = Gateway::start_with(&folder.path().join("data"), &["--config", config.to_str().unwrap()]);
        gateway = ViewedGateway { gateway: started, config, folder };
        let (code, _, stderr) = publish(&gateway);
        assert_eq!(code, 0, "{stderr}");
        let (found, _) = server.walk().await;
        assert_eq!(found, seen(&gateway, "reader").await);
        assert_eq!(walk_iiif(&server).await, [found.len().div_ceil(100); 2]);
        before = found.len();
    }
}
