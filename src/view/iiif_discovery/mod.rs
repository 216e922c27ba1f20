//! `GET /iiif`: the journal by the IIIF Change Discovery API 1.0, level 2. The numbers in parentheses are sections of the API.
//!
//! Each change is an activity about its object, in numbered pages ([`numbered_pages`](super::numbered_pages)). `endTime` is the
//! time of receipt, so that readers find what was reported late; it never decreases. `docs/iiif-discovery.md` has the
//! requirements, each with the test that shows it.
//!
//! * A change of which nothing is on time is no activity, because a reader keeps the newest one of a resource alone.
//! * A page without activities has one about the stream itself, whose class readers do not process, because a page has at
//!   least one (3.2). Of what a reader may not see, it has no time.

mod activity;
mod manifest;

use std::{io::Write, sync::Arc};

use axum::{extract::State, http::HeaderMap, response::Response};
use uuid::Uuid;

use self::activity::ActivityWriter;
pub use self::manifest::ManifestTemplate;
use super::{
    cache_control::Lifetime,
    numbered_pages::{CHANGING, DocumentName, Names, NumberedPages, PageProtocol, PagedView, Rendering, answer},
    parameters::with_filter,
};
use crate::{
    journal::Journal,
    model::Seq,
    web::{Path, Problem, ProblemCode, Query, ReadPermit, Spool, problems, spool_problem},
};

/// Version of the rendering of pages. Increase it with every change that renders the same changes to other bytes, because caches
/// keep pages.
const RENDERING: u32 = 1;

/// Context of all documents (3.4), and their media type (4.1).
const CONTEXT: &str = "http://iiif.io/api/discovery/1/context.json";
const MEDIA_TYPE: &str = "application/ld+json;profile=\"http://iiif.io/api/discovery/1/context.json\"";

/// Time for which caches may keep a closed page whose link to the page before can vanish, in seconds.
const KEPT_SECONDS: u32 = 3600;

named_values! {
    /// Wording of the activities (2.1.4).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Wording {
        /// `Create` and `Delete`, for a publisher of its own resources.
        #[default]
        Publisher = "publisher",
        /// `Add` and `Remove`, for resources of others that enter and leave the stream.
        Aggregator = "aggregator",
    }
}

/// Settings of the view.
#[derive(Clone, Debug)]
pub struct IiifDiscoverySettings {
    /// Class of the resources: a term of the context, such as `Manifest`.
    pub class: String,
    /// Makes the URL of a manifest from the URI of an object.
    pub manifest: Option<Arc<ManifestTemplate>>,
    /// Wording of the activities.
    pub wording: Wording,
    /// Whether retention removes pages.
    pub has_retention: bool,
}

/// The view.
pub type IiifDiscovery = PagedView<ChangeDiscovery>;

/// The protocol.
#[derive(Debug)]
pub struct ChangeDiscovery(IiifDiscoverySettings);

impl IiifDiscovery {
    /// Creates the view of a journal, as readers see it under `public_url`.
    #[must_use]
    pub fn new(journal: Journal, spool: Spool, public_url: &str, settings: IiifDiscoverySettings) -> Self {
        Self::of(journal, spool, public_url, ChangeDiscovery(settings))
    }
}

impl PageProtocol for ChangeDiscovery {
    const PATH: &'static str = "/iiif";
    const NAMES: Names = Names { entry: "collection", extension: "json", blocks: false };
    const MEDIA_TYPES: &'static [&'static str] = &[MEDIA_TYPE, "application/json"];

    fn description(&self) -> String {
        let IiifDiscoverySettings { class, manifest, wording, has_retention } = &self.0;
        let manifest = manifest.as_ref().map_or("", |template| template.source());
        // Without retention caches keep pages with links to pages that retention would remove.
        format!("IIIF {RENDERING} {class:?} {wording:?} {has_retention} {manifest}")
    }

    async fn first_linked(&self, pages: &NumberedPages, _: &Journal) -> Result<Seq, Problem> {
        Ok(pages.first())
    }

    /// A page can begin at any moment, and then readers come back from it to this one, and never again. An older copy of this page
    /// would lack its last changes.
    fn newest_lifetime(&self) -> Lifetime {
        Lifetime::Revalidated
    }

    fn closed_lifetime(&self, is_whole: bool) -> Lifetime {
        match self.0.has_retention {
            _ if !is_whole => CHANGING,
            // The page that becomes the oldest one loses its link to the page before.
            true => Lifetime::Seconds(KEPT_SECONDS),
            false => Lifetime::Fixed,
        }
    }

    fn write(&self, rendering: &Rendering<'_>, mut out: &mut dyn Write) -> Result<(), Problem> {
        match rendering.document {
            DocumentName::Page(page) => self.write_page(rendering, page, out),
            DocumentName::Entry | DocumentName::Block(_) => {
                let page = |page| PageLink::to(rendering, page);
                let collection = OrderedCollection {
                    context: CONTEXT,
                    id: rendering.url(DocumentName::Entry),
                    kind: COLLECTION,
                    first: page(rendering.oldest),
                    last: page(rendering.pages.newest()),
                };
                serde_json::to_writer(&mut out, &collection).map_err(|error| spool_problem(error.into()))
            }
        }
    }
}

/// Type of a collection.
const COLLECTION: &str = "OrderedCollection";

/// The collection (3.1). It has no `totalItems`, because only a look at all changes tells how many are activities.
#[derive(serde::Serialize)]
struct OrderedCollection {
    #[serde(rename = "@context")]
    context: &'static str,
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    first: PageLink,
    last: PageLink,
}

/// A page (3.2), without its activities, which are the last member.
#[derive(serde::Serialize)]
struct OrderedCollectionPage {
    #[serde(rename = "@context")]
    context: &'static str,
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(rename = "partOf")]
    part_of: CollectionLink,
    #[serde(skip_serializing_if = "Option::is_none")]
    prev: Option<PageLink>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<PageLink>,
}

/// A link to a page.
#[derive(serde::Serialize)]
struct PageLink {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
}

impl PageLink {
    fn to(rendering: &Rendering<'_>, page: u64) -> Self {
        Self { id: rendering.url(DocumentName::Page(page)), kind: "OrderedCollectionPage" }
    }
}

/// A link to the collection.
#[derive(Clone, serde::Serialize)]
struct CollectionLink {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
}

impl ChangeDiscovery {
    /// Writes a page, activity by activity.
    fn write_page(&self, rendering: &Rendering<'_>, page: u64, out: &mut dyn Write) -> Result<(), Problem> {
        let Rendering { stream, pages, oldest, base, .. } = rendering;
        let collection = CollectionLink { id: rendering.url(DocumentName::Entry), kind: COLLECTION };
        let head = OrderedCollectionPage {
            context: CONTEXT,
            id: rendering.url(rendering.document),
            kind: "OrderedCollectionPage",
            part_of: collection.clone(),
            // A page that has been removed has no link.
            prev: pages.before(page).filter(|before| before >= oldest).map(|before| PageLink::to(rendering, before)),
            next: pages.after(page).map(|after| PageLink::to(rendering, after)),
        };
        let mut activities = ActivityWriter::begin(&self.0, base, collection, &head, out).map_err(spool_problem)?;
        let sees_all = stream.is_everything();
        let mut newest = None;
        stream.read(pages, page, |_, shown| {
            let Some(shown) = shown else { return Ok(()) };
            let change = shown.change().map_err(super::store_problem)?;
            newest = Some(change.received);
            activities.change(change).map_err(spool_problem)
        })?;
        activities.finish(newest.filter(|_| sees_all)).map_err(spool_problem)
    }
}

with_filter! {
    /// The query of `/iiif` and its documents.
    pub struct IiifQuery {}
}

problems!(EntryProblems: InvalidQuery, NotFound);
problems!(DocumentProblems: InvalidQuery, NotFound, NotAcceptable, Gone, Unavailable, DamagedChange);

fn configured(view: Option<IiifDiscovery>) -> Result<IiifDiscovery, Problem> {
    view.ok_or_else(|| {
        let detail = "This gateway does not serve the IIIF Change Discovery API: iiif_discovery.enabled is false.";
        Problem::new(ProblemCode::NotFound, detail)
    })
}

/// The collection of the IIIF Change Discovery API 1.0. A redirection leads to the present stream.
///
/// # Errors
/// `invalid-query`; `not-found` if the view is not enabled.
#[utoipa::path(
    get,
    path = "/iiif",
    operation_id = "getIiifStream",
    tag = "out",
    params(IiifQuery),
    responses((status = 307, description = "The collection of the stream."), EntryProblems),
)]
pub async fn entry(
    State(view): State<Option<IiifDiscovery>>,
    permit: ReadPermit,
    query: Result<Query<IiifQuery>, Problem>,
) -> Response {
    answer(&permit, async { Ok(configured(view)?.entry(query?.0.filter(&permit)?)) }).await
}

/// A document of the IIIF Change Discovery API 1.0: the collection, `collection.json`, or a page of it. Readers follow the
/// links. A page that has a later one never changes, until retention removes the page before it or its own oldest changes.
///
/// # Errors
/// `invalid-query`; `not-found`; `not-acceptable`; `gone` if the page has been removed, or the stream has ended, because the
/// journal was restored or the settings were changed; `damaged-change`; `unavailable` if the journal cannot be read.
#[utoipa::path(
    get,
    path = "/iiif/{stream}/{document}",
    operation_id = "getIiifDocument",
    tag = "out",
    params(
        ("stream" = String, Path, description = "Identity of the stream."),
        ("document" = String, Path, description = "Name of the document."),
        IiifQuery,
    ),
    responses(
        (status = 200, description = "The document.", content(
            (Value = "application/ld+json"), (Value = "application/json"),
        )),
        (status = 304, description = "Not modified."),
        DocumentProblems,
    ),
)]
pub async fn document(
    State(view): State<Option<IiifDiscovery>>,
    permit: ReadPermit,
    path: Result<Path<(Uuid, String)>, Problem>,
    headers: HeaderMap,
    query: Result<Query<IiifQuery>, Problem>,
) -> Response {
    let document = async {
        let (Path((stream, name)), filter) = (path?, query?.0.filter(&permit)?);
        configured(view)?.document((&permit, &headers), (stream, &name), filter).await
    };
    answer(&permit, document).await
}
