//! Messages of librairy (dialect `hoarder`) and Social Feed Manager (dialect `sfm`), posted to HTTP hooks with
//! their routing keys in a header.

use std::{fs, path::Path};

use serde_json::Value;

use crate::support::gateway::Gateway;

/// Configuration with the sources `sfm` and `hoarder`.
const CONFIG: &str = r#"
[sources.sfm]
transport = "http"
dialect = "sfm"
[sources.sfm.settings]
base_url = "https://sfm.example.org"

[sources.hoarder]
transport = "http"
dialect = "hoarder"
[sources.hoarder.settings]
base_url = "http://librairy.example.org"
"#;

/// Starts a gateway with those sources. Its journal is in `folder/data`, and its complete log in `folder/log`.
pub(crate) fn gateway(folder: &Path) -> Gateway {
    let config = folder.join("tidings.toml");
    fs::write(&config, CONFIG).unwrap();
    Gateway::start_logging(&folder.join("data"), &["--config", config.to_str().unwrap()], &folder.join("log"))
}

/// Posts one message; returns the status and the JSON of the response.
pub(crate) async fn send(gateway: &Gateway, source: &str, key: &str, body: impl Into<reqwest::Body>) -> (u16, Value) {
    let request = gateway.http.post(format!("{}/hooks/{source}", gateway.url)).header("routing-key", key);
    let sent = request.header("content-type", "application/json").body(body).send().await.unwrap();
    (sent.status().as_u16(), serde_json::from_slice(&sent.bytes().await.unwrap()).unwrap())
}
