//! State of one connection, from which the server knows when it can close it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    http::header::{CONNECTION, HeaderValue},
    response::Response,
};
use tokio_util::sync::CancellationToken;

use super::connections::Probation;

/// Time for which a connection must be idle before it is closed to make room. A client that sends one request after
/// another makes no such pause, even if it is busy, so none of its requests meets a connection that has just been
/// closed.
const IDLE_TIME: Duration = Duration::from_secs(3);

/// Time in which a client must read the end of a streaming response when the server stops.
const STREAMING_GRACE: Duration = Duration::from_millis(500);

/// Time from the opening of a connection in which its first request is still served when the server stops, because the client
/// cannot know that the server does.
pub(super) const FIRST_REQUEST_TIME: Duration = Duration::from_millis(500);

/// Extension that marks a streaming response: its body ends only after a time limit or when the server stops, and its
/// client can resume it anywhere. The connection closes with the response. A client that does not read the end of the
/// response does not delay the stop of the server.
#[derive(Clone, Copy, Debug)]
pub struct StreamingResponse;

/// State shared by the parts of one connection.
pub(super) struct ConnectionState {
    opened: Instant,
    /// Milliseconds from `opened` to the last time at which bytes were read or written.
    last_active: AtomicU64,
    /// Set once a request has begun.
    has_begun: AtomicBool,
    /// Set while headers are being received, and before the first request. A timeout is then a slow request and no
    /// idleness between two requests.
    awaits_headers: AtomicBool,
    /// Set once the newest request has a response, and before the first request. Further data then belongs to the
    /// next request.
    is_answered: AtomicBool,
    /// Set if the newest response is a [`StreamingResponse`].
    is_streaming: AtomicBool,
    /// Probation of the connection.
    probation: Arc<Probation>,
}

impl ConnectionState {
    /// Returns the state of a connection that has just been accepted.
    pub(super) fn new(probation: Arc<Probation>) -> Self {
        Self {
            opened: Instant::now(),
            last_active: AtomicU64::new(0),
            has_begun: AtomicBool::new(false),
            awaits_headers: AtomicBool::new(true),
            is_answered: AtomicBool::new(true),
            is_streaming: AtomicBool::new(false),
            probation,
        }
    }

    /// Returns true if the connection can close without the loss of a request. While a request is being handled, its
    /// response can announce the end of the connection (RFC 9112, section 9.6). After that the next request may be on
    /// its way, until the connection has been idle for [`IDLE_TIME`].
    pub(super) fn can_close(&self) -> bool {
        if !self.is_answered.load(Ordering::Relaxed) {
            return true;
        }
        let last_active = Duration::from_millis(self.last_active.load(Ordering::Relaxed));
        !self.awaits_headers() && self.opened.elapsed().saturating_sub(last_active) >= IDLE_TIME
    }

    /// Returns true while headers are being received, and before the first request.
    pub(super) fn awaits_headers(&self) -> bool {
        self.awaits_headers.load(Ordering::Relaxed)
    }

    /// Returns the probation of the connection.
    pub(super) fn probation(&self) -> &Arc<Probation> {
        &self.probation
    }

    /// Notes that bytes of a request have been read.
    pub(super) fn bytes_read(&self) {
        self.touch();
        self.awaits_headers.store(true, Ordering::Relaxed);
        if self.is_answered.load(Ordering::Relaxed) {
            self.probation.begin();
        }
    }

    /// Notes that bytes of a response are written.
    pub(super) fn bytes_written(&self) {
        self.touch();
        self.awaits_headers.store(false, Ordering::Relaxed);
    }

    fn touch(&self) {
        let elapsed = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_active.store(elapsed, Ordering::Relaxed);
    }

    /// Waits for the first request of a new connection, but not for long.
    pub(super) async fn first_request(&self) {
        if !self.has_begun.load(Ordering::Relaxed) {
            tokio::time::sleep(FIRST_REQUEST_TIME.saturating_sub(self.opened.elapsed())).await;
        }
    }

    /// Notes that the headers of a request are complete.
    pub(super) fn request_begins(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
        self.probation.end();
        self.is_answered.store(false, Ordering::Relaxed);
    }

    /// Updates the state for a response. No request follows a streaming response, so no further data from its client
    /// starts the probation.
    pub(super) fn response_begins(&self, response: &mut Response) {
        let is_streaming = response.extensions().get::<StreamingResponse>().is_some();
        if is_streaming {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.probation.end();
        self.is_answered.store(!is_streaming, Ordering::Relaxed);
        self.is_streaming.store(is_streaming, Ordering::Relaxed);
    }

    /// Completes when the server has stopped and the client has not read the end of its streaming response in time.
    pub(super) async fn stream_timeout(&self, stop: &CancellationToken) {
        stop.cancelled().await;
        tokio::time::sleep(STREAMING_GRACE).await;
        if !self.is_streaming.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, sync::Arc, time::Instant};

    use axum::response::Response;

    use super::{ConnectionState, IDLE_TIME};
    use crate::web::connections::ConnectionTable;

    #[test]
    fn connection_closes_while_a_request_is_handled_and_after_the_idle_time() {
        let entry = ConnectionTable::new(1).admit(Ipv4Addr::LOCALHOST.into()).unwrap();
        let mut state = ConnectionState::new(Arc::clone(&entry.probation));
        assert!(!state.can_close(), "the first request may be on its way");
        state.bytes_read();
        assert!(!state.can_close(), "the headers are incomplete");
        state.request_begins();
        assert!(state.can_close(), "the response announces the end");
        state.response_begins(&mut Response::default());
        state.bytes_written();
        assert!(!state.can_close(), "the next request may be on its way");
        state.opened = Instant::now().checked_sub(IDLE_TIME * 2).unwrap();
        assert!(state.can_close(), "no request has come for a while");
        state.bytes_read();
        assert!(!state.can_close(), "the next request has come");
    }
}
