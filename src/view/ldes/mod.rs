//! `GET /ldes`: the journal as a Linked Data Event Stream (LDES 1.0), in JSON-LD.
//!
//! The members are activities of ActivityStreams 2, in the same numbered pages as those of `/iiif`
//! ([`numbered_pages`](super::numbered_pages)). The root links to pages, or to blocks of a thousand pages, each with its window
//! of time. `docs/ldes.md` has the requirements, each with the test that shows it.
//!
//! * Clients order members by `ldes:timestampPath`, and equal times by chance. So that is the order time of a change
//!   ([`OrderTime`]), which no other has; `as:published` is the true time of receipt.
//! * Paths are one IRI and never a list, because clients read no lists there. The context is inline, so that a reader
//!   needs no other server.
//! * URLs of documents are relative, so a copy reads the same at another place. Members are named by their `urn:uuid:`.
//! * A page is no longer linked for some time before retention removes it, because a client ends at a page that is gone.

mod context;
mod member;
mod transactions;
mod windows;

use std::io::Write;

use axum::{extract::State, http::HeaderMap, response::Response};
use serde::Serialize;
use uuid::Uuid;

use self::{
    context::CONTEXT,
    member::MemberPage,
    windows::{Windows, beyond_calendar},
};
use super::{
    block_on,
    cache_control::{self, Lifetime},
    journal_problem,
    numbered_pages::{
        DocumentName, Names, NumberedPages, PageProtocol, PagedView, Rendering, answer, first_of, pages_of,
    },
    page_gone,
    parameters::with_filter,
};
use crate::{
    journal::{Journal, order::OrderTime, retention::Retention},
    model::{Seq, Timestamp},
    web::{Path, Problem, ProblemCode, Query, ReadPermit, Spool, problems, spool_problem},
};

/// Version of the rendering of pages. Increase it with every change that renders the same changes to other bytes, because caches
/// keep pages.
const RENDERING: u32 = 2;

/// Media type of all documents.
const MEDIA_TYPE: &str = "application/ld+json";

/// Maximum number of pages that the root links to itself.
const MAX_RELATED_PAGES: usize = 1000;

const MILLIS_PER_DAY: i64 = 24 * 60 * 60 * 1000;

/// Settings of the view.
#[derive(Clone, Debug)]
pub struct LdesSettings {
    /// Title of the stream.
    pub title: String,
    /// Time after which a client asks again, in seconds.
    pub polling_seconds: u32,
    /// Limits on the changes of the journal.
    pub retention: Retention,
}

/// The view.
pub type Ldes = PagedView<EventStream>;

/// The protocol.
#[derive(Debug)]
pub struct EventStream {
    settings: LdesSettings,
    windows: Windows,
}

impl Ldes {
    /// Creates the view of a journal, as readers see it under `public_url`.
    #[must_use]
    pub fn new(journal: Journal, spool: Spool, public_url: &str, settings: LdesSettings) -> Self {
        Self::of(journal, spool, public_url, EventStream { settings, windows: Windows::default() })
    }
}

impl PageProtocol for EventStream {
    const PATH: &'static str = "/ldes";
    const NAMES: Names = Names { entry: "root", extension: "jsonld", blocks: true };
    const MEDIA_TYPES: &'static [&'static str] = &[MEDIA_TYPE];

    fn description(&self) -> String {
        format!("LDES {RENDERING}")
    }

    fn entry_description(&self) -> String {
        let LdesSettings { title, polling_seconds, retention: _ } = &self.settings;
        format!("{polling_seconds} {title}")
    }

    async fn first_linked(&self, _: &NumberedPages, journal: &Journal) -> Result<Seq, Problem> {
        let last = last_unlinked(self.settings.retention, journal, Timestamp::now()).await?;
        Ok(last.next())
    }

    fn closed_lifetime(&self, is_whole: bool) -> Lifetime {
        // Clients read a page again, and end when it is gone, unless they know that nothing is added to it.
        Lifetime::Complete(if is_whole { cache_control::YEAR } else { 1 })
    }

    fn write(&self, rendering: &Rendering<'_>, out: &mut dyn Write) -> Result<(), Problem> {
        match rendering.document {
            DocumentName::Page(page) => self.write_page(rendering, page, out),
            DocumentName::Block(block) => self.write_block(rendering, block, out),
            DocumentName::Entry => self.write_root(rendering, out),
        }
    }
}

/// Returns the last change that retention removes soon: when a tenth of the time or of the number is left, at most a day.
async fn last_unlinked(retention: Retention, journal: &Journal, now: Timestamp) -> Result<Seq, Problem> {
    let mut last = Seq::ZERO;
    let before = |first: Seq| Seq(first.0.saturating_sub(1));
    if let Some(changes) = retention.changes {
        let first = journal.first_of_newest(changes - changes.div_ceil(10)).await.map_err(journal_problem)?;
        last = first.map_or(Seq::ZERO, before);
    }
    if let Some(days) = retention.days {
        let kept = i64::from(days) * MILLIS_PER_DAY;
        let since = now.millis().saturating_sub(kept - (kept / 10).min(MILLIS_PER_DAY));
        if let Some(since) = Timestamp::from_millis(since) {
            let head = journal.head();
            let first = journal.first_since(since).await.map_err(journal_problem)?;
            last = last.max(first.map_or(head, before));
        }
    }
    Ok(last)
}

/// The stream, with the document as its view. Only the root describes the stream.
#[derive(Serialize)]
struct Stream<'a> {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    description: Option<Description<'a>>,
    view: View,
}

/// Description of the stream for readers. Each path is one IRI.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Description<'a> {
    title: &'a str,
    timestamp_path: &'static str,
    sequence_path: &'static str,
    version_of_path: &'static str,
    version_timestamp_path: &'static str,
    version_sequence_path: &'static str,
    version_create_object: &'static str,
    version_update_object: &'static str,
    version_delete_object: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction_path: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction_finalized_path: Option<&'static str>,
    polling_interval: u32,
}

/// The document, a node of the search tree.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    /// The document itself, whatever its URL is.
    id: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    immutable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_policy: Option<RetentionPolicy>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    relation: Vec<Relation>,
}

/// What is kept. It is named, because a policy has to be an IRI.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RetentionPolicy {
    id: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    starting_from: Timestamp,
}

/// A bound on the order times of the members that are reached through a document. Two bounds of one document both hold.
#[derive(Serialize)]
struct Relation {
    #[serde(rename = "type")]
    kind: &'static str,
    node: String,
    path: &'static str,
    value: Timestamp,
}

impl EventStream {
    /// Writes the root, which links to pages, or to blocks if there are many pages.
    fn write_root(&self, rendering: &Rendering<'_>, out: &mut dyn Write) -> Result<(), Problem> {
        let Rendering { stream, pages, first_linked, oldest, .. } = rendering;
        let has_blocks = pages.range(*oldest, pages.newest()).nth(MAX_RELATED_PAGES).is_some();
        let relations = match has_blocks {
            true => self.relations_to_blocks(rendering)?,
            false => self.relations_to_pages(rendering, *oldest, pages.newest())?,
        };
        let retention_policy = match (pages.before(*oldest), *first_linked > first_of(*oldest)) {
            (None, false) => None,
            _ => {
                let starting_from = self.order_time(rendering)?;
                Some(RetentionPolicy { id: "#retention", kind: "ldes:RetentionPolicy", starting_from })
            }
        };
        let has_transactions = stream.is_everything();
        let description = Description {
            title: &self.settings.title,
            timestamp_path: "tidings:order",
            sequence_path: "tidings:seq",
            version_of_path: "as:object",
            version_timestamp_path: "tidings:version",
            version_sequence_path: "tidings:seq",
            version_create_object: "as:Create",
            version_update_object: "as:Update",
            version_delete_object: "as:Delete",
            transaction_path: has_transactions.then_some("tidings:transaction"),
            transaction_finalized_path: has_transactions.then_some("tidings:final"),
            polling_interval: self.settings.polling_seconds,
        };
        let root = Stream { description: Some(description), ..Self::stream(rendering, relations) };
        let root = Stream { view: View { retention_policy, ..root.view }, ..root };
        write_beginning(&root, out).and_then(|()| out.write_all(b"}")).map_err(spool_problem)
    }

    /// Returns the order time of the first change that retention does not remove soon.
    fn order_time(&self, rendering: &Rendering<'_>) -> Result<Timestamp, Problem> {
        let Rendering { stream, pages, first_linked, oldest, .. } = rendering;
        let begins = self.windows.begins(&[*oldest], pages, stream.journal())?;
        let begin = (pages.begin_of(*oldest), begins.first().copied().unwrap_or_default());
        let time = match *first_linked > begin.0 {
            true => block_on(stream.journal().order_times(begin, vec![*first_linked])).map_err(journal_problem)?,
            false => vec![begin.1],
        };
        let first = stream.journal().first();
        if first > *first_linked {
            // The note from which the time follows may be gone with the changes.
            return Err(page_gone(*oldest, first));
        }
        time.first().and_then(|time| time.timestamp()).ok_or_else(beyond_calendar)
    }

    fn write_block(&self, rendering: &Rendering<'_>, block: u64, out: &mut dyn Write) -> Result<(), Problem> {
        let (first, last) = rendering.pages.listed_by(block, rendering.oldest);
        let relations = self.relations_to_pages(rendering, first, last)?;
        let node = Self::stream(rendering, relations);
        write_beginning(&node, out).and_then(|()| out.write_all(b"}")).map_err(spool_problem)
    }

    /// Writes a page. A closed page is made from one read of the journal, unless a divided purge crosses its end.
    fn write_page(&self, rendering: &Rendering<'_>, page: u64, out: &mut dyn Write) -> Result<(), Problem> {
        let Rendering { stream, pages, base, .. } = rendering;
        let mut node = Self::stream(rendering, Vec::new());
        node.view.immutable = pages.after(page).is_some();
        write_beginning(&node, out).map_err(spool_problem)?;
        let begin = match pages.head() {
            Seq::ZERO => OrderTime::default(),
            _ => self.windows.begins(&[page], pages, stream.journal())?.first().copied().unwrap_or_default(),
        };
        let mut members = MemberPage::new(base, stream.journal(), begin);
        members.has_transactions = stream.is_everything();
        stream.read(pages, page, |recorded, shown| members.change(recorded, shown.as_deref()))?;
        members.write(out)
    }

    fn stream<'a>(rendering: &Rendering<'_>, relation: Vec<Relation>) -> Stream<'a> {
        let view = View { id: "", kind: "tree:Node", immutable: false, retention_policy: None, relation };
        let id = format!("{}#stream", rendering.relative_url(DocumentName::Entry));
        Stream { id, kind: "ldes:EventStream", description: None, view }
    }

    /// Returns the windows of the pages from one on, up to another.
    fn relations_to_pages(&self, rendering: &Rendering<'_>, from: u64, to: u64) -> Result<Vec<Relation>, Problem> {
        let pages = &rendering.pages;
        let listed = pages.range(from, to).map(|page| (DocumentName::Page(page), page));
        let after = pages.range(to + 1, pages.newest()).next();
        self.relations(rendering, &listed.collect::<Vec<_>>(), after)
    }

    /// Returns the windows of all blocks.
    fn relations_to_blocks(&self, rendering: &Rendering<'_>) -> Result<Vec<Relation>, Problem> {
        let Rendering { pages, oldest, .. } = rendering;
        let first_page = |block: u64| pages.range(pages_of(block).0.max(*oldest), pages.newest()).next();
        let listed = pages.blocks(*oldest).filter_map(|block| Some((DocumentName::Block(block), first_page(block)?)));
        self.relations(rendering, &listed.collect::<Vec<_>>(), None)
    }

    /// Returns the windows of documents, each of which begins with a page. `after` is the page after the last of them.
    fn relations(
        &self,
        rendering: &Rendering<'_>,
        listed: &[(DocumentName, u64)],
        after: Option<u64>,
    ) -> Result<Vec<Relation>, Problem> {
        let Rendering { stream, pages, .. } = rendering;
        if pages.head() == Seq::ZERO {
            return Ok(Vec::new());
        }
        let asked: Vec<u64> = listed.iter().map(|(_, page)| *page).chain(after).collect();
        let begins = self.windows.begins(&asked, pages, stream.journal())?;
        let times: Option<Vec<Timestamp>> = begins.into_iter().map(OrderTime::timestamp).collect();
        let times = times.ok_or_else(beyond_calendar)?;
        let mut relations = Vec::with_capacity(2 * listed.len());
        for (at, (document, _)) in listed.iter().enumerate() {
            let relation = |kind, value| {
                let node = rendering.relative_url(*document);
                Relation { kind, node, path: "tidings:order", value }
            };
            relations.extend(times.get(at).map(|begin| relation("tree:GreaterThanOrEqualToRelation", *begin)));
            relations.extend(times.get(at + 1).map(|end| relation("tree:LessThanRelation", *end)));
        }
        Ok(relations)
    }
}

/// Writes a stream without the end of its object. The context is the first member, so that readers need not wait for it.
fn write_beginning(stream: &Stream<'_>, out: &mut dyn Write) -> std::io::Result<()> {
    let mut json = serde_json::to_vec(stream)?;
    json.pop();
    write!(out, "{{\"@context\":{CONTEXT},")?;
    out.write_all(&json[1..])
}

with_filter! {
    /// The query of `/ldes` and its documents.
    pub struct LdesQuery {}
}

problems!(EntryProblems: InvalidQuery, NotFound);
problems!(DocumentProblems: InvalidQuery, NotFound, NotAcceptable, Gone, Unavailable, DamagedChange);

fn configured(view: Option<Ldes>) -> Result<Ldes, Problem> {
    view.ok_or_else(|| {
        let detail = "This gateway serves no Linked Data Event Stream: ldes.enabled is false.";
        Problem::new(ProblemCode::NotFound, detail)
    })
}

/// The root of the Linked Data Event Stream (LDES 1.0). A redirection leads to the present stream.
///
/// # Errors
/// `invalid-query`; `not-found` if the view is not enabled.
#[utoipa::path(
    get,
    path = "/ldes",
    operation_id = "getEventStream",
    tag = "out",
    params(LdesQuery),
    responses((status = 307, description = "The root of the stream."), EntryProblems),
)]
pub async fn entry(
    State(view): State<Option<Ldes>>,
    permit: ReadPermit,
    query: Result<Query<LdesQuery>, Problem>,
) -> Response {
    answer(&permit, async { Ok(configured(view)?.entry(query?.0.filter(&permit)?)) }).await
}

/// A document of the Linked Data Event Stream (LDES 1.0): the root, `root.jsonld`, a block of pages, or a page of members.
/// Clients follow the relations. A page that has a later one never changes, until retention removes its oldest changes.
///
/// # Errors
/// `invalid-query`; `not-found`; `not-acceptable`; `gone` if the page has been removed, or the stream has ended, because the
/// journal was restored; `damaged-change`; `unavailable` if the journal cannot be read.
#[utoipa::path(
    get,
    path = "/ldes/{stream}/{document}",
    operation_id = "getEventStreamDocument",
    tag = "out",
    params(
        ("stream" = String, Path, description = "Identity of the stream."),
        ("document" = String, Path, description = "Name of the document."),
        LdesQuery,
    ),
    responses(
        (status = 200, description = "The document.", body = Value, content_type = "application/ld+json"),
        (status = 304, description = "Not modified."),
        DocumentProblems,
    ),
)]
pub async fn document(
    State(view): State<Option<Ldes>>,
    permit: ReadPermit,
    path: Result<Path<(Uuid, String)>, Problem>,
    headers: HeaderMap,
    query: Result<Query<LdesQuery>, Problem>,
) -> Response {
    let document = async {
        let (Path((stream, name)), filter) = (path?, query?.0.filter(&permit)?);
        configured(view)?.document((&permit, &headers), (stream, &name), filter).await
    };
    answer(&permit, document).await
}
