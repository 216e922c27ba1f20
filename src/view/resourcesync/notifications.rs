//! Change notifications (ResourceSync Change Notification 1.0.1) over the WebSub hub of the gateway.
//!
//! The topic is a document of the capability list, and a notification is a Sitemap with the changes that a message of the hub
//! has. Its interval begins with the time of the last change before that the subscriber gets, so that the intervals of all
//! notifications meet: a subscriber that finds a gap has lost one, and reads the change lists. Interval and entries depend on
//! the journal alone, so a repeated message has the same body.

use std::sync::Arc;

use axum::http::HeaderValue;
use url::Url;

use super::{
    DocumentName, ResourceSync, Source,
    documents::Documents,
    entries::write_change,
    loss::Loss,
    scope::Scope,
    sitemap::{SitemapKind, SitemapWriter},
};
use crate::{
    journal::{JournalError, RecordedChange, order::OrderTime, store::StoreError},
    model::{Filter, ItemId, ReaderView, Seq},
    view::{MAX_EXAMINED, MAX_EXAMINED_BYTES, PIECE_BYTES, block_on, without_large_caches},
    web::ReadPermit,
};

/// Number of changes that are read at once.
const READ_CHANGES: usize = 100;

impl ResourceSync {
    /// Returns the canonical URL and the filter of the topic with this URL, for a subscriber who may see this part of the
    /// journal; `None` if the URL is no topic of this source.
    pub fn topic(&self, url: &str, view: Option<Arc<ReaderView>>) -> Option<Result<(String, Filter), String>> {
        let scope = self.scope_of_topic(url, view)?;
        Some(scope.map(|scope| (self.topic_url(&scope), scope.filter())))
    }

    fn scope_of_topic(&self, url: &str, view: Option<Arc<ReaderView>>) -> Option<Result<Scope, String>> {
        let source = &self.0;
        source.hub.as_ref()?;
        let (requested, own) = (Url::parse(url).ok()?, Url::parse(&source.url(DocumentName::Notifications)).ok()?);
        let is_topic = requested.origin() == own.origin()
            && requested.path() == own.path()
            && requested.fragment().is_none()
            && requested.username().is_empty()
            && requested.password().is_none();
        if !is_topic {
            return None;
        }
        let scope = Scope::parse(requested.query().unwrap_or_default(), &ReadPermit::of_view(view));
        Some(scope.map_err(|problem| problem.detail().to_owned()))
    }

    /// Returns the notification of a topic about these changes, which are newest first, and as the subscriber sees them. It is
    /// in memory, so the caller must limit the changes.
    ///
    /// # Errors
    /// Fails if the URL is no topic, or the journal cannot be read.
    pub async fn notification(
        &self,
        url: &str,
        view: Option<Arc<ReaderView>>,
        changes: &[Arc<RecordedChange>],
    ) -> Result<Vec<u8>, String> {
        let scope = self.scope_of_topic(url, view).ok_or("the URL is no topic")??;
        let (source, changes) = (Arc::clone(&self.0), changes.to_vec());
        // It examines as many changes as a page with a filter.
        let permit = self.0.spool.page_permit().await;
        let writing = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            source.notification(&scope, &changes)
        });
        writing.await.map_err(|error| error.to_string())?
    }

    /// Returns the links of the topic (section 5 of the notifications), as a value of the header `Link`; `None` if there is no
    /// topic.
    pub(super) fn topic_links(&self, scope: &Scope) -> Option<HeaderValue> {
        let hub = self.0.hub.as_ref()?;
        HeaderValue::try_from(format!("<{hub}>; rel=\"hub\", <{}>; rel=\"self\"", self.topic_url(scope))).ok()
    }

    fn topic_url(&self, scope: &Scope) -> String {
        Documents::at_gateway(&self.0, scope).url(DocumentName::Notifications)
    }
}

impl Source {
    /// Returns the URL of a document about all objects.
    fn url(&self, name: DocumentName) -> String {
        format!("{}/resourcesync/{name}", self.base)
    }

    /// Writes a notification. The call blocks.
    fn notification(&self, scope: &Scope, changes: &[Arc<RecordedChange>]) -> Result<Vec<u8>, String> {
        let failed = |error: JournalError| error.to_string();
        let loss = Loss::of(&self.journal);
        let oldest = changes.last().ok_or("a notification has a change")?;
        let before = self.before(oldest, &scope.filter()).map_err(failed)?;
        let numbers: Vec<Seq> = changes.iter().rev().map(|change| change.seq()).collect();
        let order = block_on(self.journal.order_times(before, numbers.clone())).map_err(failed)?;
        let times: Vec<_> = numbers.into_iter().zip(order).map(|(seq, order)| loss.time(seq, order)).collect();
        let from = loss.time(before.0, before.1);
        let until = times.last().copied().unwrap_or(from);
        let [from, until] = [from, until].map(|time| time.to_string());
        let metadata = [("capability", "change-notification"), ("from", &*from), ("until", &*until)];
        let up = Documents::at_gateway(self, scope).url(DocumentName::CapabilityList);
        let links: [&[_]; 1] = [&[("rel", "up"), ("href", up.as_str())]];
        let written = |error: std::io::Error| error.to_string();
        let mut writer = SitemapWriter::begin(SitemapKind::List, &links, &metadata, Vec::new()).map_err(written)?;
        for (recorded, time) in changes.iter().rev().zip(times) {
            let recorded = without_large_caches(Arc::clone(recorded));
            let change = recorded.change().map_err(|error| error.to_string())?;
            write_change(&mut writer, change, time).map_err(written)?;
        }
        writer.finish().map_err(written)
    }

    /// Returns the newest change before this one that a filter selects, with its order time; if it is too far away, the last
    /// one that was examined. If `oldest` is a rest of a change, this is the change itself, whose first items were in the
    /// notification before. The call blocks.
    fn before(&self, oldest: &Arc<RecordedChange>, filter: &Filter) -> Result<(Seq, OrderTime), JournalError> {
        let journal = &self.journal;
        let begin = |change: &RecordedChange| -> Result<Option<ItemId>, StoreError> {
            Ok(change.change()?.modification.items.first().map(|item| item.id))
        };
        let first_item = begin(oldest)?;
        let is_before = |change: &Arc<RecordedChange>| -> Result<bool, StoreError> {
            let Some(selected) = change.filtered(filter)? else { return Ok(false) };
            Ok(change.seq() != oldest.seq() || begin(&selected)? != first_item)
        };
        let (mut before, mut examined, mut bytes) = (oldest.seq().next(), 0, 0);
        'search: while examined < MAX_EXAMINED && bytes < MAX_EXAMINED_BYTES {
            let read = match block_on(journal.before_within(before, READ_CHANGES, PIECE_BYTES)) {
                // No subscriber gets a damaged change.
                Err(JournalError::Store(StoreError::DamagedChange { seq, .. })) => {
                    (before, examined) = (seq, examined + 1);
                    continue;
                }
                read => read?,
            };
            if read.is_empty() {
                // Nothing is known of the time before.
                return Ok((Seq::ZERO, OrderTime::default()));
            }
            for recorded in read {
                (before, examined, bytes) = (recorded.seq(), examined + 1, bytes + recorded.json().len());
                match is_before(&without_large_caches(recorded)) {
                    Ok(true) => break 'search,
                    Ok(false) | Err(StoreError::DamagedChange { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok((before, block_on(journal.order_time(before))?))
    }
}
