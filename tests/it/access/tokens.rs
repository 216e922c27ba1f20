//! Every route with each kind of valid and invalid credentials.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use reqwest::{Method, Response};
use serde_json::Value;
use tidings::{
    router::routes,
    web::{Route, Rule},
};

use crate::support::{
    gateway::{Gateway, PATIENCE},
    gateway_with_auth::{GatewayWithAuth, TOKENS, basic, message, signature, status_and_body},
};

/// Returns the tokens that a rule accepts, for the source fedora3.
fn accepted_tokens(rule: Rule) -> &'static [&'static str] {
    match rule {
        Rule::Open => &["tdg_reader", "tdg_fedora3", "tdg_islandora", "tdg_publisher", "tdg_admin", "tdg_expired"],
        Rule::Read | Rule::View(_) => &["tdg_reader", "tdg_admin"],
        Rule::Admin => &["tdg_admin"],
        Rule::Publish => &["tdg_fedora3", "tdg_publisher", "tdg_admin"],
    }
}

/// Returns a URL of the route; its parameters need not exist. The URL of the stream has an invalid query, so
/// that its response ends.
fn address(route: &Route) -> String {
    if route.path == "/stream" {
        return "/stream?after=none".to_owned();
    }
    route.path.replace("{source}", "fedora3").replace("{page}", "1").replace("{id}", "7").replace("{name}", "fedora3")
}

#[test]
fn public_routes_are_listed() {
    let of = |rule: Rule| -> Vec<String> {
        let routes = routes();
        routes
            .list()
            .filter(|route| route.rule == rule)
            .map(|route| format!("{} {}", route.method, route.path))
            .collect()
    };
    // The URL for the notifications of a hub has a secret token.
    let notifications = "/harvests/{name}/notifications/{token}";
    let notifications = ["GET", "POST"].map(|method| format!("{method} {notifications}"));
    let open: Vec<_> = of(Rule::Open).into_iter().filter(|route| !notifications.contains(route)).collect();
    // A hook repeats a challenge, and tells nothing.
    assert_eq!(
        open,
        [
            "GET /",
            "GET /favicon.ico",
            "GET /hooks/{source}",
            "GET /live",
            "GET /oai/schemas/{name}",
            "GET /healthz",
            "GET /readyz",
            "GET /docs"
        ]
    );
    assert_eq!(of(Rule::Publish), ["POST /hooks/{source}"]);
    let changing = |route: &String| !route.starts_with("GET ");
    // Subscribing counts as reading, because a subscriber controls only its own callback. The ranges of a comparison are too
    // many for a URL.
    let reading = routes();
    let reading = reading.list().filter(|route| matches!(route.rule, Rule::Read | Rule::View(_)));
    let reading = reading.map(|route| format!("{} {}", route.method, route.path));
    let changing: Vec<_> = reading.filter(changing).collect();
    assert_eq!(changing, ["POST /hub", "POST /oai", "POST /registry/digests"], "a reader changes nothing");
}

#[tokio::test]
async fn route_requires_the_scope_of_its_rule() {
    let gateway = GatewayWithAuth::start();
    let routes = routes();
    assert!(routes.list().count() >= 14);
    for route in routes.list() {
        let send = async |authorization: Option<&str>| {
            let mut request = gateway.request(&route.method, &address(route)).body(message(1));
            if let Some(authorization) = authorization {
                request = request.header("authorization", authorization);
            }
            status_and_body(request.send().await.unwrap()).await
        };
        let is_open = route.rule == Rule::Open;
        for wrong in [
            None,
            Some("Bearer tdg_unknown"),
            Some("Bearer tdg_expired"),
            Some("Bearer "),
            Some("Bearer tdg_admin2"),
            Some("Bearer tdg_admi"),
            Some("Token tdg_admin"),
            Some("tdg_admin"),
            Some("Digest username=\"tdg_admin\""),
            Some("Basic tdg_admin"),
            // The token as the user name, and a value without a colon.
            Some(&basic("tdg_admin", "")),
            Some(&format!("Basic {}", STANDARD.encode("tdg_admin"))),
            Some(&basic("me", "tdg_unknown")),
            Some(&basic("me", "tdg_expired")),
        ] {
            let (status, body) = send(wrong).await;
            assert_eq!(status == 401, !is_open, "{route:?} with {wrong:?}: {status} {body}");
            let usual = match &*route.path {
                path if path.ends_with("{token}") => 404,
                "/favicon.ico" => 204,
                "/oai/schemas/{name}" => 404,
                // Without a challenge.
                "/hooks/{source}" if is_open => 405,
                _ => 200,
            };
            assert!(status == 401 || status == usual, "{route:?} with {wrong:?}: {status} {body}");
            assert!(!body.contains("tdg_"), "{body}");
        }
        for (token, _) in TOKENS.iter().filter(|(token, _)| *token != "tdg_expired") {
            for right in
                [format!("Bearer {token}"), format!("bearer {token}"), basic("", token), basic("any one", token)]
            {
                let (status, body) = send(Some(&right)).await;
                if accepted_tokens(route.rule).contains(token) {
                    assert!(![401, 403].contains(&status) && status < 500, "{route:?} with {right}: {status} {body}");
                } else {
                    assert_eq!(status, 403, "{route:?} with {right}: {body}");
                    let problem: Value = serde_json::from_str(&body).unwrap();
                    let needed = match route.rule {
                        Rule::Read | Rule::View(_) => "read",
                        Rule::Admin => "admin",
                        Rule::Publish => "publish:fedora3",
                        Rule::Open => unreachable!(),
                    };
                    assert_eq!(problem["scope"], needed);
                    assert!(problem["detail"].as_str().unwrap().contains(needed), "{body}");
                }
            }
        }
        if route.method == Method::GET {
            let head = gateway.request(&Method::HEAD, &address(route)).send().await.unwrap();
            assert_eq!(head.status() == 401, !is_open, "HEAD {}", route.path);
        }
    }
    let nowhere = gateway.request(&Method::GET, "/nowhere").send().await.unwrap();
    assert_eq!(nowhere.status(), 404);
}

#[tokio::test]
async fn two_tokens_in_one_request_are_refused() {
    let gateway = GatewayWithAuth::start();
    let request = gateway.request(&Method::GET, "/changes").bearer_auth("tdg_reader").bearer_auth("tdg_admin");
    assert_eq!(request.send().await.unwrap().status(), 401);
}

#[test]
fn refused_request_is_drained_so_that_its_response_can_be_read() {
    let gateway = GatewayWithAuth::start();
    let mut slow = TcpStream::connect(gateway.gateway.url.strip_prefix("http://").unwrap()).unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = 4 << 20;
    write!(slow, "POST /hooks/fedora3 HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n").unwrap();
    for _ in 0..length / 4096 {
        slow.write_all(&[b'x'; 4096]).unwrap();
    }
    let mut answer = [0; 12];
    slow.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
}

#[tokio::test]
async fn source_names_are_hidden_without_a_token() {
    let gateway = GatewayWithAuth::start();
    let well_formed = signature("another key altogether", "x");
    for headers in [
        &[][..],
        &[("authorization", "Bearer tdg_x")],
        &[("x-hub-signature-256", "sha256=00")],
        &[("x-hub-signature-256", &well_formed)],
        &[("x-hub-signature-256", &well_formed), ("authorization", "Bearer tdg_x")],
    ] {
        let mut answers = Vec::new();
        for source in ["fedora3", "fedora", "nowhere"] {
            let post = headers.iter().fold(gateway.post(source, "x"), |post, (name, value)| post.header(*name, *value));
            answers.push(status_and_body(post.send().await.unwrap()).await);
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]) && answers[0].0 == 401, "{answers:?}");
    }
    let post = gateway.post("nowhere", "x").bearer_auth("tdg_fedora3");
    assert_eq!(status_and_body(post.send().await.unwrap()).await.0, 403);
    let post = gateway.post("nowhere", "x").bearer_auth("tdg_publisher");
    assert_eq!(status_and_body(post.send().await.unwrap()).await.0, 404);
}

#[tokio::test]
async fn responses_that_need_a_token_are_private_to_caches() {
    let gateway = GatewayWithAuth::start();
    let sent = gateway.post("fedora3", &message(1)).bearer_auth("tdg_fedora3").send().await.unwrap();
    let location = sent.headers()["location"].to_str().unwrap().to_owned();
    let open = Gateway::start(&gateway.folder.path().join("other"));
    assert_eq!(open.post("fedora3", "application/atom+xml", message(1)).await.0, 201);
    let id = open.changes().await[0]["id"].as_str().unwrap().to_owned();
    let id = id.rsplit(':').next().unwrap();
    let of_open = open.http.get(format!("{}/changes/{id}", open.url)).send().await.unwrap();
    let of_guarded = gateway.request(&Method::GET, &location).bearer_auth("tdg_reader").send().await.unwrap();
    let cache = |answer: &Response| answer.headers()["cache-control"].to_str().unwrap().to_owned();
    assert_eq!(cache(&of_open), "public, max-age=31536000, immutable");
    assert_eq!(cache(&of_guarded), "private, max-age=31536000, immutable");
}
