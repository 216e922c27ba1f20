//! Server that plays the items of archive.org: its metadata, and its S3-like interface.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::State,
    http::{HeaderMap, Method, Request, Response, StatusCode},
};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::ingest_fixture::{md5, sha1};

/// An upload that the server has accepted.
#[derive(Clone, Debug)]
pub(crate) struct Upload {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
}

/// State of the server.
#[derive(Default)]
pub(crate) struct Items {
    /// Files of the items by `ITEM/PATH`.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    pub(crate) uploads: Vec<Upload>,
    /// Number of next uploads that are answered with these statuses and codes.
    pub(crate) refusals: Vec<(u16, &'static str)>,
    /// Number of next checks of the load that say that it is too high.
    pub(crate) over_limit: usize,
    /// Number of next requests of metadata that do not show new files.
    pub(crate) slow_metadata: usize,
    pub(crate) is_dark: bool,
}

#[derive(Clone)]
pub(crate) struct FakeArchiveOrg {
    pub(crate) items: Arc<Mutex<Items>>,
    pub(crate) url: String,
}

impl FakeArchiveOrg {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self { items: Arc::default(), url: format!("http://{}", listener.local_addr().unwrap()) };
        let router = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    /// Returns the files of an item.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.items.lock().unwrap().files.keys().cloned().collect()
    }

    fn metadata(&self, item: &str) -> Value {
        let mut items = self.items.lock().unwrap();
        if items.is_dark {
            return json!({ "is_dark": true });
        }
        let prefix = format!("{item}/");
        let mut files: Vec<_> = items.files.iter().filter(|(path, _)| path.starts_with(&prefix)).collect();
        if items.slow_metadata > 0 && !items.uploads.is_empty() {
            files.pop();
        }
        let file = |(path, content): (&String, &Vec<u8>)| {
            json!({ "name": path.strip_prefix(&prefix), "source": "original", "size": content.len().to_string(),
                "md5": md5(content), "sha1": sha1(content) })
        };
        let files: Vec<_> = files.into_iter().map(file).collect();
        if !items.uploads.is_empty() {
            items.slow_metadata = items.slow_metadata.saturating_sub(1);
        }
        if files.is_empty() { json!({}) } else { json!({ "metadata": { "identifier": item }, "files": files }) }
    }

    fn put(&self, path: String, headers: HeaderMap, content: Vec<u8>) -> Response<Body> {
        let mut items = self.items.lock().unwrap();
        let error = |status: u16, code: &str| {
            let body = format!("<?xml version='1.0'?><Error><Code>{code}</Code><Resource>x</Resource></Error>");
            Response::builder().status(status).body(Body::from(body)).unwrap()
        };
        if !items.refusals.is_empty() {
            let (status, code) = items.refusals.remove(0);
            return error(status, code);
        }
        let text = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        if text("content-md5") != md5(&content) {
            return error(400, "BadDigest");
        }
        if text("content-length") != content.len().to_string() {
            return error(411, "MissingContentLength");
        }
        if text("authorization") != "LOW access:secret" {
            return error(403, "InvalidAccessKeyId");
        }
        items.uploads.push(Upload { path: path.clone(), headers });
        items.files.insert(path, content);
        Response::new(Body::empty())
    }
}

async fn answer(State(server): State<FakeArchiveOrg>, request: Request<Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let path = percent_decode_str(head.uri.path()).decode_utf8().unwrap().into_owned();
    let query = head.uri.query().unwrap_or_default();
    let document = |value: &Value| Response::new(Body::from(value.to_string()));
    match (head.method, path.strip_prefix("/metadata/"), path.strip_prefix("/s3/")) {
        (Method::GET, Some(item), _) => document(&server.metadata(item)),
        (Method::GET, _, Some("")) if query.contains("check_limit=1&accesskey=access&bucket=") => {
            let mut items = server.items.lock().unwrap();
            let is_over = items.over_limit > 0;
            items.over_limit = items.over_limit.saturating_sub(1);
            document(&json!({ "over_limit": u8::from(is_over), "accesskey": "access", "detail": {} }))
        }
        (Method::PUT, _, Some(path)) => {
            let content = to_bytes(body, 1 << 24).await.unwrap();
            server.put(path.to_owned(), head.headers, content.to_vec())
        }
        _ => Response::builder().status(StatusCode::NOT_FOUND).body(Body::empty()).unwrap(),
    }
}
