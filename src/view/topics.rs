//! The feed as topics of the WebSub hub: which addresses are topics, and a topic with a few changes alone. A
//! hub may leave out entries that it has delivered before (WebSub section 7).

use std::sync::Arc;

use url::Url;

use super::{
    feed::{FeedView, SUBTITLE},
    feed_document::{self, WriteError},
    filtered::{self, Found, Selection},
};
use crate::{
    journal::{RecordedChange, store::StoreError},
    model::Filter,
};

/// Why an address is no topic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTopic {
    /// Something else is there, or nothing of this gateway.
    #[error("it is none of this hub, whose topics are {0} and the same with any filter")]
    Elsewhere(String),
    /// Its query is wrong.
    #[error("{0}")]
    Query(String),
    /// It is an older document of the feed.
    #[error("it has the parameter before, so that it gets no new entries; leave that out")]
    Older,
}

impl FeedView {
    /// The topic at an address: the address in the one spelling that the feed has as `self`, and which changes have
    /// entries there.
    ///
    /// # Errors
    /// When it is none.
    pub fn topic(&self, address: &str) -> Result<(String, Filter), NoTopic> {
        let selection = self.selection(address)?;
        let filter = selection.of_newest().ok_or(NoTopic::Older)?.clone();
        Ok((filtered::address(&self.0.site, &selection), filter))
    }

    /// The document of a topic with the entries of these changes alone, which stand newest first. It is in memory as a
    /// whole, so the caller bounds the changes: an entry takes some 1.5 KiB and the texts of its change.
    ///
    /// # Errors
    /// When it is no topic, or what is stored is not a change.
    pub fn entries(&self, address: &str, changes: &[Arc<RecordedChange>]) -> Result<Vec<u8>, EntriesError> {
        let selection = self.selection(address)?;
        let site = &self.0.site;
        let found = Found::of(changes)?;
        let frame = filtered::frame(site, &selection, &found, SUBTITLE);
        Ok(feed_document::document(site, frame, changes)?)
    }

    fn selection(&self, address: &str) -> Result<Selection, NoTopic> {
        let feed = self.0.site.feed();
        let elsewhere = || NoTopic::Elsewhere(feed.clone());
        let (asked, ours) = (Url::parse(address).ok(), Url::parse(&feed).ok());
        let (asked, ours) = asked.zip(ours).ok_or_else(elsewhere)?;
        let is_feed = asked.origin() == ours.origin() && asked.path() == ours.path() && asked.fragment().is_none();
        if !is_feed || !asked.username().is_empty() || asked.password().is_some() {
            return Err(elsewhere());
        }
        Selection::parse(asked.query().unwrap_or_default()).map_err(|wrong| NoTopic::Query(wrong.detail().to_owned()))
    }
}

/// Why a topic's document cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum EntriesError {
    /// It is no topic.
    #[error(transparent)]
    Topic(#[from] NoTopic),
    /// What is stored is not a change.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The document cannot be written.
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
