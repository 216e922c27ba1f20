//! The journal as it is: `GET /changes`, page by page in JSON, and `GET /changes/{id}`, one change
//! in the format that the client accepts.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::{HeaderMap, Method, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{journal_problem, store_problem, waiting::Waiting};
use crate::{
    format::{Batch, FORMATS, FormatKind},
    journal::{Journal, Recorded},
    model::{Change, ChangeId, Seq},
    web::{Cache, Client, Path, Problem, ProblemCode, Query, Representation, best_media_type, problems},
};

/// How many changes a page has when the client does not say.
const DEFAULT_LIMIT: usize = 100;

/// The media type of a page where the client does not say.
const JSON: &str = "application/json";

/// For how many seconds a client may ask to wait: the most that the configuration can allow.
const LONGEST_WAIT: u64 = 3600;

/// The journal as these views show it.
#[derive(Clone)]
pub struct Changes {
    /// The journal.
    pub journal: Journal,
    /// The readers that wait for changes.
    pub waiting: Waiting,
    /// How many changes a page may have at the most.
    pub largest_page: usize,
}

impl Changes {
    /// How long a page is to be.
    pub(super) fn limit(&self, told: Option<usize>) -> Result<usize, Problem> {
        let limit = told.unwrap_or(DEFAULT_LIMIT.min(self.largest_page));
        if limit == 0 || limit > self.largest_page {
            let detail = format!("limit is {limit}; give 1 to {}.", self.largest_page);
            return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", "limit"));
        }
        Ok(limit)
    }
}

/// The query of `GET /changes`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// The number after which to begin; 0 or absent is the beginning.
    #[serde(default)]
    #[param(value_type = Seq, required = false)]
    after: Option<u64>,
    /// How many changes at the most.
    #[serde(default)]
    #[param(value_type = u64, minimum = 1)]
    limit: Option<usize>,
    /// For how many seconds to wait for changes where there are none after `after`; then the page is empty. More
    /// than `limits.wait_seconds` of the configuration counts as that.
    #[serde(default)]
    #[param(value_type = u64, required = false, maximum = 3600)]
    wait: u64,
}

/// A page of the journal.
#[derive(ToSchema)]
#[schema(as = ChangePage)]
#[expect(dead_code, reason = "the page is put together from the stored JSON; this describes it")]
struct PageView {
    /// The changes, oldest first.
    changes: Vec<Change>,
    /// The `after` of the following page.
    next: Seq,
}

problems!(PageProblems: InvalidQuery, Gone, Unavailable);
problems!(OneProblems: NotFound, NotAcceptable, Unavailable);

/// A page of the journal, oldest first: `{ "changes": […], "next": SEQ }`. Going on with
/// `after=next` misses nothing and repeats nothing. With `wait` it is answered as soon as there is a change. By
/// `Accept` it is a batch of CloudEvents; then the header `Link` has the following page.
///
/// # Errors
/// `invalid-query`; `gone` when the change after `after` is no longer kept; `unavailable` when too many wait, or the
/// journal cannot be read.
#[utoipa::path(
    get,
    path = "/changes",
    operation_id = "listChanges",
    tag = "out",
    params(PageQuery),
    responses(
        (status = 200, description = "A page, oldest first.", content(
            (PageView = "application/json"), (Vec<Value> = "application/cloudevents-batch+json"),
        )),
        PageProblems,
    ),
)]
pub async fn page(
    State(view): State<Changes>,
    client: Client,
    Query(query): Query<PageQuery>,
    accepted: HeaderMap,
) -> Result<Response, Problem> {
    let limit = view.limit(query.limit)?;
    if query.wait > LONGEST_WAIT {
        // It may be meant as milliseconds.
        let detail = format!("wait is {}; give 0 to {LONGEST_WAIT} seconds.", query.wait);
        return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", "wait"));
    }
    let after = Seq(query.after.unwrap_or(0));
    let mut changes = view.journal.after(after, limit).await.map_err(journal_problem)?;
    if changes.is_empty() && query.wait > 0 {
        changes = view.waiting.changes(after, limit, Duration::from_secs(query.wait), &client).await?;
    }
    let next = changes.last().map_or(after, |newest| newest.seq());
    if let Some((format, batch)) = batch_of_others(&accepted) {
        return batch_page(format, batch, &changes, next, limit);
    }
    // What is stored is the JSON that is shown: the page is put together from it as it is.
    let mut page = Vec::with_capacity(64 + changes.iter().map(|change| change.json().len() + 1).sum::<usize>());
    page.extend_from_slice(b"{\"changes\":[");
    for (index, change) in changes.iter().enumerate() {
        if index > 0 {
            page.push(b',');
        }
        page.extend_from_slice(change.json());
    }
    page.extend_from_slice(format!("],\"next\":{next}}}").as_bytes());
    let headers = [(header::CONTENT_TYPE, JSON), (header::CACHE_CONTROL, "no-cache"), (header::VARY, "Accept")];
    Ok((headers, page).into_response())
}

/// The format of batches that the client likes better than our JSON, which is for all who do not say.
fn batch_of_others(accepted: &HeaderMap) -> Option<(&'static FormatKind, Batch)> {
    let batches: Vec<_> = FORMATS.into_iter().filter_map(|format| Some((format, format.batch?))).collect();
    let offered: Vec<_> = batches.iter().map(|(_, batch)| batch.media_type).collect();
    let chosen = best_media_type(accepted, &offered)?;
    batches.into_iter().find(|(_, batch)| batch.media_type == chosen).filter(|_| chosen != JSON)
}

/// A page as a batch of a format, which has no place for where the next begins.
fn batch_page(
    format: &'static FormatKind,
    batch: Batch,
    changes: &[Arc<Recorded>],
    next: Seq,
    limit: usize,
) -> Result<Response, Problem> {
    let bodies = changes.iter().map(|change| change.encoded(format.name, format.write));
    let bodies = bodies.collect::<Result<Vec<_>, _>>().map_err(store_problem)?;
    let headers = [
        (header::CONTENT_TYPE, batch.media_type.to_owned()),
        (header::CACHE_CONTROL, "no-cache".to_owned()),
        (header::VARY, "Accept".to_owned()),
        (header::LINK, format!("<?after={next}&limit={limit}>; rel=\"next\"")),
    ];
    Ok((headers, batch.join(&bodies)).into_response())
}

/// One change, as an Atom feed (the 0.1 message), as JSON, as the model's XML, as a CloudEvent or as an
/// activity of ActivityStreams 2, by `Accept`. It never changes.
///
/// # Errors
/// `not-found`; `not-acceptable`; `unavailable` when the journal cannot be read.
#[utoipa::path(
    get,
    path = "/changes/{id}",
    operation_id = "getChange",
    tag = "out",
    params(("id" = String, Path, description = "Its identifier: a UUID, or `urn:uuid:` and a UUID.")),
    responses(
        (status = 200, description = "The change.", content(
            (String = "application/atom+xml"), (Change = "application/json"), (String = "application/xml"),
            (Value = "application/cloudevents+json"), (Value = "application/activity+json"),
        )),
        (status = 304, description = "The client has it."),
        OneProblems,
    ),
)]
pub async fn one(
    State(view): State<Changes>,
    Path(id): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let not_found = || {
        let id: String = id.chars().take(64).collect();
        let detail = format!("There is no change {id:?} in the journal. GET /changes lists what there is.");
        Problem::new(ProblemCode::NotFound, detail)
    };
    let formats = || FORMATS.into_iter().filter(|format| format.is_whole());
    let offered: Vec<_> = formats().map(|format| format.media_type).collect();
    let chosen = best_media_type(&headers, &offered).ok_or_else(|| {
        let detail = format!("A change is offered as {}.", offered.join(", "));
        Problem::new(ProblemCode::NotAcceptable, detail)
    })?;
    let change_id = ChangeId::parse(&id).map_err(|_| not_found())?;
    let recorded = view.journal.by_id(change_id).await.map_err(journal_problem)?.ok_or_else(not_found)?;
    let change = recorded.change().map_err(store_problem)?;
    let format = formats().find(|format| format.media_type == chosen);
    let body = format.map(|format| (format.write)(change)).unwrap_or_default();
    let document = Representation::new(chosen, body, Cache::Immutable)
        .last_modified(change.received.datetime())
        .varying_by_accept();
    Ok(document.respond(&method, &headers))
}
