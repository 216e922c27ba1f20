//! `GET /due`: the items whose visibility changes at an announced date.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::journal_problem;
use crate::{
    journal::{
        Journal,
        due::{DueItem, DuePosition},
    },
    model::{self, SourceName, Timestamp, Uri},
    web::{Problem, ProblemCode, Query, problems},
};

/// Maximum number of items on a page.
const MAX_LIMIT: usize = 1000;

/// Default number of items on a page.
const DEFAULT_LIMIT: usize = 100;

/// Query parameters of the list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Value of `next` of the previous page. Default: the first page.
    #[serde(default)]
    #[param(value_type = String, required = false)]
    after: Option<String>,
    /// Maximum number of items.
    #[serde(default)]
    #[param(value_type = u64, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A page of items whose visibility changes.
#[derive(Serialize, ToSchema)]
#[schema(as = DuePage)]
struct PageView {
    /// The items, in the order of their dates.
    due: Vec<DueView>,
    /// Value of `after` for the next page; `null` on the last page.
    #[schema(required = true)]
    next: Option<String>,
}

/// An item whose visibility changes at an announced date.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DueItem)]
struct DueView {
    /// Time of the change.
    at: Timestamp,
    /// URI of the object.
    object: Uri,
    /// URI of the item.
    item: String,
    /// What happens: whether the public sees the item from then on, or no longer.
    what: What,
    /// State until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = model::State, required = false, nullable = false)]
    state: Option<model::State>,
    /// Time of the later change that ends the visibility again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    until: Option<Timestamp>,
    /// Source of the object.
    source: SourceName,
    /// Time of the event that announced the dates.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    announced: Option<Timestamp>,
}

/// Change of the visibility of an item.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DueChange)]
enum What {
    /// The public sees the item.
    Appears,
    /// The public sees the item no longer.
    Disappears,
}

problems!(ListProblems: InvalidQuery, Unavailable);

/// The items whose visibility changes at an announced date, in the order of the dates.
///
/// # Errors
/// `invalid-query`; `unavailable` if the journal cannot be read.
#[utoipa::path(
    get,
    path = "/due",
    operation_id = "listDue",
    tag = "administration",
    params(ListQuery),
    responses((status = 200, description = "A page, in the order of the dates.", body = PageView), ListProblems),
)]
pub async fn list(State(journal): State<Journal>, Query(query): Query<ListQuery>) -> Result<Response, Problem> {
    let invalid =
        |parameter: &str, detail: String| Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", parameter);
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 || limit > MAX_LIMIT {
        return Err(invalid("limit", format!("limit is {limit}; give 1 to {MAX_LIMIT}.")));
    }
    let after = match &query.after {
        None => DuePosition::FIRST,
        Some(token) => {
            position(token).ok_or_else(|| invalid("after", "after is not the value of next of a page.".to_owned()))?
        }
    };
    let items = journal.due_after(after, limit).await.map_err(journal_problem)?;
    let is_full = items.len() == limit;
    let next = items.last().filter(|_| is_full).map(|item| token(&item.position));
    Ok(Json(PageView { due: items.into_iter().map(view).collect(), next }).into_response())
}

fn view(
    DueItem { position: DuePosition { at, item, .. }, object, dates, state, source, announced }: DueItem,
) -> DueView {
    let (what, until) = match dates.from() {
        Some(_) => (What::Appears, dates.until()),
        None => (What::Disappears, None),
    };
    DueView { at, object, item, what, state, until, source, announced }
}

fn token(DuePosition { at, object, item }: &DuePosition) -> String {
    format!("{}-{object}-{item}", at.millis())
}

fn position(token: &str) -> Option<DuePosition> {
    let mut parts = token.splitn(3, '-');
    let at = Timestamp::from_millis(parts.next()?.parse().ok()?)?;
    let object = parts.next()?.parse().ok().filter(|object| i64::try_from(*object).is_ok())?;
    Some(DuePosition { at, object, item: parts.next()?.to_owned() })
}
