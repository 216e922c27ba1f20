//! nginx as `docs/machine-door.md` configures it, in front of a gateway.

use std::{fs, path::Path};

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use crate::support::{
    broker_process::free_ports,
    gateway::PATIENCE,
    nginx::Nginx,
    views_fixture::{SURFACES, ViewedGateway},
};

/// Starts nginx with the lines of the page, for this gateway, and returns its URL. It has no TLS.
fn start(folder: &Path, gateway: &ViewedGateway) -> (Nginx, String) {
    let [port] = free_ports();
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/machine-door.md")).unwrap();
    let lines = page.split_once("```nginx\n").unwrap().1.split_once("```").unwrap().0;
    let lines = lines.lines().filter(|line| !line.trim_start().starts_with("ssl_certificate"));
    let http: String = lines.map(|line| format!("{line}\n")).collect();
    for text in ["listen 443 ssl;", "/var/cache/nginx/tidings", "http://127.0.0.1:8395"] {
        assert!(http.contains(text), "{http}");
    }
    let http = http.replace("listen 443 ssl;", &format!("listen 127.0.0.1:{port};"));
    let http = http.replace("/var/cache/nginx/tidings", folder.join("cache").to_str().unwrap());
    let http = http.replace("http://127.0.0.1:8395", &gateway.gateway.url);
    (Nginx::start(folder, &http, port), format!("http://127.0.0.1:{port}"))
}

/// Counts the requests for a route that the gateway has served.
async fn served(gateway: &ViewedGateway, route: &str) -> u64 {
    let metrics = gateway.get("/metrics", Some("admin")).await.body;
    let lines = metrics.lines().filter(|line| line.starts_with("tidings_http_requests_total{"));
    let of_route = lines.filter(|line| line.contains(&format!("route=\"{route}\"")));
    of_route.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_serves_history_to_the_public_and_passes_tokens_and_streams_on() {
    let folder = tempfile::tempdir().unwrap();
    let oai_pmh = "[oai_pmh]\nadmin_email = \"admin@repository.example.org\"\n";
    let gateway = ViewedGateway::start(&format!("{oai_pmh}[access.public]\nsurfaces = {SURFACES}\n"));
    for number in 1..=120 {
        let object = format!("http://h/{number}");
        gateway.post(&json!({ "object": object, "items": [{ "uri": object, "change": "ADD" }] })).await;
    }
    let (_nginx, url) = start(folder.path(), &gateway);
    let http = gateway.gateway.http.clone();
    let entry = http.get(format!("{}/iiif", gateway.gateway.url)).send().await.unwrap().json::<Value>().await.unwrap();
    let page = entry["first"]["id"].as_str().unwrap().strip_prefix(&gateway.gateway.url).unwrap().to_owned();
    let list = "/oai?verb=ListRecords&metadataPrefix=oai_dc";
    for (route, path) in [("/iiif/{stream}/{document}", page.as_str()), ("/oai", list), ("/feed", "/feed")] {
        let before = served(&gateway, route).await;
        let expected = http.get(format!("{}{path}", gateway.gateway.url)).send().await.unwrap().bytes().await.unwrap();
        let readers = stream::iter(0..100).map(|_| {
            let request = http.get(format!("{url}{path}"));
            async move { request.send().await.unwrap() }
        });
        // The gateway makes 16 lists at once, and refuses further ones.
        let at_once = if route == "/oai" { 16 } else { 25 };
        for response in readers.buffer_unordered(at_once).collect::<Vec<_>>().await {
            assert_eq!(response.status(), 200, "{path}");
            if route != "/oai" {
                assert_eq!(response.bytes().await.unwrap(), expected, "{path}");
            }
        }
        let requests = served(&gateway, route).await - before - 1;
        // A list of records is not cached, and the feed is asked for again whenever a reader asks.
        let is_closed = route.starts_with("/iiif");
        assert!(requests >= 1 && (!is_closed || requests == 1), "{requests} requests for {path}");
    }

    // A token sees more than the public, and what it sees is not kept.
    let hidden = json!({ "object": "http://h/hidden", "items": [{ "uri": "http://h/hidden", "change": "ADD", "stateAfter": "INACTIVE" }] });
    gateway.post(&hidden).await;
    let path = "/changes?after=120";
    let of_token = http.get(format!("{url}{path}")).bearer_auth("tdg_reader").send().await.unwrap();
    assert_eq!(of_token.json::<Value>().await.unwrap()["changes"][0]["object"], "http://h/hidden");
    let of_public = http.get(format!("{url}{path}")).send().await.unwrap().json::<Value>().await.unwrap();
    assert_eq!(of_public["changes"], json!([]));

    // An event arrives while the response lasts.
    let mut events = http.get(format!("{url}/stream?after=121")).send().await.unwrap();
    assert_eq!(events.headers()["content-type"], "text/event-stream");
    let shown = json!({ "object": "http://h/shown", "items": [{ "uri": "http://h/shown", "change": "ADD" }] });
    let through_nginx = http.post(format!("{url}/hooks/content-change")).bearer_auth("tdg_admin");
    let through_nginx = through_nginx.header("content-type", "application/json").body(shown.to_string());
    assert_eq!(through_nginx.send().await.unwrap().status(), 201);
    let mut text = String::new();
    while !text.contains("http://h/shown") {
        let chunk = tokio::time::timeout(PATIENCE, events.chunk()).await.expect("the event arrives");
        text.push_str(std::str::from_utf8(&chunk.unwrap().unwrap()).unwrap());
    }
}
