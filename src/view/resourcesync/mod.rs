//! `/.well-known/resourcesync` and `/resourcesync/`: a source with ResourceSync 1.1 (ANSI/NISO Z39.99-2017), from which a
//! destination copies the resources and then follows their changes. `docs/resourcesync.md` has the requirements, each with
//! the test that shows it. The numbers in parentheses are sections of the standard.
//!
//! * `name` has the names of the documents, and `scope` the resources that they are about;
//! * `division` divides the journal into `change_lists`, whose times after a `loss` are later than all before;
//! * `resource_lists` divides the registry into parts, and `places` keeps the lists of different scopes;
//! * `documents` writes each document, with the `entries` of resources and changes, as a `sitemap`;
//! * `notifications` writes the messages of the hub;
//! * `copy` lists and writes the documents as files; `published` gives them to the publisher.

mod change_lists;
mod copy;
mod division;
mod documents;
mod entries;
mod loss;
mod name;
mod notifications;
mod places;
mod published;
mod resource_lists;
mod scope;
mod sitemap;

use std::sync::{Arc, Mutex};

use axum::{
    extract::{Request, State},
    http::header::LINK,
    response::Response,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::{
    change_lists::{ChangeList, ChangeLists, list_gone},
    division::Division,
    documents::Documents,
    name::PartPosition,
    resource_lists::{ResourceList, ResourceLists},
    scope::{Scope, ScopeQuery},
};
pub use self::{name::DocumentName, published::PublishedResourceSync};
use super::{archive_cache::size_in_cache, journal_problem};
use crate::{
    cache::LruCache,
    journal::Journal,
    model::Seq,
    web::{self, CachePolicy, Problem, ProblemCode, ReadPermit, Representation, Spool, problems},
};

/// Maximum number of change lists in memory.
const CACHE_LISTS: usize = 64;

/// Maximum size of these lists, in bytes.
const CACHE_BYTES: usize = 16 << 20;

/// The source. Clones share it.
#[derive(Clone)]
pub struct ResourceSync(Arc<Source>);

struct Source {
    journal: Journal,
    spool: Spool,
    /// URL of the gateway, without a trailing slash.
    base: String,
    /// URL of the hub, if the capability list announces notifications.
    hub: Option<String>,
    division: Division,
    resource_lists: ResourceLists,
    /// Resource list of the last copy.
    copied: Mutex<Option<(Scope, ResourceList)>>,
    /// Change lists that were read recently, by the identity of the journal.
    change_lists: LruCache<(Uuid, Scope, ChangeList), Representation>,
}

impl ResourceSync {
    /// Creates the source of a journal, as readers see it under `public_url`. `hub` is the URL of the hub, if notifications
    /// are announced.
    #[must_use]
    pub fn new(journal: Journal, public_url: &str, spool: Spool, hub: Option<String>) -> Self {
        Self(Arc::new(Source {
            division: Division::new(journal.clone()),
            resource_lists: ResourceLists::new(journal.clone()),
            change_lists: LruCache::new(CACHE_LISTS, CACHE_BYTES),
            base: public_url.trim_end_matches('/').to_owned(),
            journal,
            spool,
            hub,
            copied: Mutex::default(),
        }))
    }

    /// Returns the source description.
    ///
    /// # Errors
    /// Fails if the disk does.
    pub fn description(&self) -> Result<Representation, Problem> {
        let scope = Scope::parse("", &ReadPermit::whole())?;
        Documents::at_gateway(&self.0, &scope).description()
    }

    /// Returns a document as a reader with this permit sees it, about the objects that a query selects.
    ///
    /// # Errors
    /// `invalid-query`; `forbidden`; `not-found`; `gone`; `unavailable` if the journal cannot be read, or is being read for the
    /// first time, or too many different lists are being made.
    pub async fn document(
        &self,
        name: DocumentName,
        query: &str,
        permit: &ReadPermit,
    ) -> Result<Representation, Problem> {
        let scope = Scope::parse(query, permit)?;
        let source = &self.0;
        match name {
            DocumentName::CapabilityList => Documents::at_gateway(source, &scope).capabilities(source.hub_for(permit)),
            DocumentName::ChangeLists => {
                let changes = source.changes().await?;
                source.blocking(scope, move |documents, _| documents.change_lists(&changes)).await
            }
            DocumentName::ChangeList(first) => source.change_list(first, scope).await,
            DocumentName::ResourceLists => {
                let changes = source.changes().await?;
                let list = source.resource_lists.list(&scope, &changes, &source.spool).await?;
                source.blocking(scope, move |documents, _| documents.resource_lists(&list)).await
            }
            DocumentName::ResourceList(part) => source.resource_list(part, scope).await,
            // The content of the topic is in the messages of the hub.
            DocumentName::Notifications if source.hub.is_some() => {
                Ok(Representation::new(documents::MEDIA_TYPE, "", CachePolicy::Revalidate))
            }
            DocumentName::Notifications => Err(unknown(&name.to_string())),
        }
    }
}

impl Source {
    async fn changes(&self) -> Result<ChangeLists, Problem> {
        self.division.lists(&self.spool).await
    }

    /// Returns the change lists. If they end before this number, another node may have named a document with it, so they are
    /// read again when this node has the changes of the others.
    async fn changes_until(&self, seq: Seq) -> Result<ChangeLists, Problem> {
        let changes = self.changes().await?;
        if changes.head >= seq {
            return Ok(changes);
        }
        self.journal.until_published().await.map_err(journal_problem)?;
        self.changes().await
    }

    /// Returns the URL of the hub, if the reader may subscribe to notifications.
    fn hub_for(&self, permit: &ReadPermit) -> Option<&str> {
        self.hub.as_deref().filter(|_| !permit.is_public())
    }

    async fn change_list(self: &Arc<Self>, first: Seq, scope: Scope) -> Result<Representation, Problem> {
        let changes = self.changes_until(first).await?;
        let list = changes.find(first)?;
        let key = (self.journal.identity(), scope.clone(), list);
        if let Some(known) = self.change_lists.get(&key) {
            return Ok(known);
        }
        let loss = changes.loss;
        let document = self.blocking(scope, move |documents, ended| documents.change_list(&list, loss, ended)).await?;
        self.change_lists.insert(key, document.clone(), size_in_cache(&document));
        Ok(document)
    }

    async fn resource_list(self: &Arc<Self>, part: PartPosition, scope: Scope) -> Result<Representation, Problem> {
        let changes = self.changes_until(part.head).await?;
        if part.head > changes.head {
            return Err(unknown(&DocumentName::ResourceList(part).to_string()));
        }
        // Without the changes after its head, the part is no list of one moment.
        if part.head.next() < changes.begin() {
            return Err(list_gone(changes.begin()));
        }
        let order = self.journal.order_time(part.head).await.map_err(journal_problem)?;
        let at = changes.loss.time(part.head, order);
        self.blocking(scope, move |documents, ended| documents.resource_list(part, at, ended)).await
    }

    /// Writes a document on a blocking thread, as long as somebody waits for it.
    async fn blocking(
        self: &Arc<Self>,
        scope: Scope,
        write: impl FnOnce(Documents<'_>, &CancellationToken) -> Result<Representation, Problem> + Send + 'static,
    ) -> Result<Representation, Problem> {
        let ended = CancellationToken::new();
        let _guard = ended.clone().drop_guard();
        let source = Arc::clone(self);
        let permit = self.spool.list_permit().await;
        Spool::blocking(permit, move || write(Documents::at_gateway(&source, &scope), &ended)).await
    }
}

fn unknown(name: &str) -> Problem {
    let detail = format!("There is no document {name:?}. /.well-known/resourcesync leads to all documents.");
    Problem::new(ProblemCode::NotFound, detail)
}

problems!(DescriptionProblems: NotFound, Unavailable);
problems!(DocumentProblems: InvalidQuery, NotFound, Gone, Unavailable);

/// The source description, with which clients of ResourceSync 1.1 begin.
///
/// # Errors
/// `unavailable` if the response cannot be written.
#[utoipa::path(
    get,
    path = "/.well-known/resourcesync",
    operation_id = "getResourceSyncDescription",
    tag = "out",
    responses(
        (status = 200, description = "The source description.", body = String, content_type = "application/xml"),
        (status = 304, description = "Not modified."),
        DescriptionProblems,
    ),
)]
pub async fn description(
    State(view): State<ResourceSync>,
    _: ReadPermit,
    request: Request,
) -> Result<Response, Problem> {
    Ok(view.description()?.respond(request.method(), request.headers()))
}

/// A document of ResourceSync 1.1: `capabilitylist.xml`, `resourcelist.xml`, `changelist.xml`, or one that they name.
///
/// # Errors
/// `invalid-query`; `not-found`; `gone` if the changes that the document needs have been removed: start again with the resource
/// list; `unavailable` if the journal cannot be read, or is being read for the first time, or too many different lists are being
/// made.
#[utoipa::path(
    get,
    path = "/resourcesync/{name}",
    operation_id = "getResourceSyncDocument",
    tag = "out",
    params(("name" = String, Path, description = "Name of the document."), ScopeQuery),
    responses(
        (status = 200, description = "The document.", body = String, content_type = "application/xml"),
        (status = 304, description = "Not modified."),
        DocumentProblems,
    ),
)]
pub async fn document(
    State(view): State<ResourceSync>,
    permit: ReadPermit,
    web::Path(name): web::Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let document = DocumentName::parse(&name).ok_or_else(|| unknown(&name))?;
    let query = request.uri().query().unwrap_or_default();
    let content = view.document(document, query, &permit).await?;
    let mut response = content.respond(request.method(), request.headers());
    if document == DocumentName::Notifications {
        let links = view.topic_links(&Scope::parse(query, &permit)?);
        response.headers_mut().extend(links.map(|links| (LINK, links)));
    }
    Ok(response)
}
