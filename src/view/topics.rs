//! The feed as topics of the WebSub hub: the URLs that are topics, and documents that contain only new changes. A hub
//! may leave out entries that it has already delivered (WebSub section 7).

use std::sync::Arc;

use url::Url;

use super::{
    feed::{FeedView, SUBTITLE},
    feed_document::{self, WriteError},
    filtered_feed::{self, FilteredPage, Selection},
};
use crate::{
    journal::{RecordedChange, store::StoreError},
    model::{Filter, ReaderView},
    web::ReadPermit,
};

/// Reason why a URL is not a topic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// The URL is another resource, or not of this gateway.
    #[error("it is not a topic of this hub; the topics are {0} and {0} with any filter")]
    NotTheFeed(String),
    /// The query is invalid.
    #[error("{0}")]
    Query(String),
    /// The URL is an older document of the feed.
    #[error("a document with the parameter before gets no new entries; remove the parameter")]
    OlderDocument,
}

impl FeedView {
    /// Returns the topic of a URL for a reader who may see this part of the journal: the canonical URL, which is the link
    /// `self` of the feed, and the filter of its changes.
    ///
    /// # Errors
    /// When the URL is not a topic.
    pub fn topic(&self, url: &str, view: Option<Arc<ReaderView>>) -> Result<(String, Filter), TopicError> {
        let selection = self.selection(url, &ReadPermit::of_view(view))?;
        let filter = selection.filter_of_newest().ok_or(TopicError::OlderDocument)?.clone();
        Ok((filtered_feed::url(self.current().site(), &selection), filter))
    }

    /// Returns the document of a topic with the entries of these changes only, which must be newest first, and as the
    /// reader sees them. The
    /// document is in memory, so the caller must limit the changes: an entry takes about 1.5 KiB plus the texts of
    /// its change.
    ///
    /// # Errors
    /// When the URL is not a topic, or a stored change is damaged.
    pub fn entries(
        &self,
        url: &str,
        view: Option<Arc<ReaderView>>,
        changes: &[Arc<RecordedChange>],
    ) -> Result<Vec<u8>, EntriesError> {
        let permit = ReadPermit::of_view(view);
        let selection = self.selection(url, &permit)?;
        let feed = self.current();
        let site = feed.site();
        let page = FilteredPage::of(changes)?;
        let metadata = filtered_feed::metadata(site, &selection, &page, SUBTITLE, &permit);
        Ok(feed_document::document(site, metadata, changes)?)
    }

    fn selection(&self, url: &str, permit: &ReadPermit) -> Result<Selection, TopicError> {
        let feed = self.current().site().feed();
        let not_the_feed = || TopicError::NotTheFeed(feed.clone());
        let (requested, own) = (Url::parse(url).ok(), Url::parse(&feed).ok());
        let (requested, own) = requested.zip(own).ok_or_else(not_the_feed)?;
        let is_feed =
            requested.origin() == own.origin() && requested.path() == own.path() && requested.fragment().is_none();
        if !is_feed || !requested.username().is_empty() || requested.password().is_some() {
            return Err(not_the_feed());
        }
        Selection::parse(requested.query().unwrap_or_default(), permit)
            .map_err(|problem| TopicError::Query(problem.detail().to_owned()))
    }
}

/// Reason why the document of a topic cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum EntriesError {
    /// The URL is not a topic.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// A stored change is damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Writing the document failed.
    #[error(transparent)]
    Write(#[from] std::io::Error),
}

impl From<WriteError> for EntriesError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Store(error) => Self::Store(error),
            WriteError::Io(error) => Self::Write(error),
        }
    }
}
