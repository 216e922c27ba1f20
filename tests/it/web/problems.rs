//! Every error of a router built on `web` is a problem document with its code and the headers that belong to
//! the error.

use std::time::Duration;

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    middleware::from_fn_with_state,
    routing::{get, post},
};
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;
use tidings::web;
use tokio::net::TcpListener;
use tower_http::catch_panic::CatchPanicLayer;

#[derive(Deserialize)]
#[expect(dead_code, reason = "only the result of parsing matters")]
struct Page {
    limit: Option<u64>,
}

async fn never() {
    std::future::pending::<()>().await;
}

fn router() -> Router {
    Router::new()
        .route("/page", get(async |_: web::Query<Page>| "page"))
        .route("/pages/{number}", get(async |_: web::Path<u64>| "page"))
        .route("/message", post(async |_: web::Body| "taken"))
        .route("/form", post(async |_: axum::extract::Json<Value>| "taken"))
        .route("/panic", get(async |request: Request| assert_eq!(request.uri().path(), "/", "it broke")))
        .route("/never", get(never))
        .route("/teapot", get(async || (StatusCode::IM_A_TEAPOT, [("x-spout", "here")], "short and stout")))
        .route("/mute", get(async || StatusCode::BAD_GATEWAY))
        .fallback(web::not_found)
        .method_not_allowed_fallback(web::method_not_allowed)
        .layer(CatchPanicLayer::custom(web::panic_response))
        .layer(from_fn_with_state(
            web::RequestPolicy::new(16, 1024, Duration::from_millis(50), Duration::ZERO),
            web::apply_request_policy,
        ))
}

#[tokio::test]
async fn web_errors_are_problem_documents() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, router()).into_future());
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(Duration::from_secs(10)).build().unwrap();

    let long = format!("/{}", "x".repeat(40_000));
    for (method, path, body, status, code, expected) in [
        (Method::GET, long.as_str(), "", 414, "address-too-long", "32768 bytes"),
        (Method::GET, "/nowhere", "", 404, "not-found", "/nowhere"),
        (Method::GET, "/page?limt=1", "", 400, "invalid-query", "did you mean \"limit\"?"),
        (Method::GET, "/page?limit=x", "", 400, "invalid-query", "\"x\" is not a whole number, 0 or more"),
        (Method::GET, "/pages/x", "", 404, "not-found", "\"x\" is not a whole number, 0 or more"),
        (Method::GET, "/pages/%ff", "", 404, "not-found", "UTF-8"),
        (Method::DELETE, "/page", "", 405, "method-not-allowed", "DELETE"),
        (Method::POST, "/message", "more than 16 bytes", 413, "body-too-large", "limits.body_bytes"),
        (Method::POST, "/form", "{}", 400, "bad-request", "415"),
        (Method::GET, "/panic", "", 500, "internal", "log"),
        (Method::GET, "/never", "", 503, "timeout", "send it again"),
        (Method::GET, "/teapot", "", 400, "bad-request", "418"),
        (Method::GET, "/mute", "", 500, "internal", "log"),
    ] {
        let request = format!("{method} {path}");
        let response = client.request(method, format!("{base}{path}")).body(body).send().await.unwrap();
        assert_eq!(response.status(), status, "{request}");
        assert_eq!(response.headers()["content-type"], "application/problem+json", "{request}");
        let headers = response.headers().clone();
        let problem: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        assert_eq!(problem["type"], format!("urn:tidings:problem:{code}"), "{request}");
        assert_eq!(problem["status"], status, "{request}");
        assert!(problem["detail"].as_str().unwrap().contains(expected), "{request}: {problem}");
        assert!(!problem.to_string().contains("it broke"), "{request} tells the client what is for the log");
        match code {
            "method-not-allowed" => assert_eq!(headers["allow"], "GET,HEAD"),
            "timeout" => assert_eq!(headers["retry-after"], "1"),
            _ if status == 400 && expected == "418" => assert_eq!(headers["x-spout"], "here"),
            _ => {}
        }
    }
    let many = (0..65).fold(client.get(format!("{base}/page")), |get, n| get.header(format!("x-{n}"), "y"));
    let refused = many.send().await.unwrap();
    assert_eq!(refused.status(), 431);
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    assert!(refused.text().await.unwrap().contains("urn:tidings:problem:head-too-large"));
    let page = client.get(format!("{base}/page?limit=1")).send().await.unwrap();
    assert_eq!((page.status().as_u16(), page.text().await.unwrap().as_str()), (200, "page"));
}
