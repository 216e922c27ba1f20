//! `GET /stream`: the changes as server-sent events (WHATWG HTML, section 9.2), as they are recorded.
//!
//! A stream is only a cursor in the journal. It reads the next changes whenever its client has room for them. A slow
//! client is served everything it has missed, however far behind it is, and costs the journal one page. The newest
//! changes are in memory, each encoded once per format; all streams share these bytes. A large event is written to
//! disk ([`LargeEvents`]) and sent from there, so that a slow client costs one piece.
//!
//! A reconnecting client sends the last number that it has as `Last-Event-ID`, and the stream resumes there. This
//! header overrides `after`, because a browser reconnects to its original URL.
mod event;
mod large;
mod reader;

use axum::{
    body::Body,
    extract::State,
    http::{
        HeaderMap, HeaderName, HeaderValue,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use futures_util::stream;
use serde::{Deserialize, Deserializer};

pub(super) use self::large::LargeEvents;
use self::reader::StreamReader;
use super::{journal_problem, live_readers::LiveReaders, parameters::with_filter, store_problem};
use crate::{
    format::{FORMATS, FormatKind, format},
    model::{Seq, deserialize_str},
    web::{Client, Problem, ProblemCode, Query, ReadPermit, StreamingResponse, problems},
};

/// The media type of server-sent events.
const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("text/event-stream");

/// Header with the number of the last event that the client has.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Default format.
const DEFAULT_FORMAT: &str = "json";

/// Header that turns off buffering in nginx.
const UNBUFFERED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

with_filter! {
    /// The query of `GET /stream`.
    pub struct StreamQuery {
        /// Number of the change after which to begin, unless the request has `Last-Event-ID`. 0 is the position
        /// before the first change. Without either, the stream begins with the next change.
        #[param(value_type = Seq, required = false)]
        after: Option<Seq>,
        /// Format of the data. Default: `json`.
        #[param(value_type = String, required = false)]
        format: Option<Format>,
    }
}

/// The name of a format.
#[derive(Clone, Copy)]
struct Format(&'static FormatKind);

impl std::fmt::Debug for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name)
    }
}

impl<'de> Deserialize<'de> for Format {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_str(deserializer, |name| {
            // Events have no headers, so only formats without headers are possible.
            format(name).filter(|format| format.is_self_contained()).map(Self).ok_or_else(|| {
                let available = FORMATS.iter().filter(|format| format.is_self_contained());
                let names = available.map(|format| format.name).collect::<Vec<_>>().join(", ");
                format!("there is no event format {name:?}; there are {names}")
            })
        })
    }
}

/// An event of the stream.
#[derive(utoipa::ToSchema)]
#[schema(as = StreamEvent)]
#[expect(dead_code, reason = "events are written by hand; this describes them")]
struct EventView {
    /// Number of the change. An event with only an `id` is the cursor of the stream.
    id: String,
    /// Kind of change: `add`, `update`, `delete`, `state` or `mixed`.
    event: Option<String>,
    /// The change in the requested format.
    data: Option<String>,
    /// Reconnection time in milliseconds.
    retry: Option<u32>,
}

problems!(Problems: InvalidQuery, BadRequest, Gone, Unavailable, DamagedChange);

/// The changes as server-sent events, as they are recorded: `id` is the number of the change, `event` its kind
/// (`add`, `update`, `delete`, `state` or `mixed`), `data` the change. A client that reconnects with `Last-Event-ID`
/// misses nothing and receives nothing twice. The filter parameters are those of `/feed`.
///
/// # Errors
/// `invalid-query`; `bad-request` if `Last-Event-ID` is no number; `gone` if the change after that number has been
/// removed; `damaged-change` if that change is damaged (a stream ends before a damaged change); `unavailable` if too many
/// streams are open, or the journal cannot be read.
#[utoipa::path(
    get,
    path = "/stream",
    operation_id = "streamChanges",
    tag = "out",
    params(
        StreamQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "Number of the last change that the client has."),
    ),
    responses(
        (status = 200, description = "Events of this shape, until either side closes the connection.", body = EventView,
         content_type = "text/event-stream"),
        Problems,
    ),
)]
pub async fn follow(
    State(readers): State<LiveReaders>,
    permit: ReadPermit,
    client: Client,
    headers: HeaderMap,
    Query(mut query): Query<StreamQuery>,
) -> Result<Response, Problem> {
    let filter = query.filter(&permit)?;
    let format = query.format.map(|Format(format)| format).or_else(|| format(DEFAULT_FORMAT));
    let format = format.ok_or_else(|| Problem::internal("the default format of streams is missing"))?;
    let permit = readers.admit("stream", &client)?;
    let after = last_event_id(&headers)?.or(query.after);
    if let Some(after) = after {
        // Reports an error as a status while that is still possible.
        let _permit = readers.spool().page_permit().await;
        if let Some(next) = readers.read(after, 1, 1).await.map_err(journal_problem)?.first() {
            next.outline().map_err(store_problem)?;
        }
    }
    let reader = StreamReader::new(&readers, permit, filter, format, after);
    let events = stream::unfold(reader, async |mut reader| {
        let event = reader.next().await?;
        Some((Ok::<_, std::convert::Infallible>(event), reader))
    });
    let headers = [(CONTENT_TYPE, MEDIA_TYPE), (CACHE_CONTROL, HeaderValue::from_static("no-store")), UNBUFFERED];
    let mut response = (headers, Body::from_stream(events)).into_response();
    response.extensions_mut().insert(StreamingResponse);
    Ok(response)
}

/// Parses `Last-Event-ID`; `None` if it is missing or empty. A browser omits it before the first event; other clients
/// send it empty.
fn last_event_id(headers: &HeaderMap) -> Result<Option<Seq>, Problem> {
    let Some(id) = headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty()) else { return Ok(None) };
    let number = id.to_str().ok().and_then(|id| id.trim().parse().ok());
    number.map(|number| Some(Seq(number))).ok_or_else(|| {
        let detail = "Last-Event-ID is not a number of this journal: send the id of the last event from this gateway, or \
                      omit the header.";
        Problem::new(ProblemCode::BadRequest, detail)
    })
}
