//! Pages of other sites cannot use the gateway through the browser of a user who can reach it, neither with
//! cross-site requests nor with a host name of their own that resolves to the gateway.

use std::fs;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    browser::Browser,
    gateway::Gateway,
    gateway_with_auth::{GatewayWithAuth, message},
    http_receiver::{Receiver, Reply},
    resource_watch::WatchedGateway,
};

/// Sends a request with these headers in addition to the usual ones; returns the status and the code of the
/// problem.
async fn send(gateway: &Gateway, method: Method, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let request = gateway.http.request(method, format!("{}{path}", gateway.url));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let answer = request.body(r#"{"object":"http://h/1","purge":true}"#).send().await.unwrap();
    let status = answer.status().as_u16();
    let problem: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default();
    let code = problem["type"].as_str().unwrap_or_default().trim_start_matches("urn:tidings:problem:").to_owned();
    (status, code)
}

fn cross_site() -> (u16, String) {
    (403, "cross-site-request".to_owned())
}

fn misdirected() -> (u16, String) {
    (421, "misdirected-request".to_owned())
}

#[tokio::test]
async fn cross_site_requests_change_nothing() {
    let gateway = WatchedGateway::start("[server]\npublic_url = \"https://tidings.example.org/t\"\n");
    let hook = "/hooks/content-change";
    for headers in [
        &[("sec-fetch-site", "cross-site")][..],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("origin", "https://evil.example"), ("sec-fetch-site", "same-origin")],
        &[("origin", &gateway.url), ("sec-fetch-site", "cross-site")],
    ] {
        for (method, path) in [
            (Method::POST, hook),
            (Method::POST, "/hub"),
            (Method::PUT, "/subscriptions/x"),
            (Method::DELETE, "/subscriptions/x"),
            (Method::POST, "/nowhere"),
        ] {
            assert_eq!(send(&gateway, method, path, headers).await, cross_site(), "{path} {headers:?}");
        }
        for method in [Method::GET, Method::HEAD] {
            assert_eq!(send(&gateway, method, "/changes", headers).await.0, 200, "{headers:?}");
        }
    }
    assert_eq!(gateway.changes().await, Vec::<Value>::new());
    for headers in [
        &[][..],
        &[("sec-fetch-site", "same-origin"), ("origin", &gateway.url)],
        &[("sec-fetch-site", "none")],
        &[("origin", "https://tidings.example.org")],
    ] {
        let (status, code) = send(&gateway, Method::POST, hook, headers).await;
        assert!(matches!(status, 200 | 201), "{status} {code} {headers:?}");
    }
    gateway.still_serves("requests of other sites");
}

#[tokio::test]
async fn cross_site_request_with_a_token_is_refused() {
    let gateway = GatewayWithAuth::start();
    let post = |origin: &'static str| {
        let request = gateway.post("fedora3", &message(1)).bearer_auth("tdg_fedora3");
        request.header("origin", origin).header("sec-fetch-site", "cross-site").send()
    };
    let answer = post("https://evil.example").await.unwrap();
    assert_eq!(answer.status(), 403);
    assert!(answer.text().await.unwrap().contains("cross-site-request"));
    let log = gateway.log();
    assert!(log.contains("request refused") && !log.contains("evil.example"), "{log}");
    // Host names are not checked where tokens are required, because a page under another name has no token.
    let read = gateway.request(&Method::GET, "/changes").bearer_auth("tdg_reader").header("host", "evil.example");
    assert_eq!(read.send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn host_names_are_checked_without_access_control() {
    let config = "[server]\npublic_url = \"https://tidings.example.org\"\nhosts = [\"gateway\", \"Tidings.LAN\"]\n";
    let gateway = WatchedGateway::start(config);
    for path in ["/changes", "/healthz", "/", "/nowhere"] {
        for foreign in ["evil.example", "evil.example:8080", "localhost.evil.example", "other"] {
            assert_eq!(
                send(&gateway, Method::GET, path, &[("host", foreign)]).await,
                misdirected(),
                "{path} {foreign}"
            );
        }
    }
    let rebound = [("host", "evil.example"), ("origin", "http://evil.example"), ("sec-fetch-site", "same-origin")];
    assert_eq!(send(&gateway, Method::PUT, "/subscriptions/x", &rebound).await, misdirected());
    for own in
        ["localhost:1", "127.0.0.1", "[::1]:8080", "10.1.2.3", "tidings.example.org", "gateway:80", "tidings.lan"]
    {
        assert_eq!(send(&gateway, Method::GET, "/changes", &[("host", own)]).await.0, 200, "{own}");
    }
    let raw = |target: &str, host: &str| {
        gateway.raw(format!("GET {target} HTTP/1.1\r\n{host}Connection: close\r\n\r\n").as_bytes()).0
    };
    assert_eq!(raw("http://evil.example/changes", "Host: localhost\r\n"), 421);
    assert_eq!(raw("http://localhost/changes", "Host: localhost\r\n"), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn browser_on_another_site_can_neither_post_nor_read() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tidings.toml");
    fs::write(&config, "[delivery]\nallow = [\"127.0.0.1\"]\n").unwrap();
    let log = folder.path().join("log");
    let arguments = ["--config", config.to_str().unwrap()];
    let gateway = Gateway::start_logging(&folder.path().join("data"), &arguments, &log);
    let form = format!(
        "<form method=post action='{0}/hub'><input name=hub.mode value=subscribe><input name=hub.topic value='{0}/feed'>\
         <input name=hub.callback value='http://127.0.0.1:9/stolen'></form><script>\
         if (location.pathname == '/form') document.forms[0].submit()</script>",
        gateway.url
    );
    let page =
        Receiver::start(move |_, _| Reply::Answer(200, vec![("content-type", "text/html".to_owned())], form.clone()))
            .await;
    let port = |url: &str| url.trim_end_matches('/').rsplit(':').next().unwrap().split('/').next().unwrap().to_owned();
    let mut browser = Browser::start_with(&["--host-resolver-rules=MAP evil.example 127.0.0.1"]);
    let evil = format!("http://evil.example:{}", port(&page.url()));

    browser.go(&format!("{evil}/form"));
    browser.until("document.body.innerText.includes('cross-site-request')", &json!(true));

    browser.go(&format!("{evil}/fetch"));
    let object = r#"'{"object":"http://h/forged","purge":true}'"#;
    let order = format!(
        "fetch('{}/hooks/content-change', {{ mode: 'no-cors', method: 'POST', body: {object} }}).then(() => 'sent', String)",
        gateway.url
    );
    browser.value(&order);

    // A host name of the other site that resolves to the gateway.
    browser.go(&format!("http://evil.example:{}/changes", port(&gateway.url)));
    browser.until("document.body.innerText.includes('misdirected-request')", &json!(true));

    assert_eq!(gateway.changes().await, Vec::<Value>::new());
    assert_eq!(gateway.json("/subscriptions").await["subscriptions"], json!([]));
    assert!(fs::read_to_string(&log).unwrap().matches("request refused").count() >= 2);

    // The gateway's own pages work.
    browser.go(&format!("{}/live?after=0", gateway.url));
    browser.until("document.querySelector('#state')?.textContent.includes('connected')", &json!(true));
    let posted =
        format!("fetch('hooks/content-change', {{ method: 'POST', body: {object} }}).then(answer => answer.status)");
    assert!(matches!(browser.value(&posted).as_u64(), Some(200 | 201)));
    browser.go(&format!("{}/docs", gateway.url));
    browser.until("document.querySelectorAll('details').length > 30", &json!(true));
    browser.go(&format!("{}/", gateway.url));
    browser.until("document.querySelector('.verdict')?.textContent.includes('All is well')", &json!(true));
}
