//! Harvests of the sources that another system announces on its event bus.
//!
//! The list of this harvest is the journal: a run reads the events about sources that the dialect `hoarder` has put
//! there. An event makes, pauses, resumes or removes a harvest, after which the position moves on. So one node acts, and a
//! crash repeats at most an operation that changes nothing.
//!
//! * `description` reads the description of a source from the system's API, and translates it.

mod description;

use std::{
    path::Path,
    sync::{Arc, OnceLock, Weak},
};

use futures_util::future::BoxFuture;
use serde_json::Value;
use sha2::{Digest, Sha256};

use self::description::{Description, DescriptionError};
use super::{
    HarvestError, HarvestOperationError, Harvester, HarvesterContext, HarvesterSettings, Harvests, Page, PageEnd,
    SetupError, Timeouts,
    client::{PlaceClient, PlaceSettings},
    harvests::Inner,
};
use crate::{
    http_client::OutboundUrl,
    journal::{
        Journal, JournalError, RecordedChange,
        list::{changes_after, wait_for_change},
    },
    model::{Seq, SourceName, Uri, UrlPattern},
};

/// Number of attempts after which a description that the system refuses is left out.
const ATTEMPTS: u32 = 5;

/// Maximum size of a description, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 1024 * 1024;

/// Number of characters of the readable part of a harvest's name.
const READABLE_CHARS: usize = 20;

/// Maximum length of the name of a source whose events make harvests, because the names of the harvests begin with it.
const MAX_NAME_BYTES: usize = 26;

/// Settings of the harvests that the sources of another system become.
#[derive(Clone, Debug)]
pub struct AnnouncementSettings {
    /// Source of the events.
    pub of: SourceName,
    /// Base URL of the system's API, which has the descriptions.
    pub api: OutboundUrl,
    /// URLs that may be harvested.
    pub allow: Vec<UrlPattern>,
}

/// Handle to all harvests, which exists before them.
#[derive(Clone, Default)]
pub struct HarvestsHandle(Arc<OnceLock<Weak<Inner>>>);

impl HarvestsHandle {
    pub(super) fn set(&self, harvests: &Arc<Inner>) {
        // It is set once, where the harvests are opened.
        let _ = self.0.set(Arc::downgrade(harvests));
    }

    /// Returns whether there is a harvest of the source. A source that was removed from the configuration has none, although
    /// the journal keeps its records.
    pub(super) fn has(&self, source: &str) -> bool {
        let name = SourceName::parse(source).ok();
        self.get().is_none_or(|harvests| name.is_some_and(|name| harvests.get(&name).is_some()))
    }

    /// Returns the harvests; `None` if the gateway is stopping.
    fn get(&self) -> Option<Harvests> {
        self.0.get()?.upgrade().map(Harvests)
    }
}

impl AnnouncementSettings {
    /// Returns the name of this harvest.
    ///
    /// # Errors
    /// Fails if the name of the source is too long.
    pub fn name(of: &SourceName) -> Result<SourceName, String> {
        if of.as_str().len() > MAX_NAME_BYTES {
            return Err(format!("the name of the source has more than {MAX_NAME_BYTES} bytes; shorten it"));
        }
        SourceName::parse(&format!("{of}_harvests")).map_err(|error| error.to_string())
    }
}

impl HarvesterSettings for AnnouncementSettings {
    fn dialect(&self) -> &'static str {
        "hoarder"
    }

    fn describe(&self) -> String {
        format!("sources that {} announces", self.of)
    }

    fn ca(&self) -> Option<&Path> {
        None
    }

    fn build(&self, _: SourceName, context: HarvesterContext) -> BoxFuture<'_, Result<Arc<dyn Harvester>, SetupError>> {
        Box::pin(async {
            let (journal, harvests) = (context.journal.clone(), context.harvests.clone());
            let place = PlaceSettings {
                url: self.api.clone(),
                noun: "system",
                ca: None,
                page_bytes: MAX_DESCRIPTION_BYTES,
                timeouts: Timeouts::default(),
            };
            let client = PlaceClient::new(place, context).await?;
            Ok(Arc::new(AnnouncementHarvester { settings: self.clone(), journal, harvests, client })
                as Arc<dyn Harvester>)
        })
    }
}

struct AnnouncementHarvester {
    settings: AnnouncementSettings,
    journal: Journal,
    harvests: HarvestsHandle,
    client: PlaceClient,
}

/// Event about a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceEvent {
    /// The source exists and is open.
    Open,
    Closed,
    Deleted,
}

impl SourceEvent {
    /// Returns the event of a routing key, in either vocabulary of the bus.
    fn of(key: &str) -> Option<Self> {
        match key.strip_prefix("source.")? {
            "new" | "created" | "opened" | "open" | "updated" => Some(Self::Open),
            "closed" => Some(Self::Closed),
            "deleted" => Some(Self::Deleted),
            _ => None,
        }
    }
}

impl Harvester for AnnouncementHarvester {
    fn describe(&self) -> String {
        self.settings.describe()
    }

    fn page<'a>(&'a self, position: &'a str, attempt: u32) -> BoxFuture<'a, Result<Page, HarvestError>> {
        Box::pin(self.next_event(position_of(position), attempt))
    }

    fn new_work<'a>(&'a self, position: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(wait_for_change(&self.journal, position_of(position), |change| Ok(self.event(change)?.is_some())))
    }
}

impl AnnouncementHarvester {
    /// Executes the next event, or reads the next changes without one.
    async fn next_event(&self, mut after: Seq, attempt: u32) -> Result<Page, HarvestError> {
        let (changes, _) = changes_after(&self.journal, &mut after).await?;
        let (mut remarks, end) = (Vec::new(), if changes.is_empty() { PageEnd::Complete } else { PageEnd::More });
        for change in changes {
            after = change.seq();
            if let Some((event, source)) = self.event(&change)? {
                remarks.extend(self.execute(event, &source, attempt).await?);
                break;
            }
        }
        Ok(Page { remarks, ..Page::new(Vec::new(), after.to_string(), end) })
    }

    /// Returns the event of a change, with the URI of the source.
    fn event(&self, change: &RecordedChange) -> Result<Option<(SourceEvent, Uri)>, JournalError> {
        let modification = &change.change()?.modification;
        let event = SourceEvent::of(modification.description.as_str());
        let event = event.filter(|_| modification.origin.source == self.settings.of);
        Ok(event.map(|event| (event, modification.object.clone())))
    }

    /// Executes an event; returns a remark if it has no effect that an administrator should expect.
    async fn execute(&self, event: SourceEvent, uri: &Uri, attempt: u32) -> Result<Option<String>, HarvestError> {
        // The gateway is stopping, and the event stays.
        let harvests = self.harvests.get().ok_or_else(|| HarvestError::retry("the gateway is stopping"))?;
        let (name, of) = (harvest_name(&self.settings.of, uri), &self.settings.of);
        let name = name.map_err(HarvestError::fail)?;
        let result = match event {
            SourceEvent::Closed => harvests.close(of, &name).await,
            SourceEvent::Deleted => harvests.withdraw(of, &name).await,
            SourceEvent::Open => {
                let definition = match self.definition(uri, attempt).await {
                    Ok(definition) => definition,
                    Err(DescriptionError::Unavailable(error)) => return Err(error),
                    Err(DescriptionError::Refused(reason)) => {
                        return Ok(Some(format!("the source {uri} is not harvested: {reason}")));
                    }
                };
                harvests.announce(of, &name, &definition).await
            }
        };
        match result {
            Ok(()) => {
                tracing::info!(source = %of, harvest = %name, ?event, uri = %uri, "an event about a source was executed");
                Ok(None)
            }
            // A source that was refused, or whose first event came before the journal's.
            Err(HarvestOperationError::Unknown(_)) => Ok(None),
            Err(HarvestOperationError::Journal(error)) => Err(error.into()),
            Err(error) => Ok(Some(format!("the source {uri} is not harvested: {error}"))),
        }
    }

    /// Returns the definition of the harvest of a source.
    async fn definition(&self, uri: &Uri, attempt: u32) -> Result<Value, DescriptionError> {
        let api = self.settings.api.expose();
        let is_own = url::Url::parse(uri.as_str())
            .is_ok_and(|url| url.origin() == api.origin() && url.path().starts_with(api.path().trim_end_matches('/')));
        if !is_own {
            return Err(DescriptionError::Refused("its description is not below settings.base_url".to_owned()));
        }
        let description = Description::read(&self.client, uri, attempt + 1 >= ATTEMPTS).await?;
        description.definition(&self.settings.allow).map_err(DescriptionError::Refused)
    }
}

/// Returns the name of the harvest of a source: readable, and unique by a digest of its URI.
fn harvest_name(of: &SourceName, uri: &Uri) -> Result<SourceName, String> {
    let last = uri.as_str().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let readable = last.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(READABLE_CHARS);
    let readable = readable.collect::<String>().to_ascii_lowercase();
    let digest = hex::encode(&Sha256::digest(uri.as_str())[..8]);
    SourceName::parse(&format!("{of}_{readable}-{digest}")).map_err(|error| error.to_string())
}

fn position_of(text: &str) -> Seq {
    Seq(text.parse().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::{SourceEvent, SourceName, Uri, harvest_name};

    #[test]
    fn both_vocabularies_are_understood() {
        for (key, event) in [
            ("source.new", Some(SourceEvent::Open)),
            ("source.created", Some(SourceEvent::Open)),
            ("source.updated", Some(SourceEvent::Open)),
            ("source.closed", Some(SourceEvent::Closed)),
            ("source.deleted", Some(SourceEvent::Deleted)),
            ("document.new", None),
            ("source.lost", None),
        ] {
            assert_eq!(SourceEvent::of(key), event, "{key}");
        }
    }

    #[test]
    fn names_are_readable_and_differ() {
        let longest = SourceName::parse(&"n".repeat(super::MAX_NAME_BYTES)).unwrap();
        assert!(harvest_name(&longest, &Uri::parse(&format!("http://h/{}", "A".repeat(99))).unwrap()).is_ok());
        let of = SourceName::parse("librairy").unwrap();
        let name = |uri: &str| harvest_name(&of, &Uri::parse(uri).unwrap()).unwrap().to_string();
        let [one, other] = ["http://h/api/sources/oa-upm", "http://h/api/v2/sources/oa-upm"].map(name);
        assert!(one.starts_with("librairy_oa-upm-") && one != other, "{one} {other}");
        let long = name(&format!("http://h/{}%20", "a".repeat(500)));
        assert!(long.len() <= 64, "{long}");
    }
}
