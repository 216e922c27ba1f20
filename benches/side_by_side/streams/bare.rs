//! Minimal stream server: axum with blocks of bytes, which it sends to all clients when it is triggered.

use std::{convert::Infallible, path::Path, sync::Arc};

use axum::{
    Router,
    body::Body,
    http::header::CONTENT_TYPE,
    response::IntoResponse,
    routing::{get, post},
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::sync::watch;

/// Environment variable that makes this program the minimal server. It names the file with the blocks, one per event,
/// as recorded from a stream of the gateway.
pub(crate) const SERVE: &str = "TIDINGS_BENCH_BARE_STREAM";

/// Serves until the process is killed.
pub(crate) fn serve(blocks: &Path) {
    let bytes = Bytes::from(std::fs::read(blocks).unwrap());
    let mut pieces = Vec::new();
    let mut start = 0;
    for end in memchr::memmem::find_iter(&bytes, b"\n\n") {
        pieces.push(bytes.slice(start..end + 2));
        start = end + 2;
    }
    let pieces: Arc<[Bytes]> = pieces.into();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (turn, turns) = watch::channel(0_u64);
        let streaming = move || {
            let (pieces, mut turns) = (Arc::clone(&pieces), turns.clone());
            turns.mark_unchanged();
            async move {
                let opening = stream::once(async { Ok::<_, Infallible>(Bytes::from_static(b":\n")) });
                let events = async move {
                    let _ = turns.changed().await;
                    let count = pieces.len();
                    stream::iter((0..count).map(move |index| Ok(pieces[index].clone())))
                };
                let body = Body::from_stream(opening.chain(stream::once(events).flatten()));
                ([(CONTENT_TYPE, "text/event-stream")], body).into_response()
            }
        };
        let releasing = async move || turn.send_modify(|turn| *turn += 1);
        let router = Router::new().route("/stream", get(streaming)).route("/release", post(releasing));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("listening on http://{}", listener.local_addr().unwrap());
        axum::serve(listener, router).await.unwrap();
    });
}
