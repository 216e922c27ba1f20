//! The stream as server-sent events (section 5.8): an event `data` with an array of changes, and after each an event `control`
//! with the offset.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use chrono::Utc;
use futures_util::stream;
use serde::Serialize;
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::{Offset, StreamPart, StreamRequest, interval};
use crate::{
    model::Seq,
    view::live_readers::ReaderPermit,
    web::{Content, Problem, StreamingResponse},
};

/// Time after which the response ends, so that readers spread over servers again.
const DURATION: Duration = Duration::from_secs(60);

/// Time without changes after which an event `control` keeps the connection alive.
const IDLE: Duration = Duration::from_secs(15);

/// Header that turns off buffering in nginx.
const UNBUFFERED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// Data of an event `control`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Control {
    stream_next_offset: String,
    stream_cursor: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    up_to_date: bool,
}

/// State of a response.
struct EventWriter {
    request: StreamRequest,
    head: watch::Receiver<Seq>,
    after: Seq,
    /// The part that was read before the response began.
    first: Option<StreamPart>,
    /// The array of an event, the number of its bytes that were sent, and what follows it.
    data: Option<(Content, u64, Bytes)>,
    /// Whether the reader knows that there are no later changes.
    has_told: bool,
    /// Time at which an event was last sent.
    sent: Instant,
    end: Instant,
    _permit: ReaderPermit,
}

impl StreamRequest {
    /// Returns the events from the place on.
    pub(super) async fn events(self) -> Result<Response, Problem> {
        let permit = self.view.readers.admit("stream", &self.client)?;
        let after = self.start().await?;
        let head = self.view.readers.head();
        // An error is a status while that is still possible.
        let first = Some(self.read(after).await?);
        // Readers that began together must not all reconnect together.
        let duration = DURATION.min(self.view.readers.limits().stream).mul_f64(0.9 + 0.1 * fastrand::f64());
        let (now, request) = (Instant::now(), self);
        let writer = EventWriter {
            request,
            head,
            after,
            first,
            data: None,
            has_told: false,
            sent: now,
            end: now + duration,
            _permit: permit,
        };
        let events = stream::unfold(writer, async |mut writer| {
            let piece = writer.next().await?;
            Some((Ok::<_, Infallible>(piece), writer))
        });
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            UNBUFFERED,
        ];
        let mut response = (headers, Body::from_stream(events)).into_response();
        response.extensions_mut().insert(StreamingResponse);
        Ok(response)
    }
}

impl EventWriter {
    /// Returns the next piece; `None` at the end. A failure ends the response, and the next request reports it.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(piece) = self.next_of_data().await? {
            return Some(piece);
        }
        loop {
            if Instant::now() >= self.end {
                return None;
            }
            self.head.borrow_and_update();
            let StreamPart { page, next, is_up_to_date } = match self.first.take() {
                Some(first) => first,
                None => self.request.read(self.after).await.ok()?,
            };
            self.after = next.seq;
            let control = control(next, is_up_to_date);
            if page.count > 0 {
                (self.sent, self.has_told) = (Instant::now(), is_up_to_date);
                let (before, after) = (Bytes::from_static(b"event: data\ndata: "), [b"\n\n", &control[..]].concat());
                // In one piece, if possible: a connection that ends before the offset brings the changes again.
                return Some(match page.into_content() {
                    Content::Memory(changes) => [&before[..], &changes, &after].concat().into(),
                    content => {
                        self.data = Some((content, 0, after.into()));
                        before
                    }
                });
            }
            // A reader with a filter learns how far its changes were looked for.
            if !is_up_to_date || !self.has_told || Instant::now() >= self.sent + IDLE {
                (self.sent, self.has_told) = (Instant::now(), is_up_to_date);
                return Some(control);
            }
            if let Ok(changed) = timeout_at((self.sent + IDLE).min(self.end), self.head.changed()).await {
                changed.ok()?;
            }
        }
    }

    /// Returns the next piece of the event that was begun.
    async fn next_of_data(&mut self) -> Option<Option<Bytes>> {
        let Some((content, sent, _)) = &mut self.data else { return Some(None) };
        if let Some(piece) = content.piece(*sent).await.ok()? {
            *sent += piece.len() as u64;
            return Some(Some(piece));
        }
        Some(self.data.take().map(|(_, _, rest)| rest))
    }
}

/// Returns an event `control`.
fn control(next: Offset, up_to_date: bool) -> Bytes {
    let stream_cursor = interval(Utc::now()).to_string();
    let control = Control { stream_next_offset: next.to_string(), stream_cursor, up_to_date };
    // Serialization cannot fail: all values are texts and flags.
    format!("event: control\ndata: {}\n\n", serde_json::to_string(&control).unwrap_or_default()).into()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{Offset, Seq, control};

    #[test]
    fn control_says_that_it_is_up_to_date_only_if_it_is() {
        let text = |up_to_date| {
            String::from_utf8(control(Offset::new(Seq(7), Uuid::from_u128(0)), up_to_date).to_vec()).unwrap()
        };
        assert!(
            text(true).starts_with("event: control\ndata: {\"streamNextOffset\":\"00000000000000000007_00000000\"")
        );
        assert!(text(true).ends_with(",\"upToDate\":true}\n\n") && !text(false).contains("upToDate"));
    }
}
