//! Every response, successful or not, has the headers that stop a browser from guessing its type, running it or
//! embedding it, and `Cache-Control` if it must not be cached.

use axum::http::HeaderMap;
use reqwest::Method;
use tidings::{router::routes, web::Rule};

use crate::support::{
    gateway_with_auth::{GatewayWithAuth, message},
    resource_watch::WatchedGateway,
};

fn check(headers: &HeaderMap, about: &str) {
    let value = |name: &str| headers.get(name).unwrap_or_else(|| panic!("{about} has no {name}")).to_str().unwrap();
    assert_eq!(value("x-content-type-options"), "nosniff", "{about}");
    assert_eq!(value("referrer-policy"), "same-origin", "{about}");
    let policy = value("content-security-policy");
    assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{about}: {policy}");
    assert!(policy.contains("frame-ancestors 'none'"), "{about}: {policy}");
    assert!(headers.contains_key("cache-control"), "{about}");
    assert!(!headers.contains_key("strict-transport-security"), "{about}");
}

#[tokio::test]
async fn security_headers_are_on_every_route() {
    let gateway = GatewayWithAuth::start();
    for route in routes().list() {
        // A valid stream would not end.
        let path = if route.path == "/stream" { "/stream?after=none" } else { &route.path };
        let path = path.replace("{source}", "fedora3").replace("{page}", "1").replace("{id}", "7");
        for token in [Some("tdg_admin"), Some("tdg_unknown"), None] {
            let request = gateway.request(&route.method, &path).body(message(1));
            let request = token.map_or(request.try_clone().unwrap(), |token| request.bearer_auth(token));
            let answer = request.send().await.unwrap();
            let about = format!("{} {path} with {token:?}: {}", route.method, answer.status());
            check(answer.headers(), &about);
            let is_private = route.rule == Rule::Admin || answer.status().is_client_error() || path == "/objects";
            if is_private {
                assert_eq!(answer.headers()["cache-control"], "no-store", "{about}");
            }
        }
    }
    for (method, path) in [(Method::GET, "/nowhere"), (Method::PATCH, "/feed"), (Method::OPTIONS, "/feed")] {
        let answer = gateway.request(&method, path).send().await.unwrap();
        check(answer.headers(), path);
    }
    let authenticated = gateway.request(&Method::GET, "/docs").bearer_auth("tdg_reader").send().await.unwrap();
    let policy = authenticated.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.contains("script-src 'sha256-") && policy.contains("style-src 'sha256-"), "{policy}");
}

#[tokio::test]
async fn security_headers_are_on_errors_of_the_http_server() {
    let gateway = WatchedGateway::start("");
    for request in ["nonsense\r\n\r\n", &format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(70_000))] {
        use std::io::{Read, Write};
        let mut stream = gateway.connect();
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).to_lowercase();
        for header in ["x-content-type-options: nosniff\r\n", "cache-control: no-store\r\n", "default-src 'none';"] {
            assert!(answer.contains(header), "{answer}");
        }
    }
}

#[tokio::test]
async fn favicon_request_gets_no_error() {
    let gateway = GatewayWithAuth::start();
    assert_eq!(gateway.request(&Method::GET, "/favicon.ico").send().await.unwrap().status(), 204);
    let log = gateway.log();
    let is_noise = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
    let noise: Vec<_> = log.lines().filter(is_noise).filter(|line| line.contains("request{")).collect();
    assert!(noise.is_empty(), "{noise:?}");
}
