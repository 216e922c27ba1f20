//! Server with one dataset of Zenodo, whose files are sent slowly and with ranges.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Request, Response, header},
};
use futures_util::stream;
use md5::{Digest, Md5};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// Number of bytes of a piece.
const PIECE: usize = 64 * 1024;

/// A file of the dataset.
#[derive(Clone)]
struct DatasetFile {
    content: Bytes,
    /// Whether the list has the MD5 of the content.
    has_digest: bool,
}

/// Requests for a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileRequests {
    /// Requests for the whole file.
    pub(crate) whole: usize,
    /// Requests for the rest of it.
    pub(crate) rest: usize,
}

#[derive(Default)]
struct Script {
    files: Vec<(String, DatasetFile)>,
    requests: HashMap<String, FileRequests>,
    /// Number of transfers that wait in the middle of a file.
    waiting: usize,
    /// Status and body of the list of files instead of the list.
    refusal: Option<(u16, &'static str)>,
}

/// The server. It ends with the runtime of the test.
#[derive(Clone)]
pub(crate) struct DatasetServer {
    script: Arc<Mutex<Script>>,
    /// Permits, one for each file that may be sent to its end.
    ends: Arc<Semaphore>,
    pub(crate) url: String,
}

/// A transfer that waits in the middle of a file.
struct Waiting(DatasetServer);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.script.lock().unwrap().waiting -= 1;
    }
}

impl DatasetServer {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { script: Arc::default(), ends: Arc::new(Semaphore::new(1 << 20)), url };
        let router = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    /// Returns the URL of the dataset.
    pub(crate) fn dataset(&self) -> String {
        format!("{}/records/17", self.url)
    }

    /// Sets a file.
    pub(crate) fn put(&self, path: &str, content: impl Into<Bytes>) {
        self.set(path, DatasetFile { content: content.into(), has_digest: true });
    }

    /// Sets a file of which the list has only the size.
    pub(crate) fn put_without_digest(&self, path: &str, content: impl Into<Bytes>) {
        self.set(path, DatasetFile { content: content.into(), has_digest: false });
    }

    fn set(&self, path: &str, file: DatasetFile) {
        let mut script = self.script.lock().unwrap();
        script.files.retain(|(name, _)| name != path);
        script.files.push((path.to_owned(), file));
    }

    /// Removes a file.
    pub(crate) fn remove(&self, path: &str) {
        self.script.lock().unwrap().files.retain(|(name, _)| name != path);
    }

    /// Refuses the list of files with this status and body; `None` ends that.
    pub(crate) fn refuse(&self, refusal: Option<(u16, &'static str)>) {
        self.script.lock().unwrap().refusal = refusal;
    }

    /// Lets only this number of files reach their end from now on.
    pub(crate) fn allow_ends(&self, number: usize) {
        self.ends.forget_permits(usize::MAX);
        self.ends.add_permits(number);
    }

    /// Returns the number of transfers that wait in the middle of a file.
    pub(crate) fn waiting(&self) -> usize {
        self.script.lock().unwrap().waiting
    }

    /// Returns the requests for a file.
    pub(crate) fn requests(&self, path: &str) -> FileRequests {
        self.script.lock().unwrap().requests.get(path).copied().unwrap_or_default()
    }

    fn list(&self) -> Value {
        let script = self.script.lock().unwrap();
        let file = |(path, file): &(String, DatasetFile)| {
            let digest = file.has_digest.then(|| format!("md5:{}", hex::encode(Md5::digest(&file.content))));
            json!({
                "key": path, "size": file.content.len(), "checksum": digest,
                "links": { "content": format!("{}/f/{path}", self.url) },
            })
        };
        let files: Vec<_> = script.files.iter().map(file).collect();
        json!({ "id": 17, "metadata": { "access_right": "open" }, "files": files })
    }

    fn file(&self, path: &str, headers: &HeaderMap) -> Response<Body> {
        let offset = headers.get(header::RANGE).map(|range| {
            let range = range.to_str().unwrap().strip_prefix("bytes=").unwrap();
            range.trim_end_matches('-').parse::<usize>().unwrap()
        });
        let content = {
            let mut script = self.script.lock().unwrap();
            let requests = script.requests.entry(path.to_owned()).or_default();
            if offset.is_some() {
                requests.rest += 1;
            } else {
                requests.whole += 1;
            }
            script.files.iter().find(|(name, _)| name == path).unwrap().1.content.clone()
        };
        let (start, all) = (offset.unwrap_or(0), content.len());
        let response = Response::builder()
            .header(header::ETAG, format!("\"{}\"", hex::encode(Md5::digest(&content))))
            .header(header::CONTENT_TYPE, "text/csv")
            .header(header::CONTENT_LENGTH, all - start);
        let response = match offset {
            Some(start) => {
                response.status(206).header(header::CONTENT_RANGE, format!("bytes {start}-{}/{all}", all - 1))
            }
            None => response,
        };
        let server = self.clone();
        let pieces = stream::unfold((start, None), move |(at, permit)| {
            let (server, content) = (server.clone(), content.clone());
            async move {
                if at >= content.len() {
                    return None;
                }
                let mut permit = permit;
                if permit.is_none() && (at >= content.len() / 2 || content.len() <= PIECE) {
                    server.script.lock().unwrap().waiting += 1;
                    let waiting = Waiting(server.clone());
                    let end = Arc::clone(&server.ends).acquire_owned().await.unwrap();
                    end.forget();
                    drop(waiting);
                    permit = Some(());
                }
                let end = content.len().min(at + PIECE);
                Some((Ok::<_, std::io::Error>(content.slice(at..end)), (end, permit)))
            }
        });
        response.body(Body::from_stream(pieces)).unwrap()
    }
}

async fn answer(State(server): State<DatasetServer>, request: Request<Body>) -> Response<Body> {
    let path = request.uri().path();
    if let Some(path) = path.strip_prefix("/f/") {
        return server.file(path, request.headers());
    }
    let refusal = server.script.lock().unwrap().refusal;
    match (path, refusal) {
        ("/records/17", _) => {
            Response::builder().header(header::CONTENT_TYPE, "text/html").body("<html>A dataset".into()).unwrap()
        }
        ("/api/records/17", Some((status, body))) => Response::builder().status(status).body(body.into()).unwrap(),
        ("/api/records/17", None) => Response::builder()
            .header(header::CONTENT_TYPE, "application/json")
            .body(server.list().to_string().into())
            .unwrap(),
        _ => Response::builder().status(404).body(Body::empty()).unwrap(),
    }
}
