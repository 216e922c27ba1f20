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
    change_lists::time_of,
    documents::Documents,
    entries::write_change,
    scope::Scope,
    sitemap::{SitemapKind, SitemapWriter},
};
use crate::{
    journal::{JournalError, RecordedChange, order::OrderTime},
    model::{Filter, ItemId, ReaderView, Seq},
    view::PIECE_BYTES,
    web::ReadPermit,
};

/// Number of changes that are read at once.
const READ_CHANGES: usize = 100;

/// Maximum number of changes among which the last one before a notification is searched. If all of them are hidden from the
/// subscriber, the interval begins with the oldest of them, and does not meet that of the notification before.
const MAX_EXAMINED: usize = 5_000;

impl ResourceSync {
    /// Returns the canonical URL and the filter of the topic with this URL, for a subscriber who may see this part of the
    /// journal; `None` if the URL is no topic of this source.
    pub fn topic(&self, url: &str, view: Option<Arc<ReaderView>>) -> Option<Result<(String, Filter), String>> {
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
        let scope = scope.map_err(|problem| problem.detail().to_owned());
        Some(scope.map(|scope| (self.topic_url(&scope), scope.filter())))
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
        let (_, filter) = self.topic(url, view).ok_or("the URL is no topic")??;
        let failed = |error: JournalError| error.to_string();
        let oldest = changes.last().ok_or("a notification has a change")?;
        let from = self.0.time_before(oldest, &filter).await.map_err(failed)?;
        let journal = &self.0.journal;
        let newest = changes.first().map_or(Seq::ZERO, |newest| newest.seq());
        let until = journal.order_time(newest).await.map_err(failed)?;
        let [from, until] = [from, until].map(|time| time_of(time).to_string());
        let metadata = [("capability", "change-notification"), ("from", &*from), ("until", &*until)];
        let up = self.0.url(DocumentName::CapabilityList);
        let links: [&[_]; 1] = [&[("rel", "up"), ("href", up.as_str())]];
        let written = |error: std::io::Error| error.to_string();
        let mut writer = SitemapWriter::begin(SitemapKind::List, &links, &metadata, Vec::new()).map_err(written)?;
        for recorded in changes.iter().rev() {
            let time = journal.order_time(recorded.seq()).await.map_err(failed)?;
            let change = recorded.change().map_err(|error| error.to_string())?;
            write_change(&mut writer, change, time_of(time)).map_err(written)?;
        }
        writer.finish().map_err(written)
    }

    /// Returns the links of the topic (section 5 of the notifications), as a value of the header `Link`; `None` if there is no
    /// topic.
    pub(super) fn topic_links(&self, scope: &Scope) -> Option<HeaderValue> {
        let hub = self.0.hub.as_ref()?;
        HeaderValue::try_from(format!("<{hub}>; rel=\"hub\", <{}>; rel=\"self\"", self.topic_url(scope))).ok()
    }

    fn topic_url(&self, scope: &Scope) -> String {
        Documents { source: &self.0, scope }.url(DocumentName::Notifications)
    }
}

impl Source {
    /// Returns the URL of a document about all objects.
    fn url(&self, name: DocumentName) -> String {
        format!("{}/resourcesync/{name}", self.base)
    }

    /// Returns the order time of the newest change before this one that a filter selects. If `oldest` is a rest of a change,
    /// this is the change itself, whose first items were in the notification before.
    async fn time_before(&self, oldest: &Arc<RecordedChange>, filter: &Filter) -> Result<OrderTime, JournalError> {
        let begin = |change: &RecordedChange| -> Result<Option<ItemId>, JournalError> {
            Ok(change.change()?.modification.items.first().map(|item| item.id))
        };
        let first_item = begin(oldest)?;
        let (mut before, mut examined) = (oldest.seq().next(), 0);
        while examined < MAX_EXAMINED {
            let read = self.journal.before_within(before, READ_CHANGES, PIECE_BYTES).await?;
            if read.is_empty() {
                // Nothing is known of the time before.
                return Ok(OrderTime::default());
            }
            for recorded in read {
                let seq = recorded.seq();
                (before, examined) = (seq, examined + 1);
                let Some(selected) = recorded.filtered(filter)? else { continue };
                if seq != oldest.seq() || begin(&selected)? != first_item {
                    return self.journal.order_time(seq).await;
                }
            }
        }
        self.journal.order_time(before).await
    }
}
