//! `GET /objects?uri=`: registry entry of one object and its items, as JSON or as a page for people.

mod html;

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, Method, header::VARY},
    response::Response,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    changes::Changes, filtered_feed, html as view_html, journal_problem, json_response, registry_view::RegistryView,
    store_problem,
};
use crate::{
    journal::{JournalError, RawContentLocation, registry::ObjectState, store::StoreError},
    model::{ContentLocation, Seq, SourceName, State as ContentState, Timestamp, Uri},
    web::{Problem, ProblemCode, Query, ReadPermit, Spool, negotiated_media_type, problems},
};

const JSON: &str = "application/json";

/// Number of changes on the page of an object.
const CHANGES: usize = 50;

/// The query of `GET /objects`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ObjectQuery {
    /// URI of the object.
    #[param(value_type = Uri)]
    uri: String,
    /// Number of the change before which the life of the object begins on its page; the links of the page contain it.
    #[serde(default)]
    #[param(value_type = Seq, required = false)]
    before: Option<u64>,
}

/// Registry entry of an object.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Object)]
pub(super) struct ObjectView<'a> {
    /// The object.
    #[schema(value_type = Uri)]
    uri: &'a Uri,
    /// URI of the parent object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Uri, required = false)]
    parent: Option<&'a Uri>,
    /// Types of the object.
    #[schema(value_type = Vec<Uri>)]
    types: &'a [Uri],
    /// Time at which the object was last purged.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Timestamp, required = false)]
    purged: Option<Timestamp>,
    /// Source that was the first to report the object, by a change or in a crawl.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = SourceName, required = false)]
    source: Option<&'a SourceName>,
    /// Current and former items of the object.
    items: Vec<ItemView<'a>>,
}

/// Registry entry of an item.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Item)]
struct ItemView<'a> {
    /// URI of the item.
    #[schema(value_type = Uri)]
    uri: &'a Uri,
    /// `true` if the item exists.
    live: bool,
    /// Time since which the item exists, or does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Timestamp, required = false)]
    since: Option<Timestamp>,
    /// State of the item, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ContentState, required = false)]
    state: Option<&'a ContentState>,
    /// Location of the content, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ContentLocation, required = false)]
    content: Option<ContentLocation>,
}

problems!(Problems: InvalidQuery, NotFound, NotAcceptable, Unavailable, DamagedChange);

/// The registry entry of the object `uri` with its current and former items. For `text/html`, a page for people, which
/// also lists the changes of the object, newest first.
///
/// # Errors
/// `invalid-query` if `uri` is no URI; `not-found` if the registry does not have the object; `not-acceptable`;
/// `damaged-change` if the next change of the page is damaged; `unavailable` if the journal cannot be read.
#[utoipa::path(
    get,
    path = "/objects",
    operation_id = "getObject",
    tag = "out",
    params(ObjectQuery),
    responses(
        (status = 200, description = "The registry entry.", content(
            (ObjectView = "application/json"), (String = "text/html"),
        )),
        (status = 304, description = "Not modified."),
        Problems,
    ),
)]
pub async fn one(
    State(view): State<Changes>,
    permit: ReadPermit,
    Query(query): Query<ObjectQuery>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let chosen = negotiated_media_type(&headers, &[JSON, view_html::HTML])?;
    if chosen == JSON && query.before.is_some() {
        let detail = "The parameter \"before\" is for the page of an object (text/html); the JSON lists no changes.";
        return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", "before"));
    }
    let uri = Uri::parse(&query.uri)
        .map_err(|error| Problem::new(ProblemCode::InvalidQuery, format!("uri: {error}.")).with("parameter", "uri"))?;
    let sight = RegistryView::of(&permit)?;
    let page_permit = view.readers.spool().page_permit().await;
    let unknown = || {
        let detail = format!("The registry has no object {uri}. An object is registered by its first change.");
        Problem::new(ProblemCode::NotFound, detail)
    };
    let state = match view.journal.object(uri.clone()).await {
        // Whether a damaged object may be seen is unknown.
        Err(JournalError::Store(error @ (StoreError::DamagedObject { .. } | StoreError::Damaged(_))))
            if !sight.is_whole() =>
        {
            return Err(unknown().because(error));
        }
        read => read.map_err(journal_problem)?,
    };
    let state = state.filter(|state| sight.shows(&uri, state)).ok_or_else(unknown)?;
    let spool = view.readers.spool().clone();
    if chosen == view_html::HTML {
        let page = Spool::blocking(page_permit, move || {
            let object = ObjectView::with_all_items(&uri, &state, &sight).map_err(store_problem)?;
            let before = query.before.map(Seq);
            let newest = Seq(before.map_or_else(|| view.journal.head().0, |before| before.0.saturating_sub(1)));
            let selection = filtered_feed::Selection::of_object(&uri, CHANGES, before, &permit);
            html::page(&spool, &object, &filtered_feed::read_page(&view.journal, &selection)?, newest)
        });
        return Ok(view_html::respond(&page.await?, &method, &headers));
    }
    let json = Spool::blocking(page_permit, move || {
        json_response(&spool, &ObjectView::with_all_items(&uri, &state, &sight).map_err(store_problem)?)
    });
    let mut response = json.await?;
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

impl<'a> ObjectView<'a> {
    /// Includes current and former items that the reader sees.
    pub(super) fn with_all_items(
        uri: &'a Uri,
        state: &'a ObjectState,
        sight: &RegistryView,
    ) -> Result<Self, StoreError> {
        Self::filtered(uri, state, sight, |_| true)
    }

    /// Includes only current items that the reader sees; `None` if there are none.
    pub(super) fn live(uri: &'a Uri, state: &'a ObjectState, sight: &RegistryView) -> Result<Option<Self>, StoreError> {
        let view = Self::filtered(uri, state, sight, |item| state.is_live(item))?;
        Ok((!view.items.is_empty()).then_some(view))
    }

    fn filtered(
        uri: &'a Uri,
        state: &'a ObjectState,
        sight: &RegistryView,
        includes: impl Fn(&Uri) -> bool,
    ) -> Result<Self, StoreError> {
        let mut items = Vec::new();
        for (uri, record) in &state.items {
            if includes(uri) && sight.shows_item(uri, state) {
                let content = state.content(uri).map(RawContentLocation::parse).transpose()?;
                items.push(ItemView {
                    uri,
                    live: state.is_live(uri),
                    since: record.existence.clock.at,
                    state: state.state(uri),
                    content: content.map(|content| sight.content(content)),
                });
            }
        }
        Ok(Self {
            uri,
            parent: state.parent(),
            types: state.types(),
            purged: sight.purged(state),
            source: state.source.as_ref(),
            items,
        })
    }
}
