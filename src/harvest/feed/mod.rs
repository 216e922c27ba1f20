//! Harvests of RSS and Atom feeds.
//!
//! A run requests the feed, if it has changed, and passes each entry to the dialect as a document of its own. A feed is
//! a window on the newest entries, so an entry that it no longer has is not deleted, unless the feed says that it is
//! complete.
//!
//! * `document` divides a feed into its entries, `selection` decides about keys and repeated entries, `looks` notices
//!   entries that change at each look, and `changes` puts the entries of another gateway's changes together;
//! * `message` makes the messages of a document when they are written, and `position` is the state between two runs;
//! * `harvest` sends the requests and decides about the responses, `read_document` reads one, `headers` are those of both;
//! * `sharing` decides what counts of an entry that several feeds show;
//! * `walk` reads archives and pages, `complete` finds the entries that a complete feed no longer has;
//! * `audit` reads for an audit, which remembers nothing and writes nothing;
//! * `subscription` subscribes at the WebSub hub of the feed.

mod audit;
mod changes;
mod complete;
mod document;
mod harvest;
mod headers;
mod looks;
mod message;
mod position;
mod read_document;
mod selection;
mod sharing;
mod subscription;
mod walk;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};

use self::harvest::FeedHarvester;
use super::{
    Harvester, HarvesterContext, HarvesterSettings, SetupError, Timeouts,
    client::{PlaceClient, PlaceSettings},
};
use crate::{http_client::OutboundUrl, model::SourceName, transfer::Cancelled};

/// Settings of the harvest of a feed.
#[derive(Clone, Debug)]
pub struct FeedSettings {
    /// URL of the feed, with its credentials.
    pub url: OutboundUrl,
    /// PEM file of the CA certificates to trust instead of those of the operating system.
    pub ca: Option<PathBuf>,
    /// Maximum size of a document, in bytes.
    pub page_bytes: usize,
    /// Timeouts of requests.
    pub timeouts: Timeouts,
    /// Meaning of the entries.
    pub entries: EntryMeaning,
    /// Whether a hub that the feed names is used.
    pub websub: bool,
}

/// Meaning of the entries of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryMeaning {
    /// Each entry is an object.
    Objects,
    /// Entries are the items of changes, as in the feed of another gateway.
    Changes,
}

impl FeedSettings {
    /// Returns the URL without credentials, for records and people. A fragment stands for the query, which may be a
    /// credential: two feeds that differ in their queries have different URLs.
    fn public_url(&self) -> String {
        let url = format!("{}{}", self.url.origin(), self.url.expose().path());
        match self.url.expose().query() {
            None => url,
            Some(query) => format!("{url}#{}", hex::encode(&Sha256::digest(query)[..8])),
        }
    }
}

impl FeedSettings {
    async fn harvester(
        &self,
        source: SourceName,
        context: HarvesterContext,
        is_audit: bool,
    ) -> Result<Arc<dyn Harvester>, SetupError> {
        let Self { url, ca, page_bytes, timeouts, websub, .. } = self.clone();
        let callbacks = context.callbacks.clone().filter(|_| websub && !is_audit);
        let (journal, harvests) = (context.journal.clone(), context.harvests.clone());
        let client = PlaceClient::new(PlaceSettings { url, noun: "feed", ca, page_bytes, timeouts }, context).await?;
        let (settings, feed_url) = (self.clone(), self.public_url());
        let harvester = FeedHarvester { settings, feed_url, source, journal, harvests, client, callbacks, is_audit };
        Ok(Arc::new(harvester))
    }
}

impl HarvesterSettings for FeedSettings {
    fn dialect(&self) -> &'static str {
        match self.entries {
            EntryMeaning::Objects => "feed",
            EntryMeaning::Changes => "content-change",
        }
    }

    fn describe(&self) -> String {
        format!("feed {}{}", self.url.origin(), self.url.expose().path())
    }

    fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    fn can_be_audited(&self) -> bool {
        // The entries of another gateway's feed are changes, which say nothing about the present.
        self.entries == EntryMeaning::Objects
    }

    fn build(
        &self,
        source: SourceName,
        context: HarvesterContext,
    ) -> BoxFuture<'_, Result<Arc<dyn Harvester>, SetupError>> {
        Box::pin(self.harvester(source, context, false))
    }

    /// The harvester has the name of the source, because its records say which entries other feeds share.
    fn build_reader(
        &self,
        source: &SourceName,
        context: HarvesterContext,
    ) -> BoxFuture<'_, Result<Arc<dyn Harvester>, SetupError>> {
        Box::pin(self.harvester(source.clone(), context, true))
    }
}

/// Reads text as a feed, as a harvest does; returns the number of its complete entries and deletions. For fuzzing and
/// tests.
#[doc(hidden)]
#[must_use]
pub fn count_entries(body: &[u8]) -> Option<usize> {
    let read = super::text::read(body.to_vec(), None, usize::MAX).ok()?;
    let document = document::FeedDocument::parse(&read.text, usize::MAX).ok()?;
    let (ambiguous, unreadable, looks) = (&mut Vec::new(), &mut Vec::new(), &mut Vec::new());
    let lists = selection::Remembered { ambiguous, unreadable, looks };
    let selection = selection::select(&document, "http://feed.example/", 1 << 20, lists, &Cancelled::default());
    Some(selection.entries.len())
}
