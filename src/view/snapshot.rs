//! `GET /snapshot`: the registry as it is now, page by page: where a reader starts from nothing, and
//! where one starts again whose place has fallen off the end of the journal.
//!
//! A reader takes all pages, and then goes on with `/changes?after=` and the `head` of the **first**
//! page. It has then missed nothing. The head is read before the registry, so an object as it is shown
//! has every change up to that head in it, and perhaps some after it, since pages are read one after
//! the other while the journal goes on. Those come again with `/changes`, each as a fact (is there,
//! is gone, has this content, has this state), in order, up to the last one that was in what was
//! shown: whoever applies them all ends where the registry is. What came or went between two pages is
//! told by a change after that head as well.
//!
//! What a walk fills in silently is in no change. So each page tells how often that has happened: where the number of the last
//! page is not that of the first, an object may have been filled in behind the reader, who begins again.

use axum::{extract::State, response::Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{changes::Changes, journal_problem, json_answer, objects::ObjectView, store_problem};
use crate::{
    model::{Seq, Uri},
    web::{Problem, ProblemCode, Query, Spool, problems},
};

/// The query of `GET /snapshot`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SnapshotQuery {
    /// The object after which to begin; absent is the beginning.
    #[serde(default)]
    #[param(value_type = Uri, required = false)]
    after: Option<String>,
    /// How many objects to go through at the most. A page ends early after 20000 items, or some 4 MiB of them.
    #[serde(default)]
    #[param(value_type = u64, minimum = 1)]
    limit: Option<usize>,
}

/// A page of the registry.
#[derive(Serialize, ToSchema)]
#[schema(as = SnapshotPage)]
struct Page<'a> {
    /// The number of the newest change when the page was begun.
    head: Seq,
    /// How often a walk had filled in an object without a change when the page was begun. Where the first and the last page differ, begin
    /// again: what was filled in meanwhile may be missing.
    seeds: u64,
    /// The objects that are there.
    objects: Vec<ObjectView<'a>>,
    /// The `after` of the following page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uri>)]
    next: Option<&'a Uri>,
}

problems!(Problems: InvalidQuery, Unavailable);

/// The path of the pages.
pub const PATH: &str = "/snapshot";

/// A page of the objects that are there, in order of their URIs, each with the items that are there:
/// `{ "head": SEQ, "seeds": COUNT, "objects": […], "next": URI }`. Going on with `after=next` until there is no `next`
/// shows all of them. A page goes through `limit` objects, and shows fewer where some are gone.
///
/// # Errors
/// `invalid-query`; `unavailable` when the journal cannot be read.
#[utoipa::path(
    get,
    path = PATH,
    operation_id = "listSnapshot",
    tag = "out",
    params(SnapshotQuery),
    responses((status = 200, description = "A page, in order of the objects' URIs.", body = Page), Problems),
)]
pub async fn page(State(view): State<Changes>, Query(query): Query<SnapshotQuery>) -> Result<Response, Problem> {
    let limit = view.limit(query.limit)?;
    let after = query.after.as_deref().map(Uri::parse).transpose();
    let after = after.map_err(|error| {
        Problem::new(ProblemCode::InvalidQuery, format!("after: {error}.")).with("parameter", "after")
    })?;
    let turn = view.waiting.spool().page_turn().await;
    let (head, seeds) = (view.journal.head(), view.journal.seed_count());
    let registry = view.journal.registry(after, limit).await.map_err(journal_problem)?;
    let spool = view.waiting.spool().clone();
    Spool::blocking(turn, move || {
        let objects = registry.iter().filter_map(|(uri, state)| ObjectView::live(uri, state).transpose());
        let objects = objects.collect::<Result<_, _>>().map_err(store_problem)?;
        let page = Page { head, seeds, objects, next: registry.last().map(|(uri, _)| uri) };
        json_answer(&spool, &page)
    })
    .await
}
