//! Anonymous callers of `/` and `/readyz` see the status of the gateway and no details.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, free_address},
    gateway_with_auth::configuration,
};

/// Starts a gateway with tokens; the broker of one source is unreachable.
fn start(folder: &std::path::Path) -> Gateway {
    let source = format!(
        "[sources.secretbroker]\ntransport = \"amqp\"\ndialect = \"content-change\"\nqueue = \"q\"\nurl = \"amqp://{}\"\n",
        free_address()
    );
    let config = configuration(folder, &source);
    Gateway::start_with(&folder.join("data"), &["--config", &config])
}

fn get(gateway: &Gateway, path: &str, token: Option<&str>) -> RequestBuilder {
    let request = gateway.http.request(Method::GET, format!("{}{path}", gateway.url));
    token.map_or(request.try_clone().unwrap(), |token| request.bearer_auth(token))
}

async fn json_of(request: RequestBuilder) -> Value {
    serde_json::from_slice(&request.send().await.unwrap().bytes().await.unwrap()).unwrap()
}

#[tokio::test]
async fn anonymous_callers_see_only_the_status() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path());
    for token in [None, Some("tdg_unknown"), Some("tdg_expired"), Some("tdg_publisher")] {
        assert_eq!(json_of(get(&gateway, "/readyz", token)).await, json!({ "status": "degraded" }), "{token:?}");
        let home = json_of(get(&gateway, "/", token)).await;
        let members: Vec<_> = home.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(members, ["about", "links", "name", "status"], "{token:?}");
    }
    for token in ["tdg_reader", "tdg_admin"] {
        let ready = json_of(get(&gateway, "/readyz", Some(token))).await;
        assert_eq!((&ready["head"], &ready["sources"][0]["name"]), (&json!(0), &json!("secretbroker")));
        let home = json_of(get(&gateway, "/", Some(token))).await;
        assert_eq!(home["version"], env!("CARGO_PKG_VERSION"));
        let reason = home["reason"].as_str().unwrap();
        assert!(reason.starts_with("the source secretbroker is not read"), "{reason}");
    }
}

#[tokio::test]
async fn gateway_without_tokens_shows_everybody_the_details() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let home = gateway.json("/").await;
    assert_eq!((&home["status"], &home["head"]), (&json!("ready"), &json!(0)));
    assert_eq!(home["version"], env!("CARGO_PKG_VERSION"));
    for link in home["links"].as_array().unwrap() {
        let address = format!("{}/{}", gateway.url, link["href"].as_str().unwrap());
        assert_eq!(gateway.http.get(&address).send().await.unwrap().status(), 200, "{address}");
    }
    let none = get(&gateway, "/", None).header("accept", "image/png").send().await.unwrap();
    assert_eq!(none.status(), 406);
}
