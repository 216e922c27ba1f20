//! `GET /objects?uri=`: what the registry knows of one object and its items.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};

use super::journal_problem;
use crate::{
    journal::{
        Journal,
        registry::{ItemRecord, ObjectState},
    },
    model::{ContentLocation, State as ContentState, Timestamp, Uri},
    web::{Problem, ProblemCode, Query},
};

/// The query of `GET /objects`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectQuery {
    /// The object.
    uri: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectView<'a> {
    uri: &'a Uri,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<&'a Uri>,
    types: &'a [Uri],
    #[serde(skip_serializing_if = "Option::is_none")]
    purged: Option<Timestamp>,
    items: Vec<ItemView<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ItemView<'a> {
    uri: &'a Uri,
    /// Whether the item is there.
    live: bool,
    /// Since when it is there, or gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a ContentState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a ContentLocation>,
}

/// What is known of the object `uri` and of every item that it has or had.
///
/// # Errors
/// `invalid-query` when `uri` is no URI; `not-found` when nothing is known of it; `unavailable` when
/// the journal cannot be read.
pub async fn one(State(journal): State<Journal>, Query(query): Query<ObjectQuery>) -> Result<Response, Problem> {
    let uri = Uri::parse(&query.uri)
        .map_err(|error| Problem::new(ProblemCode::InvalidQuery, format!("uri: {error}.")).with("parameter", "uri"))?;
    let state = journal.object(uri.clone()).await.map_err(journal_problem)?.ok_or_else(|| {
        let detail = format!("Nothing is known of {uri}. The registry knows an object from its first change on.");
        Problem::new(ProblemCode::NotFound, detail)
    })?;
    Ok(Json(view(&uri, &state)).into_response())
}

fn view<'a>(uri: &'a Uri, state: &'a ObjectState) -> ObjectView<'a> {
    let item = |(uri, record): (&'a Uri, &'a ItemRecord)| ItemView {
        uri,
        live: state.is_live(uri),
        since: record.existence.clock.at,
        state: state.state(uri),
        content: state.content(uri),
    };
    ObjectView {
        uri,
        parent: state.parent(),
        types: state.types(),
        purged: state.purged.latest(),
        items: state.items.iter().map(item).collect(),
    }
}
