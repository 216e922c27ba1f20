//! The documents: each is written from the journal, its name, and the base URL.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{
    DocumentName, Source,
    change_lists::{ChangeList, ChangeLists, list_gone},
    copy::CopyUrls,
    division::order_time_of_damaged,
    entries::{write_change, write_resource},
    loss::Loss,
    name::{DESCRIPTION_PATH, PartPosition},
    resource_lists::{ResourceList, read_part},
    scope::Scope,
    sitemap::{SitemapKind, SitemapWriter},
};
use crate::{
    format::xml_writer::Pair,
    journal::{JournalError, RecordedChange, order::OrderTime, store::StoreError},
    model::{Filter, Seq, Timestamp},
    view::{PIECE_BYTES, block_on, journal_problem, store_problem, without_large_caches},
    web::{CachePolicy, DocumentWriter, Problem, ProblemCode, Representation, spool_problem},
};

/// Media type of all documents. It has no parameter, because validators compare the whole value.
pub(super) const MEDIA_TYPE: &str = "application/xml";

/// Number of changes that are read at once.
const READ_CHANGES: usize = 250;

/// Maximum number of entries of an index. The oldest change lists beyond it are left out.
const MAX_ENTRIES: usize = 50_000;

type Writer = SitemapWriter<DocumentWriter>;

/// Writes the documents of a scope.
#[derive(Clone, Copy)]
pub(super) struct Documents<'a> {
    pub(super) source: &'a Source,
    pub(super) scope: &'a Scope,
    /// URLs of the documents in a copy; `None` at the gateway.
    pub(super) copy: Option<&'a CopyUrls>,
}

impl<'a> Documents<'a> {
    /// Creates a writer of documents that the gateway serves.
    pub(super) fn at_gateway(source: &'a Source, scope: &'a Scope) -> Self {
        Self { source, scope, copy: None }
    }

    /// Returns the URL of a document.
    pub(super) fn url(&self, name: DocumentName) -> String {
        if let Some(copy) = self.copy {
            return copy.url(name);
        }
        format!("{}/resourcesync/{name}{}", self.source.base, self.scope.query())
    }

    /// Writes the source description (section 8).
    ///
    /// # Errors
    /// Fails if the disk does.
    pub(super) fn description(&self) -> Result<Representation, Problem> {
        let mut writer = self.begin(SitemapKind::List, &[], &[("capability", "description")])?;
        let list = self.url(DocumentName::CapabilityList);
        writer.entry(&list, &[("capability", "capabilitylist")], &[]).map_err(spool_problem)?;
        finish(writer, CachePolicy::Revalidate)
    }

    /// Writes the capability list (section 9). `hub` is the URL of the hub, if notifications are announced.
    ///
    /// # Errors
    /// Fails if the disk does.
    pub(super) fn capabilities(&self, hub: Option<&str>) -> Result<Representation, Problem> {
        let at_gateway = || format!("{}{DESCRIPTION_PATH}", self.source.base);
        let description = self.copy.map_or_else(at_gateway, CopyUrls::description);
        let links = [("up", description)];
        let mut writer = self.begin(SitemapKind::List, &links, &[("capability", "capabilitylist")])?;
        for (name, capability) in
            [(DocumentName::ResourceLists, "resourcelist"), (DocumentName::ChangeLists, "changelist")]
        {
            writer.entry(&self.url(name), &[("capability", capability)], &[]).map_err(spool_problem)?;
        }
        if let Some(hub) = hub {
            let topic = self.url(DocumentName::Notifications);
            let metadata = [("capability", "change-notification")];
            writer.entry(&topic, &metadata, &[&[("rel", "hub"), ("href", hub)]]).map_err(spool_problem)?;
        }
        finish(writer, CachePolicy::Revalidate)
    }

    /// Writes the index of the change lists (section 12.2).
    ///
    /// # Errors
    /// Fails if the disk does.
    pub(super) fn change_lists(&self, lists: &ChangeLists) -> Result<Representation, Problem> {
        let excess = lists.lists.len().saturating_sub(MAX_ENTRIES);
        let lists = &lists.lists[excess..];
        let from = lists.first().map_or(Timestamp::EPOCH, |list| list.from).to_string();
        let metadata = [("capability", "changelist"), ("from", from.as_str())];
        let mut writer = self.begin(SitemapKind::Index, &self.up(), &metadata)?;
        for list in lists {
            let interval = Interval::of(list);
            let url = self.url(DocumentName::ChangeList(list.first));
            writer.entry(&url, &interval.attributes(), &[]).map_err(spool_problem)?;
        }
        finish(writer, CachePolicy::Revalidate)
    }

    /// Writes a change list (section 12.1). A damaged change has no entry. The call blocks.
    ///
    /// # Errors
    /// `gone` if retention has removed its first change meanwhile; fails if the journal or the disk does.
    pub(super) fn change_list(
        &self,
        list: &ChangeList,
        loss: Loss,
        ended: &CancellationToken,
    ) -> Result<Representation, Problem> {
        let interval = Interval::of(list);
        let metadata = [&[("capability", "changelist")], &*interval.attributes()].concat();
        let [up] = self.up();
        let links = [up, ("index", self.url(DocumentName::ChangeLists))];
        let mut writer = self.begin(SitemapKind::List, &links, &metadata)?;
        let is_whole = self.write_changes(list, loss, &mut writer, ended)?;
        // A backup may have a damaged change.
        let is_fixed = list.until.is_some() && self.scope.is_fixed() && is_whole;
        finish(writer, if is_fixed { CachePolicy::Immutable } else { CachePolicy::Revalidate })
    }

    /// Writes the entries of a change list. Returns whether all changes could be read.
    fn write_changes(
        &self,
        list: &ChangeList,
        loss: Loss,
        writer: &mut Writer,
        ended: &CancellationToken,
    ) -> Result<bool, Problem> {
        let journal = &self.source.journal;
        let filter = self.scope.filter();
        let mut is_whole = true;
        let (mut after, mut time) = (Seq(list.first.0.saturating_sub(1)), list.begin);
        let mut skip = |seq: Seq, time: &mut OrderTime, what: &str| -> Result<(), Problem> {
            tracing::warn!(seq = seq.0, what, "a damaged change is left out of a change list of ResourceSync");
            is_whole = false;
            if seq != list.first {
                *time = block_on(order_time_of_damaged(journal, seq, *time)).map_err(journal_problem)?;
            }
            Ok(())
        };
        while after < list.last {
            if ended.is_cancelled() {
                return Err(nobody_waits());
            }
            let count = usize::try_from(list.last.0 - after.0).unwrap_or(READ_CHANGES).min(READ_CHANGES);
            let read = match block_on(journal.after_within(after, count, PIECE_BYTES)) {
                Err(JournalError::Gone { first, .. }) => return Err(list_gone(first)),
                Err(JournalError::Store(StoreError::DamagedChange { seq, what })) => {
                    skip(seq, &mut time, &what)?;
                    after = seq;
                    continue;
                }
                read => read.map_err(journal_problem)?,
            };
            if read.is_empty() {
                break;
            }
            for recorded in read {
                let seq = recorded.seq();
                let recorded = without_large_caches(recorded);
                after = seq;
                match filtered_with_time(&recorded, &filter) {
                    Ok((received, shown)) => {
                        if seq != list.first {
                            time = time.following(received);
                        }
                        let Some(shown) = shown else { continue };
                        let change = shown.change().map_err(store_problem)?;
                        write_change(writer, change, loss.time(seq, time)).map_err(spool_problem)?;
                    }
                    Err(StoreError::DamagedChange { seq, what }) => skip(seq, &mut time, &what)?,
                    Err(error) => return Err(store_problem(error)),
                }
            }
        }
        Ok(is_whole)
    }

    /// Writes the index of the parts of a resource list (section 10.2).
    ///
    /// # Errors
    /// Fails if the disk does.
    pub(super) fn resource_lists(&self, list: &ResourceList) -> Result<Representation, Problem> {
        let at = list.at.to_string();
        let metadata = [("capability", "resourcelist"), ("at", at.as_str())];
        let mut writer = self.begin(SitemapKind::Index, &self.up(), &metadata)?;
        for after in &list.parts {
            let part = DocumentName::ResourceList(PartPosition { head: list.head, after: *after });
            writer.entry(&self.url(part), &[("at", at.as_str())], &[]).map_err(spool_problem)?;
        }
        finish(writer, CachePolicy::Revalidate)
    }

    /// Writes a part of the resource list that was begun at the time `at` (section 10.1). The call blocks.
    ///
    /// # Errors
    /// Fails if the journal or the disk does.
    pub(super) fn resource_list(
        &self,
        part: PartPosition,
        at: Timestamp,
        ended: &CancellationToken,
    ) -> Result<Representation, Problem> {
        let at = at.to_string();
        let metadata = [("capability", "resourcelist"), ("at", at.as_str())];
        let [up] = self.up();
        let links = [up, ("index", self.url(DocumentName::ResourceLists))];
        let mut writer = self.begin(SitemapKind::List, &links, &metadata)?;
        read_part(&self.source.journal, self.scope, part, |resource| {
            if ended.is_cancelled() {
                return Err(nobody_waits());
            }
            write_resource(&mut writer, resource.uri, resource.content.as_ref()).map_err(spool_problem)
        })?;
        finish(writer, CachePolicy::Revalidate)
    }

    /// Returns the link to the capability list.
    fn up(&self) -> [(&'static str, String); 1] {
        [("up", self.url(DocumentName::CapabilityList))]
    }

    fn begin(&self, kind: SitemapKind, links: &[(&str, String)], metadata: &[Pair<'_>]) -> Result<Writer, Problem> {
        let out = DocumentWriter::new(&self.source.spool);
        let links: Vec<_> = links.iter().map(|(rel, href)| [("rel", *rel), ("href", href.as_str())]).collect();
        let links: Vec<&[Pair<'_>]> = links.iter().map(|link| &link[..]).collect();
        SitemapWriter::begin(kind, &links, metadata, out).map_err(spool_problem)
    }
}

/// Returns the time of receipt of a change, and the change as a filter shows it.
fn filtered_with_time(
    change: &Arc<RecordedChange>,
    filter: &Filter,
) -> Result<(Timestamp, Option<Arc<RecordedChange>>), StoreError> {
    Ok((change.change()?.received, change.filtered(filter)?))
}

/// The time of which a change list has all changes.
struct Interval {
    from: String,
    until: Option<String>,
}

impl Interval {
    fn of(list: &ChangeList) -> Self {
        Self { from: list.from.to_string(), until: list.until.map(|until| until.to_string()) }
    }

    fn attributes(&self) -> Vec<Pair<'_>> {
        let until = self.until.as_deref().map(|until| ("until", until));
        [("from", self.from.as_str())].into_iter().chain(until).collect()
    }
}

fn finish(writer: Writer, cache: CachePolicy) -> Result<Representation, Problem> {
    writer.finish().and_then(|out| out.finish(MEDIA_TYPE, cache)).map_err(spool_problem)
}

fn nobody_waits() -> Problem {
    Problem::new(ProblemCode::Unavailable, "Nobody waits for the document.")
}
