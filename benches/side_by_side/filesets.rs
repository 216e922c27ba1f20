//! Archiving of a dataset, compared with `curl --parallel` into a folder. `tidings ingest` also asks the platform for the list
//! of the files, hashes each file with three algorithms, waits until it is on disk, and puts it into an item.
//!
//! A second part archives 64 files of 1 GiB, and shows the memory. `TIDINGS_BENCH_GIB` sets another number of files.

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract,
    http::header::{CONTENT_LENGTH, CONTENT_TYPE},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime::Runtime};

use super::{
    downloads::curl,
    harvests::write_config,
    journal::runtime,
    measure::{Contender, compare},
};

const FILES: usize = 200;

/// Size of a file, in bytes.
const BYTES: usize = 1_000_000;

/// Number of requests at a time.
const CONNECTIONS: usize = 8;

const ROUNDS: usize = 5;

/// Size of a piece of a large file, in bytes.
const PIECE: usize = 64 * 1024;

const GIB: usize = 1 << 30;

pub(crate) fn measure() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = runtime();
    let url = server(&runtime, FILES, BYTES);
    let urls: Vec<String> = (0..FILES).map(|number| format!("{url}/files/{number}")).collect();
    compare(
        &format!("dataset of {FILES} files of {BYTES} bytes"),
        "files",
        ROUNDS,
        vec![
            Contender::timed("curl --parallel", || curl(&urls, CONNECTIONS)),
            Contender::timed("tidings ingest", || {
                let (time, _) = ingest(&url, FILES);
                (FILES as u64, time)
            }),
        ],
    );
    let files = std::env::var("TIDINGS_BENCH_GIB").map_or(64, |number| number.parse().unwrap());
    let url = server(&runtime, files, GIB);
    let (time, memory) = ingest(&url, files);
    let speed = (files * 1024) as f64 / time.as_secs_f64();
    println!("dataset of {files} files of 1 GiB: {speed:.0} MiB/s, at most {memory} KiB in memory\n");
}

/// Starts a server with one dataset of Zenodo, and returns its URL.
fn server(runtime: &Runtime, files: usize, bytes: usize) -> String {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let base = url.clone();
    let list = move || async move {
        let file = |number: usize| {
            json!({ "key": format!("{number}.dat"), "size": bytes,
                "links": { "content": format!("{base}/files/{number}") } })
        };
        let files: Vec<Value> = (0..files).map(file).collect();
        Json(json!({ "id": 17, "metadata": { "access_right": "open" }, "files": files }))
    };
    let router = Router::new()
        .route("/records/17", get(|| async { Html("<title>A dataset</title>") }))
        .route("/api/records/17", get(list))
        .route("/files/{number}", get(move |extract::Path(number)| async move { file(number, bytes) }));
    runtime.spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

/// Returns a file. Small ones differ from each other, and large ones are made while they are sent.
fn file(number: u64, bytes: usize) -> Response {
    let media_type = (CONTENT_TYPE, "application/x-bench".to_owned());
    if bytes <= BYTES {
        let mut content = vec![b'x'; bytes];
        content[..8].copy_from_slice(&number.to_be_bytes());
        return ([media_type], content).into_response();
    }
    let piece = Bytes::from(vec![b'x'; PIECE]);
    let pieces = stream::iter((0..bytes / PIECE).map(move |_| Ok::<_, std::io::Error>(piece.clone())));
    ([media_type, (CONTENT_LENGTH, bytes.to_string())], Body::from_stream(pieces)).into_response()
}

/// Archives the dataset; returns the time, and the maximum memory of the program in KiB.
fn ingest(url: &str, files: usize) -> (Duration, u64) {
    let folder = tempfile::tempdir().unwrap();
    let lines = format!(
        "[delivery]\nallow = [\"127.0.0.1\"]\n[filesets]\nconcurrency = {CONNECTIONS}\n\
         [filesets.platforms]\nzenodo = [\"{url}\"]\n"
    );
    let config = write_config(folder.path(), &lines);
    let usage = folder.path().join("usage");
    let began = Instant::now();
    let mut time = Command::new("/usr/bin/time");
    time.args(["--format", "%M", "--output"]).arg(&usage).arg(env!("CARGO_BIN_EXE_tidings"));
    time.args(["ingest", "--json", "--config"]).arg(config).arg("--folder").arg(folder.path().join("archive"));
    let output = time.arg(format!("{url}/records/17")).stderr(Stdio::inherit()).output().unwrap();
    let elapsed = began.elapsed();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&result["status"], &result["file_count"]), (&json!("success"), &json!(files)), "{result}");
    (elapsed, fs::read_to_string(usage).unwrap().trim().parse().unwrap())
}
