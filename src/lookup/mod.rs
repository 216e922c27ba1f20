//! Lookups: the gateway requests from a repository over HTTP the facts that a message does not contain.
//!
//! A dialect records in its draft which facts it could not know. [`Lookup`] requests them from the source's
//! repository and adds them to the draft, or sets a mark with the reason why they are missing. Requests go
//! only to the URL in the source's configuration, whatever a message contains; [`Repository`] limits their
//! time, size and number. The intake decides how to proceed when the repository does not respond.

mod breaker;
mod cache;
mod cached_requests;
mod client;
pub mod crawl;
mod error;
mod fedora3;
mod ldp;
mod settings;

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use tokio::time::Instant;

pub use client::{LOOKUPS, LookupResponse, Repository, Resource, ResourceStream};
pub use error::LookupError;
pub use settings::{BaseUrl, Credentials, InvalidBaseUrl, Mode, RepositorySettings};

use self::{cache::ResponseCache, cached_requests::CachedRequests};
use crate::{
    format::{Limits, RepositoryApi, stated_dates::DateStatements},
    model::{
        Draft, DraftChange, DraftItem, DraftItems, DroppedPart, LookupMark, MissingFacts, StatedDates, Uri,
        VisibilityDates,
    },
};

/// Health of a repository, for administrators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Time until the next request, while the circuit is open.
    pub circuit_open_for: Option<Duration>,
    /// The last error and its time.
    pub last_error: Option<(String, DateTime<Utc>)>,
    /// Whether a draft was looked up since the start.
    pub has_asked: bool,
    /// Objects since the start that are outside of the repository, if there are any.
    pub foreign: Option<ForeignObjects>,
}

/// Objects that cannot be looked up, because they are outside of the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignObjects {
    /// Number of their events.
    pub number: u64,
    /// The first one.
    pub example: Uri,
}

/// Lookups in the repository of one source.
pub struct Lookup {
    mode: Mode,
    repository: Repository,
    cache: ResponseCache,
    limits: Limits,
    last_error: Mutex<Option<(String, DateTime<Utc>)>>,
    has_asked: AtomicBool,
    foreign: Mutex<Option<ForeignObjects>>,
}

impl Lookup {
    /// Creates lookups in `repository`. The limits of messages apply to responses as well.
    #[must_use]
    pub fn new(mode: Mode, repository: Repository, limits: Limits) -> Self {
        let cache = ResponseCache::new(repository.settings().cached_answers);
        let (last_error, has_asked, foreign) = (Mutex::default(), AtomicBool::default(), Mutex::default());
        Self { mode, repository, cache, limits, last_error, has_asked, foreign }
    }

    /// Returns the policy for lookups that fail.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the repository.
    #[must_use]
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Completes a draft whose message arrived at `since`, as far as the repository responds. The draft also
    /// gets a mark if the content is gone, was modified since, or is outside the repository.
    ///
    /// # Errors
    /// Returns the error of the first request that failed. The draft contains the facts of the other requests.
    pub async fn complete(&self, draft: &mut Draft, since: Instant) -> Result<(), LookupError> {
        if draft.lookup.missing == MissingFacts::Nothing {
            return Ok(());
        }
        let result = match self.request(draft, since).await {
            // A URI outside the repository can never be looked up, so do not wait for it.
            Err(LookupError::OutsideRepository) => {
                draft.lookup.mark = Some(LookupMark::Foreign);
                Ok(())
            }
            result => result.map_err(|error| self.failed(error)),
        };
        match draft.lookup.mark {
            Some(LookupMark::Foreign) => self.note_foreign(&draft.object),
            _ => self.has_asked.store(true, Ordering::Relaxed),
        }
        result
    }

    /// Says of each item whose dates the lookup has not read that they are unknown. The message may report a public state,
    /// which must not show an item that a date hides.
    pub fn keep_unread_dates(&self, draft: &mut Draft) {
        const UNKNOWN: StatedDates = StatedDates::Partial(VisibilityDates::NONE);
        if self.repository.settings().dates.is_empty() || draft.lookup.missing == MissingFacts::Nothing {
            return;
        }
        if let DraftItems::Listed(items) = &draft.items {
            let each = |item: DraftItem| match item.change {
                DraftChange::Restricted { .. } => item,
                _ => item.restricted(UNKNOWN),
            };
            draft.items = DraftItems::Listed(items.clone().map(each));
        }
    }

    fn note_foreign(&self, object: &Uri) {
        let mut foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        foreign.get_or_insert_with(|| ForeignObjects { number: 0, example: object.clone() }).number += 1;
    }

    /// Records an error for [`Lookup::health`] and returns it.
    pub fn failed(&self, error: LookupError) -> LookupError {
        if !matches!(error, LookupError::CircuitOpen { .. }) {
            *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some((error.to_string(), Utc::now()));
        }
        error
    }

    /// Returns the health of the repository.
    #[must_use]
    pub fn health(&self) -> Health {
        let last_error = self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let has_asked = self.has_asked.load(Ordering::Relaxed);
        Health { circuit_open_for: self.repository.circuit_open_for(), last_error, has_asked, foreign }
    }

    async fn request(&self, draft: &mut Draft, since: Instant) -> Result<(), LookupError> {
        let Self { repository, cache, limits, .. } = self;
        let requests = CachedRequests { repository, cache, limits: *limits, since };
        let settings = repository.settings();
        let object = settings.path_of(draft.object.as_str());
        match (settings.api, object) {
            (RepositoryApi::Fedora3, Some(object)) => fedora3::complete(&requests, &object, draft).await,
            (RepositoryApi::Ldp, Some(object)) => ldp::complete(&requests, Some(&object), draft).await,
            // The entities of Islandora are not in the repository, but some of their files are.
            (RepositoryApi::Ldp, None) if draft.object.as_str().starts_with("urn:") => {
                ldp::complete(&requests, None, draft).await
            }
            (_, None) => {
                draft.lookup.mark = Some(LookupMark::Foreign);
                Ok(())
            }
        }
    }
}

/// Notes that dates cannot be read. A lookup that fails does not, because it is repeated.
fn note_unreadable(draft: &mut Draft, dates: &DateStatements) {
    if dates.has_unreadable() {
        draft.reading.dropped.push(DroppedPart::VisibilityDate);
    }
}

/// Adds the dates that the repository states for a resource to all items of a draft.
fn restrict(draft: &mut Draft, dates: &DateStatements) {
    if let DraftItems::Listed(items) = &draft.items {
        let stated = dates.dates();
        draft.items = DraftItems::Listed(items.clone().map(|item: DraftItem| item.restricted(stated)));
    }
}

#[cfg(test)]
mod tests {
    use super::{
        BaseUrl, Draft, Instant, Limits, Lookup, LookupMark, MissingFacts, Mode, Repository, RepositoryApi,
        RepositorySettings,
    };
    use crate::model::{DraftLookup, SourceName};

    /// The object's URI has a fragment, so every URL below it would have one.
    #[tokio::test]
    async fn uri_outside_the_repository_is_not_waited_for() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let base = BaseUrl::parse("http://127.0.0.1:1/fedora").unwrap();
        let settings = RepositorySettings::new(RepositoryApi::Fedora3, base);
        let repository = Repository::new(&SourceName::parse("s").unwrap(), settings).await.unwrap();
        let lookup = Lookup::new(Mode::Required, repository, Limits::default());
        let object = "http://127.0.0.1:1/fedora/objects/a:1#x";
        let draft = format!(r#"{{"object":"{object}","items":[{{"uri":"{object}","change":"ADD"}}]}}"#);
        let mut draft: Draft = serde_json::from_str(&draft).unwrap();
        draft.lookup = DraftLookup::of(MissingFacts::Object);
        lookup.complete(&mut draft, Instant::now()).await.unwrap();
        assert_eq!((draft.lookup.mark, lookup.health().last_error), (Some(LookupMark::Foreign), None));
    }
}
