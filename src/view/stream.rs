//! `GET /stream`: the changes as server-sent events (WHATWG HTML, section 9.2), as they come.
//!
//! A stream is a place in the journal and nothing more. What comes next is taken from there whenever the
//! client has room for it: a slow client is served what it has not had, however far behind it is, and costs
//! the journal a page. The newest changes are in memory, each encoded once a format, however many streams
//! there are; they share its bytes. A large one is written to disk ([`LargeEvents`]) and sent from there, so that slow
//! clients cost a piece each.
//!
//! A client that comes again tells the last number that it has by `Last-Event-ID`, and the stream goes on there.
//! That counts more than `after`, since a browser comes again with the address that it came with first.

mod event;
mod following;
mod large;

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

use self::following::Following;
pub(super) use self::large::LargeEvents;
use super::{journal_problem, parameters::with_filter, waiting::Waiting};
use crate::{
    format::{FORMATS, FormatKind, format},
    model::{Seq, deserialize_str},
    web::{Client, Problem, ProblemCode, Query, StreamingResponse, problems},
};

/// The media type of server-sent events.
const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("text/event-stream");

/// The header by which a client says what it had last.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The format where the client asks for none.
const DEFAULT_FORMAT: &str = "json";

/// Asks nginx not to gather what comes before it passes it on.
const UNBUFFERED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

with_filter! {
    /// The query of `GET /stream`.
    pub struct StreamQuery {
        /// The number after which to begin, where the request has no `Last-Event-ID`; 0 is the place before the first of all. Where
        /// neither is there, the stream begins with the next change.
        #[param(value_type = Seq, required = false)]
        after: Option<Seq>,
        /// The format of the data; `json` where it is absent.
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
            // An event has no headers.
            format(name).filter(|format| format.is_whole()).map(Self).ok_or_else(|| {
                let whole = FORMATS.iter().filter(|format| format.is_whole());
                let names = whole.map(|format| format.name).collect::<Vec<_>>().join(", ");
                format!("there is no format {name:?} of events; there are {names}")
            })
        })
    }
}

/// An event of the stream.
#[derive(utoipa::ToSchema)]
#[schema(as = StreamEvent)]
#[expect(dead_code, reason = "events are written by hand; this describes them")]
struct EventView {
    /// The number of the change; by itself, the place of the stream.
    id: String,
    /// What happened: `add`, `update`, `delete`, `state` or `mixed`.
    event: Option<String>,
    /// The change, in the format asked for.
    data: Option<String>,
    /// How long to wait before coming again, in milliseconds.
    retry: Option<u32>,
}

problems!(Problems: InvalidQuery, BadRequest, Gone, Unavailable);

/// The changes as server-sent events, as they come: `id` is the number of the change, `event` what happened
/// (`add`, `update`, `delete`, `state` or `mixed`), `data` the change. A client that comes again with
/// `Last-Event-ID` misses nothing and gets nothing twice. It is wanted or not by the same parameters as in `/feed`.
///
/// # Errors
/// `invalid-query`; `bad-request` where `Last-Event-ID` is no number; `gone` when the change after that number is no
/// longer kept; `unavailable` when too many streams are open, or the journal cannot be read.
#[utoipa::path(
    get,
    path = "/stream",
    operation_id = "streamChanges",
    tag = "out",
    params(
        StreamQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "The number of the last change that the client has."),
    ),
    responses(
        (status = 200, description = "The events, each as here, until either side ends it.", body = EventView,
         content_type = "text/event-stream"),
        Problems,
    ),
)]
pub async fn follow(
    State(waiting): State<Waiting>,
    client: Client,
    headers: HeaderMap,
    Query(mut query): Query<StreamQuery>,
) -> Result<Response, Problem> {
    let filter = query.filter()?;
    let format = query.format.map(|Format(format)| format).or_else(|| format(DEFAULT_FORMAT));
    let format = format.ok_or_else(|| Problem::internal("the default format of a stream is not there"))?;
    let place = waiting.admit("stream", &client)?;
    let told = last_event_id(&headers)?.or(query.after);
    if let Some(after) = told {
        // Whether the journal can go on there is told while there is still a status to tell it by.
        let _turn = waiting.spool().page_turn().await;
        waiting.read(after, 1, 1).await.map_err(journal_problem)?;
    }
    let following = Following::new(&waiting, place, filter, format, told);
    let events = stream::unfold(following, async |mut following| {
        let event = following.next().await?;
        Some((Ok::<_, std::convert::Infallible>(event), following))
    });
    let headers = [(CONTENT_TYPE, MEDIA_TYPE), (CACHE_CONTROL, HeaderValue::from_static("no-store")), UNBUFFERED];
    let mut response = (headers, Body::from_stream(events)).into_response();
    response.extensions_mut().insert(StreamingResponse);
    Ok(response)
}

/// What the client had last, if it says so. A browser sends none as long as there was none; others send it empty.
fn last_event_id(headers: &HeaderMap) -> Result<Option<Seq>, Problem> {
    let Some(told) = headers.get(LAST_EVENT_ID).filter(|told| !told.is_empty()) else { return Ok(None) };
    let number = told.to_str().ok().and_then(|told| told.trim().parse().ok());
    number.map(|number| Some(Seq(number))).ok_or_else(|| {
        let detail = "Last-Event-ID is not a number of this journal: send the id of the last event that came from here, or \
                      leave it out.";
        Problem::new(ProblemCode::BadRequest, detail)
    })
}
