//! `GET /objects?uri=`: what the registry knows of one object and its items.

use axum::{extract::State, response::Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{changes::Changes, journal_problem, json_answer, store_problem};
use crate::{
    journal::{
        RawContentLocation,
        registry::{ItemRecord, ObjectState},
        store::StoreError,
    },
    model::{ContentLocation, State as ContentState, Timestamp, Uri},
    web::{Problem, ProblemCode, Query, Spool, problems},
};

/// The query of `GET /objects`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ObjectQuery {
    /// The object.
    #[param(value_type = Uri)]
    uri: String,
}

/// What the registry knows of an object.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Object)]
pub(super) struct ObjectView<'a> {
    /// The object.
    #[schema(value_type = Uri)]
    uri: &'a Uri,
    /// The object that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Uri, required = false)]
    parent: Option<&'a Uri>,
    /// What kinds of object it is.
    #[schema(value_type = Vec<Uri>)]
    types: &'a [Uri],
    /// When it was last gone as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Timestamp, required = false)]
    purged: Option<Timestamp>,
    /// Every item that it has or had.
    items: Vec<ItemView<'a>>,
}

/// What the registry knows of an item.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Item)]
struct ItemView<'a> {
    /// The item.
    #[schema(value_type = Uri)]
    uri: &'a Uri,
    /// Whether the item is there.
    live: bool,
    /// Since when it is there, or gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Timestamp, required = false)]
    since: Option<Timestamp>,
    /// Its state, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ContentState, required = false)]
    state: Option<&'a ContentState>,
    /// Where its content is, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ContentLocation, required = false)]
    content: Option<ContentLocation>,
}

problems!(Problems: InvalidQuery, NotFound, Unavailable);

/// What is known of the object `uri` and of every item that it has or had.
///
/// # Errors
/// `invalid-query` when `uri` is no URI; `not-found` when nothing is known of it; `unavailable` when
/// the journal cannot be read.
#[utoipa::path(
    get,
    path = "/objects",
    operation_id = "getObject",
    tag = "out",
    params(ObjectQuery),
    responses((status = 200, description = "What is known.", body = ObjectView), Problems),
)]
pub async fn one(State(view): State<Changes>, Query(query): Query<ObjectQuery>) -> Result<Response, Problem> {
    let uri = Uri::parse(&query.uri)
        .map_err(|error| Problem::new(ProblemCode::InvalidQuery, format!("uri: {error}.")).with("parameter", "uri"))?;
    let turn = view.waiting.spool().page_turn().await;
    let state = view.journal.object(uri.clone()).await.map_err(journal_problem)?.ok_or_else(|| {
        let detail = format!("Nothing is known of {uri}. The registry knows an object from its first change on.");
        Problem::new(ProblemCode::NotFound, detail)
    })?;
    let spool = view.waiting.spool().clone();
    Spool::blocking(turn, move || json_answer(&spool, &ObjectView::whole(&uri, &state).map_err(store_problem)?)).await
}

impl<'a> ObjectView<'a> {
    /// With every item that it has or had.
    fn whole(uri: &'a Uri, state: &'a ObjectState) -> Result<Self, StoreError> {
        Self::of(uri, state, |_| true)
    }

    /// With the items that are there; `None` when there is none.
    pub(super) fn live(uri: &'a Uri, state: &'a ObjectState) -> Result<Option<Self>, StoreError> {
        let view = Self::of(uri, state, |item| state.is_live(item))?;
        Ok((!view.items.is_empty()).then_some(view))
    }

    fn of(uri: &'a Uri, state: &'a ObjectState, shown: impl Fn(&Uri) -> bool) -> Result<Self, StoreError> {
        let item = |(uri, record): (&'a Uri, &'a ItemRecord)| {
            Ok(ItemView {
                uri,
                live: state.is_live(uri),
                since: record.existence.clock.at,
                state: state.state(uri),
                content: state.content(uri).map(RawContentLocation::parse).transpose()?,
            })
        };
        Ok(Self {
            uri,
            parent: state.parent(),
            types: state.types(),
            purged: state.purged.latest(),
            items: state
                .items
                .iter()
                .filter(|(uri, _)| shown(uri))
                .map(|(uri, record)| (uri, &**record))
                .map(item)
                .collect::<Result<_, StoreError>>()?,
        })
    }
}
