//! Server that answers as the landing pages and the interfaces of data platforms do, from a script.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, Request, Response},
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::Value;

/// An answer to a request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// Number of times that the body is sent.
    repeats: usize,
}

impl Answer {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), repeats: 1 }
    }

    /// Returns an answer with so many zeros, in pieces of a MiB.
    pub(crate) fn zeros(bytes: usize) -> Self {
        Self { repeats: bytes >> 20, ..Self::new(200, vec![0; 1 << 20]) }.with("content-length", bytes.to_string())
    }

    pub(crate) fn json(document: &Value) -> Self {
        Self::new(200, document.to_string()).with("content-type", "application/json")
    }

    /// Returns the answer with another body.
    pub(crate) fn body(self, body: Vec<u8>) -> Self {
        Self { body, ..self }
    }

    /// Returns the answer with another status.
    pub(crate) fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn html(page: &str) -> Self {
        Self::new(200, page).with("content-type", "text/html; charset=utf-8")
    }

    pub(crate) fn redirect(to: impl Into<String>) -> Self {
        Self::new(302, "").with("location", to)
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// A request that the server got.
#[derive(Clone, Debug)]
pub(crate) struct PlatformRequest {
    /// Path and query.
    pub(crate) place: String,
    pub(crate) method: String,
    /// The header `Authorization`.
    pub(crate) token: Option<String>,
    /// The header `X-Dataverse-key`.
    pub(crate) key: Option<String>,
    /// The header `Cookie`.
    pub(crate) cookie: Option<String>,
    /// The header `Range`.
    pub(crate) range: Option<String>,
    /// The header `User-Agent`.
    pub(crate) agent: Option<String>,
    pub(crate) body: String,
}

#[derive(Default)]
struct Script {
    /// Answers by path and query, or by path. The last one of a list is repeated.
    answers: HashMap<String, Vec<Answer>>,
    requests: Vec<PlatformRequest>,
}

/// The server. It ends with the runtime of the test.
#[derive(Clone)]
pub(crate) struct PlatformServer {
    script: Arc<Mutex<Script>>,
    pub(crate) url: String,
}

impl PlatformServer {
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1").await
    }

    /// Starts a server at an address of its own, as another host.
    pub(crate) async fn start_at(address: &str) -> Self {
        let listener = tokio::net::TcpListener::bind((address, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { script: Arc::default(), url };
        let router = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    /// Sets the answer at a path, with or without a query.
    pub(crate) fn put(&self, place: &str, answer: Answer) {
        self.put_series(place, vec![answer]);
    }

    /// Sets the successive answers at a place.
    pub(crate) fn put_series(&self, place: &str, answers: Vec<Answer>) {
        self.script.lock().unwrap().answers.insert(place.to_owned(), answers);
    }

    pub(crate) fn requests(&self) -> Vec<PlatformRequest> {
        self.script.lock().unwrap().requests.clone()
    }

    fn answer(&self, method: &str, place: &str, headers: &HeaderMap, body: &[u8]) -> Answer {
        let mut script = self.script.lock().unwrap();
        let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let [token, key, cookie, range, agent] =
            ["authorization", "x-dataverse-key", "cookie", "range", "user-agent"].map(header);
        let (method, body) = (method.to_owned(), String::from_utf8_lossy(body).into_owned());
        let place_of_request = place.to_owned();
        script.requests.push(PlatformRequest {
            place: place_of_request,
            method,
            token,
            key,
            cookie,
            range,
            agent,
            body,
        });
        let path = place.split('?').next().unwrap();
        let known = [place, path].into_iter().find(|place| script.answers.contains_key(*place));
        let Some(answers) = known.and_then(|known| script.answers.get_mut(known)) else {
            return Answer::new(404, "not found");
        };
        if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
    }
}

async fn answer(State(server): State<PlatformServer>, request: Request<Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let place = head.uri.path_and_query().unwrap().as_str();
    let Answer { status, headers, body, repeats } = server.answer(head.method.as_str(), place, &head.headers, &body);
    let mut response = Response::builder().status(status);
    let has_length = headers.iter().any(|(name, _)| *name == "content-length");
    for (name, value) in headers {
        response = response.header(name, value);
    }
    let body = Bytes::from(body);
    if !has_length {
        return response.body(Body::from(body)).unwrap();
    }
    // The length of a stream may differ from the header. It breaks off after the client has got what there is.
    let pieces = stream::iter(std::iter::repeat_n(body, repeats)).map(Ok);
    let end = stream::once(async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Err(io::Error::other("the body ends too early"))
    });
    response.body(Body::from_stream(pieces.chain(end))).unwrap()
}
