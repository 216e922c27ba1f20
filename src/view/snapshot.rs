//! `GET /snapshot`: the current registry, page by page. A new reader starts here, and so does a reader whose cursor
//! has been removed from the journal.
//!
//! A reader reads all pages and continues with `/changes?after=` and the `head` of the **first** page. It then has
//! missed nothing. The head is read before the registry, so an object includes all changes up to that head, and
//! possibly some later ones, because the journal grows while pages are read. `/changes` returns these later changes
//! again, in order. Each states a fact (the item exists, is deleted, has this content, has this state), so a reader
//! that applies all of them ends with the state of the registry. Items added or deleted between two pages are also
//! covered by changes after that head.
//!
//! Objects that a crawl adds without emitting changes are in no change. Therefore each page has a counter of such
//! additions. If the counter of the last page differs from that of the first, the reader may have missed an object
//! and must start again.

use axum::{extract::State, response::Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    changes::Changes, journal_problem, json_response, objects::ObjectView, parameters::outside_view,
    registry_view::RegistryView, store_problem,
};
use crate::{
    journal::{RegistryPosition, store::StoreError},
    model::{Seq, Uri},
    web::{Problem, ProblemCode, Query, ReadPermit, Spool, problems},
};

/// Minimum number of objects that are read at once for a reader who may see only some.
const READ_OBJECTS: usize = 500;

/// The query of `GET /snapshot`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SnapshotQuery {
    /// URI of the object after which to begin. Default: the beginning.
    #[serde(default)]
    #[param(value_type = Uri, required = false)]
    after: Option<String>,
    /// Maximum number of objects to examine. A page ends early after 20000 items, or about 4 MiB of objects.
    #[serde(default)]
    #[param(value_type = u64, minimum = 1)]
    limit: Option<usize>,
    /// Whether objects and items that were deleted are on the pages too.
    #[serde(default)]
    #[param(required = false)]
    former: bool,
}

/// A page of the registry.
#[derive(Serialize, ToSchema)]
#[schema(as = SnapshotPage)]
struct Page<'a> {
    /// Identity of the journal. A restore and a failover of the database change it.
    #[schema(value_type = String)]
    journal: Uuid,
    /// Number of the newest change when the page was started.
    head: Seq,
    /// Number of times that a crawl had added an object without a change when the page was started. If it differs
    /// between the first and the last page, start again, because an added object may be missing.
    seeds: u64,
    /// Objects that exist, or with `former` all objects.
    objects: Vec<ObjectView<'a>>,
    /// Value of `after` for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uri>)]
    next: Option<&'a Uri>,
}

problems!(Problems: InvalidQuery, Unavailable, DamagedObject);

/// Path of the pages.
pub const PATH: &str = "/snapshot";

/// A page of the objects that exist, ordered by URI, each with its current items: `{ "head": SEQ, "seeds": COUNT,
/// "objects": […], "next": URI }`. Continue with `after=next` until there is no `next`. A page examines `limit`
/// objects and returns fewer if some are deleted.
///
/// # Errors
/// `invalid-query`; `damaged-object` if the next object is damaged (a page ends before a damaged object); `unavailable` if the journal cannot be read.
#[utoipa::path(
    get,
    path = PATH,
    operation_id = "listSnapshot",
    tag = "out",
    params(SnapshotQuery),
    responses((status = 200, description = "A page, ordered by the objects' URIs.", body = Page), Problems),
)]
pub async fn page(
    State(view): State<Changes>,
    permit: ReadPermit,
    Query(query): Query<SnapshotQuery>,
) -> Result<Response, Problem> {
    let sight = RegistryView::of(&permit)?;
    if query.former && sight.is_public() {
        return Err(outside_view("former"));
    }
    let limit = view.limit(query.limit)?;
    let after = query.after.as_deref().map(Uri::parse).transpose();
    let after = after.map_err(|error| {
        Problem::new(ProblemCode::InvalidQuery, format!("after: {error}.")).with("parameter", "after")
    })?;
    let (head, seeds) = (view.journal.head(), view.journal.seed_count());
    let at_once = if sight.is_whole() { limit } else { limit.max(READ_OBJECTS) };
    // The URI of a hidden object must not be the position of the next page. So the search goes on until an object is found,
    // however many hidden ones it passes; the time limit of requests bounds it. It skips those outside the reader's prefixes.
    let mut position = sight.seek(after.into());
    let (page_permit, registry, mut has_more) = loop {
        let page_permit = view.readers.spool().page_permit().await;
        let Some(from) = position else { break (page_permit, Vec::new(), false) };
        let mut read = match view.journal.registry(from, at_once).await {
            Ok(read) => read,
            Err(error) => {
                let passed = sight.passed(error).map_err(journal_problem)?;
                position = sight.seek(RegistryPosition::After(passed));
                continue;
            }
        };
        let last = read.last().map(|(uri, _)| uri.clone());
        read.retain(|(uri, state)| sight.shows(uri, state));
        read.truncate(limit);
        match last {
            Some(last) if read.is_empty() => position = sight.seek(RegistryPosition::After(last)),
            last => break (page_permit, read, last.is_some()),
        }
    };
    let spool = view.readers.spool().clone();
    Spool::blocking(page_permit, move || {
        let object = |uri, state| match query.former {
            true => ObjectView::with_all_items(uri, state, &sight).map(Some),
            false => ObjectView::live(uri, state, &sight),
        };
        let (mut objects, mut next) = (Vec::with_capacity(registry.len()), None);
        for (uri, state) in &registry {
            match object(uri, state) {
                Ok(shown) => objects.extend(shown),
                Err(StoreError::Damaged(_)) if next.is_some() => {
                    has_more = true;
                    break;
                }
                Err(error) => return Err(store_problem(error.of_object(uri))),
            }
            next = Some(uri);
        }
        let next = next.filter(|_| has_more);
        let page = Page { journal: view.journal.identity(), head, seeds, objects, next };
        json_response(&spool, &page)
    })
    .await
}
