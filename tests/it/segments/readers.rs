//! A thousand readers of all history behind a cache make a bounded number of requests at the gateway.

use std::{collections::BTreeMap, fs, path::Path};

use futures_util::{StreamExt, stream};
use serde_json::Value;

use super::{fill, segments};
use crate::support::{broker_process::free_ports, gateway::Gateway, nginx::Nginx};

const READERS: usize = 1000;

/// Returns the numbers of requests by route, from the metrics.
async fn requests(gateway: &Gateway) -> BTreeMap<String, u64> {
    let metrics = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap().text().await.unwrap();
    let mut requests = BTreeMap::new();
    for line in metrics.lines().filter(|line| line.starts_with("tidings_http_requests_total{")) {
        let route = line.split_once("route=\"").unwrap().1.split_once('"').unwrap().0.to_owned();
        *requests.entry(route).or_default() += line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    }
    requests
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_reads_each_file_once() {
    crate::support::needs_sqlite();
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fill(data.path(), 21_000).await;
    let gateway = Gateway::start(data.path());
    let sealed = segments(&gateway, 2).await;
    let [port] = free_ports();
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/segments.md")).unwrap();
    let lines = page.split_once("```nginx\n").unwrap().1.split_once("```").unwrap().0.to_owned();
    let lines = lines.replace("http://127.0.0.1:8395", &gateway.url);
    let lines = lines.replace("/var/cache/nginx/tidings", folder.path().join("cache").to_str().unwrap());
    let (settings, location) = lines.split_once("location").unwrap();
    let http = format!("{settings}\nserver {{\nlisten 127.0.0.1:{port};\nlocation{location}\n}}");
    let _nginx = Nginx::start(folder.path(), &http, port);

    let before = requests(&gateway).await;
    let url = format!("http://127.0.0.1:{port}");
    let began = std::time::Instant::now();
    let read = async |http: reqwest::Client| {
        let list = http.get(format!("{url}/segments")).send().await.unwrap().bytes().await.unwrap();
        let list: Value = serde_json::from_slice(&list).unwrap();
        let mut size = 0;
        for segment in list["segments"].as_array().unwrap() {
            let file = http.get(format!("{url}{}", segment["url"].as_str().unwrap())).send().await.unwrap();
            size += file.bytes().await.unwrap().len() as u64;
        }
        size
    };
    let sizes: Vec<_> =
        stream::iter(0..READERS).map(|_| read(gateway.http.clone())).buffer_unordered(50).collect().await;
    let expected: u64 = sealed.iter().map(|segment| segment["size"].as_u64().unwrap()).sum();
    assert!(sizes.iter().all(|size| *size == expected));
    let after = requests(&gateway).await;
    let made = |route: &str| after[route] - before.get(route).copied().unwrap_or_default();
    assert_eq!(made("/segments/{name}"), 2, "{READERS} readers");
    let lists = made("/segments");
    assert!(lists <= began.elapsed().as_secs() + 2, "{lists} lists for {READERS} readers");
}
