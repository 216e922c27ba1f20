//! `GET /streams/changes`: the journal by the read side of the protocol Durable Streams 1.0, whose client libraries read pages
//! of history and then follow the head, by long poll or server-sent events.
//!
//! The numbers in parentheses are sections of the protocol. A server may have the read side alone (3); other methods are not
//! allowed.
//!
//! * Pages end at multiples of a thousand, so that all readers read the same ones, and a cache has each once.
//! * A page in history never changes, and its URL names the journal ([`offset`]), so it may be cached for ever. It has no cursor:
//!   clients would carry that into the URLs of all following pages.
//! * *Deviation:* the cursor of a long poll is the number of the present interval and nothing else. The protocol wants it greater
//!   than the client's, by a random amount, which gives each reader a URL of its own. The reason for that, an endless loop
//!   over a cached empty response, is ruled out, because an empty response takes longer than an interval.

mod events;
mod offset;

use std::time::Duration;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use utoipa::ToSchema;

use self::offset::{Offset, StreamPlace};
use super::{
    Changes,
    page::{Order, Page, PageFormat, Selection},
};
use crate::{
    journal::JournalError,
    model::{Change, Filter, Seq},
    view::{
        cache_control::{self, Lifetime},
        journal_problem,
        parameters::with_filter,
    },
    web::{Client, Problem, ProblemCode, Query, ReadPermit, WaitingRoute, problems},
};

/// Path of the stream.
const PATH: &str = "/streams/changes";

/// The stream, whose long polls wait.
pub const WAITING: WaitingRoute = WaitingRoute {
    path: PATH,
    wait: |query| {
        let mut parameters = url::form_urlencoded::parse(query.as_bytes());
        let is_long_poll = parameters.any(|(name, value)| name == "live" && value == "long-poll");
        if is_long_poll { LONG_POLL } else { Duration::ZERO }
    },
};

/// Number of changes after which pages end.
const SPAN: u64 = 1000;

/// Time that a long poll waits. It is longer than [`INTERVAL`].
const LONG_POLL: Duration = Duration::from_secs(30);

/// Length of the intervals that cursors number, and the begin of the first one (section 5.3).
const INTERVAL_SECONDS: u64 = 20;
const FIRST_INTERVAL: i64 = 1_728_432_000;

const NEXT_OFFSET: HeaderName = HeaderName::from_static("stream-next-offset");
const UP_TO_DATE: HeaderName = HeaderName::from_static("stream-up-to-date");
const CURSOR: HeaderName = HeaderName::from_static("stream-cursor");

/// Way of following the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = StreamFollowing)]
enum Live {
    /// The response waits for a change.
    LongPoll,
    /// Server-sent events.
    Sse,
}

with_filter! {
    /// The query of `GET /streams/changes`.
    pub struct StreamQuery {
        /// `Stream-Next-Offset` of the response before, `-1` for the oldest change, or `now` for the next one. Default: `-1`.
        /// `live` needs it.
        #[param(required = false)]
        offset: Option<String>,
        /// How to follow the head. Without it, the response is a page.
        #[param(inline, required = false)]
        live: Option<Live>,
        /// `Stream-Cursor` of the response before. It makes URLs of different times different.
        #[param(required = false)]
        cursor: Option<String>,
    }
}

problems!(Problems: InvalidQuery, Gone, Unavailable, DamagedChange);

/// The journal as a stream of the protocol Durable Streams 1.0, of which this is the read side. The body is an array of changes. Header
/// `Stream-Next-Offset` is the `offset` of the next request, and `Stream-Up-To-Date` says that there are no later changes. The
/// filter parameters are those of `/feed`.
///
/// # Errors
/// `invalid-query`; `gone` if the change after the offset has been removed, or the journal was restored since; `damaged-change`;
/// `unavailable` if too many readers wait, or the journal cannot be read.
#[utoipa::path(
    get,
    path = PATH,
    operation_id = "readChangeStream",
    tag = "out",
    params(StreamQuery),
    responses(
        (status = 200, description = "Changes.", content(
            (Vec<Change> = "application/json"), (String = "text/event-stream"),
        )),
        (status = 204, description = "There was no change for half a minute."),
        (status = 304, description = "Not modified."),
        Problems,
    ),
)]
pub async fn read(
    State(view): State<Changes>,
    permit: ReadPermit,
    client: Client,
    method: Method,
    headers: HeaderMap,
    Query(mut query): Query<StreamQuery>,
) -> Result<Response, Problem> {
    let filter = query.filter(&permit)?;
    let request = StreamRequest {
        filter: Some(filter).filter(|filter| *filter != Filter::default()),
        place: place(&query)?,
        view,
        permit,
        client,
    };
    let (permit, is_past_head) = (request.permit.clone(), request.is_past_head());
    let response = match query.live {
        _ if method == Method::HEAD => Ok(request.tail()),
        None => request.page(&headers).await,
        Some(Live::LongPoll) => request.long_poll(query.cursor.as_deref()).await,
        Some(Live::Sse) => request.events().await,
    };
    match response {
        // Many readers learn at the same time that their place is gone, but the head may come to it.
        Err(problem) if problem.code() == ProblemCode::Gone && !is_past_head => {
            let mut response = problem.into_response();
            response.headers_mut().insert(header::CACHE_CONTROL, Lifetime::Seconds(10).header(&permit));
            Ok(response)
        }
        response => response,
    }
}

/// Returns the place that a query names.
fn place(query: &StreamQuery) -> Result<StreamPlace, Problem> {
    let invalid = |detail: &str| Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", "offset");
    match &query.offset {
        Some(text) => StreamPlace::parse(text).ok_or_else(|| {
            invalid("offset is no position of this stream: give Stream-Next-Offset of the response before, -1 or now.")
        }),
        None if query.live.is_some() => {
            Err(invalid("live needs an offset: give that of the response before, -1 or now."))
        }
        None => Ok(StreamPlace::Beginning),
    }
}

/// A request for a part of the stream.
struct StreamRequest {
    view: Changes,
    permit: ReadPermit,
    client: Client,
    /// Conditions on the changes; `None` selects all changes.
    filter: Option<Filter>,
    place: StreamPlace,
}

/// Changes that were read, and where they end.
struct StreamPart {
    page: Page,
    next: Offset,
    /// Whether there was no later change.
    is_up_to_date: bool,
}

impl StreamRequest {
    /// Returns the number of the change after which the part begins.
    ///
    /// # Errors
    /// `gone` if the offset is not one of this journal; `unavailable`.
    async fn start(&self) -> Result<Seq, Problem> {
        let (journal, head) = (&self.view.journal, self.view.journal.head());
        match self.place {
            StreamPlace::Beginning => Ok(self.view.beginning()),
            StreamPlace::Now => Ok(head),
            // Another node, or a read from disk, can be ahead of this head.
            StreamPlace::After(offset) => {
                let has_position = journal.has_position(|identity| offset.is_of(identity), offset.seq).await;
                if has_position.map_err(journal_problem)? {
                    return Ok(offset.seq);
                }
                Err(journal_problem(JournalError::Gone { after: offset.seq, first: journal.first() }))
            }
        }
    }

    /// Returns whether the place is after the newest change that this node knows.
    fn is_past_head(&self) -> bool {
        matches!(self.place, StreamPlace::After(offset) if offset.seq > self.view.journal.head())
    }

    /// Reads the changes after a number, up to the end of their span.
    async fn read(&self, after: Seq) -> Result<StreamPart, Problem> {
        // A page that ends before this number has ended for another reason than the end of the journal.
        let head = self.view.journal.head();
        let limit = usize::try_from(SPAN - after.0 % SPAN).unwrap_or(usize::MAX).min(self.view.max_page);
        let selection = Selection {
            filter: self.filter.clone(),
            about: None,
            order: Order::OldestFirst { before: None },
            limit,
            format: PageFormat::Array,
            journal: None,
        };
        let page = self.view.read(after, &selection).await?;
        // Read after the changes, so that no change of a later journal is under the identity of an earlier one.
        let next = Offset::new(page.next, self.view.journal.identity());
        let is_up_to_date = page.next >= head;
        Ok(StreamPart { page, next, is_up_to_date })
    }

    /// Returns the end of the stream, for `HEAD`.
    fn tail(&self) -> Response {
        let mut response = self.response(StatusCode::OK, self.offset_of_head(), true);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    fn offset_of_head(&self) -> Offset {
        Offset::new(self.view.journal.head(), self.view.journal.identity())
    }

    /// Returns a page (section 5.6).
    async fn page(&self, headers: &HeaderMap) -> Result<Response, Problem> {
        if self.place == StreamPlace::Now {
            return Ok(self.with_body(Body::from("[]"), self.offset_of_head(), true, Lifetime::Seconds(1)));
        }
        let after = self.start().await?;
        let StreamPart { page, next, is_up_to_date } = self.read(after).await?;
        let lifetime = match self.place {
            StreamPlace::After(offset) if !is_up_to_date && next.seq > after && next.is_same_journal(offset) => {
                Lifetime::Fixed
            }
            // Its URL does not name the journal.
            StreamPlace::Beginning if !is_up_to_date => Lifetime::Seconds(60),
            _ => Lifetime::Seconds(1),
        };
        // A cache keeps a header that a later 304 lacks, so the end of the journal is another representation.
        let kind = if is_up_to_date { "stream, up to date" } else { "stream" };
        let tag = cache_control::tag(self.view.journal.identity(), (after, next.seq), &self.permit, kind);
        let mut response = if cache_control::is_known(headers, &tag) {
            self.response(StatusCode::NOT_MODIFIED, next, is_up_to_date)
        } else {
            self.with_body(page.into_body(), next, is_up_to_date, lifetime)
        };
        cache_control::add(response.headers_mut(), lifetime.header(&self.permit), tag);
        Ok(response)
    }

    /// Waits until there are changes, and returns them (section 5.7). `cursor` is that of the client.
    async fn long_poll(&self, cursor: Option<&str>) -> Result<Response, Problem> {
        let mut after = self.start().await?;
        let mut poll = None;
        loop {
            let StreamPart { page, next, is_up_to_date } = self.read(after).await?;
            // A page of excluded changes that ends before the head continues with the next request.
            if page.count > 0 || (!is_up_to_date && next.seq > after) {
                let seconds = if self.place == StreamPlace::Now { 1 } else { 60 };
                let response = self.with_body(page.into_body(), next, is_up_to_date, Lifetime::Seconds(seconds));
                return Ok(with_cursor(response, interval(Utc::now())));
            }
            after = next.seq;
            let waiting = match &poll {
                Some(waiting) => waiting,
                None => poll.insert(self.view.readers.begin_poll(LONG_POLL, &self.client)?),
            };
            if !waiting.change_after(after).await {
                let mut response = self.response(StatusCode::NO_CONTENT, next, true);
                // It must be cacheable: requests that wait in a cache for this one would go on one after the other.
                response.headers_mut().insert(header::CACHE_CONTROL, Lifetime::Seconds(1).header(&self.permit));
                let is_short = self.view.readers.limits().wait.as_secs() < INTERVAL_SECONDS;
                // With a shorter wait, the next request would have the same URL.
                let of_client = cursor.filter(|_| is_short).and_then(|cursor| cursor.parse::<u64>().ok());
                let least = of_client.map_or(0, |cursor| cursor.saturating_add(1));
                return Ok(with_cursor(response, interval(Utc::now()).max(least)));
            }
        }
    }

    fn with_body(&self, body: Body, next: Offset, is_up_to_date: bool, lifetime: Lifetime) -> Response {
        let mut response = self.response(StatusCode::OK, next, is_up_to_date);
        *response.body_mut() = body;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, lifetime.header(&self.permit));
        response
    }

    /// Returns a response without a body.
    fn response(&self, status: StatusCode, next: Offset, is_up_to_date: bool) -> Response {
        let mut response = status.into_response();
        let headers = response.headers_mut();
        headers.insert(NEXT_OFFSET, header_value(&next.to_string()));
        // Clients look at its presence alone.
        headers.extend(is_up_to_date.then(|| (UP_TO_DATE, HeaderValue::from_static("true"))));
        // A 304 has no body that would be compressed, and caches keep its headers.
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        response
    }
}

fn with_cursor(mut response: Response, cursor: u64) -> Response {
    response.headers_mut().insert(CURSOR, header_value(&cursor.to_string()));
    response
}

/// Returns the number of the interval at a time.
fn interval(time: DateTime<Utc>) -> u64 {
    u64::try_from(time.timestamp() - FIRST_INTERVAL).unwrap_or(0) / INTERVAL_SECONDS
}

fn header_value(text: &str) -> HeaderValue {
    #[expect(clippy::expect_used, reason = "only letters, digits and ASCII punctuation")]
    HeaderValue::from_str(text).expect("a header value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_protocol() {
        let time = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        assert_eq!(interval(time("2024-10-09T00:00:00Z")), 0);
        assert_eq!(interval(time("2024-10-09T00:00:39Z")), 1);
        assert!(LONG_POLL.as_secs() > INTERVAL_SECONDS, "an empty response has a cursor of its own");
    }
}
