//! Look-ups: what a message cannot say, its repository is asked over HTTP.
//!
//! A dialect says in its draft what it could not know; [`Lookup`] asks the repository of the source and puts into the draft
//! what it answers, or a mark that says why not. Requests go to the address in the source's configuration and nowhere
//! else, whatever a message names; how they go, and what bounds them, is [`Repository`]'s. What is done where there is
//! no answer is the intake's.

mod asking;
mod breaker;
mod cache;
mod client;
mod error;
mod fedora3;
mod ldp;
mod settings;
pub mod walk;

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use tokio::time::Instant;

pub use client::{Answer, Body, LOOKUPS, Repository, There};
pub use error::LookupError;
pub use settings::{BaseUrl, Credentials, InvalidBaseUrl, Mode, RepositorySettings};

use self::{asking::Asking, cache::AnswerCache};
use crate::{
    format::{Limits, RepositoryApi},
    model::{Draft, LookupMark, MissingFacts},
};

/// How things are with a repository, for those who administer it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// How long it is until it is tried again, while it is left alone since it has failed too often.
    pub left_alone: Option<Duration>,
    /// What went wrong last, and when.
    pub last_error: Option<(String, DateTime<Utc>)>,
}

/// What asks the repository of one source.
pub struct Lookup {
    mode: Mode,
    repository: Repository,
    cache: AnswerCache,
    limits: Limits,
    last_error: Mutex<Option<(String, DateTime<Utc>)>>,
}

impl Lookup {
    /// Sets it up for a repository; what is read of an answer is bounded as what is read of a message.
    #[must_use]
    pub fn new(mode: Mode, repository: Repository, limits: Limits) -> Self {
        let cache = AnswerCache::new(repository.settings().cached_answers);
        Self { mode, repository, cache, limits, last_error: Mutex::default() }
    }

    /// What is done where there is no answer.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The repository.
    #[must_use]
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Completes a draft whose message came at `since`, as far as the repository answers: with what the source could not
    /// tell, and a mark where the repository has it no longer, has something newer, or is another one.
    ///
    /// # Errors
    /// When it does not answer everything. What it did answer is in the draft.
    pub async fn complete(&self, draft: &mut Draft, since: Instant) -> Result<(), LookupError> {
        if draft.lookup.missing == MissingFacts::Nothing {
            return Ok(());
        }
        match self.ask(draft, since).await {
            // What cannot be asked here now cannot be asked later: to wait for it would be for ever.
            Err(LookupError::Foreign) => {
                draft.lookup.mark = Some(LookupMark::Foreign);
                Ok(())
            }
            asked => asked.map_err(|error| self.failed(error)),
        }
    }

    /// Takes note of what went wrong.
    pub fn failed(&self, error: LookupError) -> LookupError {
        if !matches!(error, LookupError::LeftAlone { .. }) {
            *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some((error.to_string(), Utc::now()));
        }
        error
    }

    /// How things are with the repository.
    #[must_use]
    pub fn health(&self) -> Health {
        let last_error = self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Health { left_alone: self.repository.left_alone(), last_error }
    }

    async fn ask(&self, draft: &mut Draft, since: Instant) -> Result<(), LookupError> {
        let Self { repository, cache, limits, .. } = self;
        let asking = Asking { repository, cache, limits: *limits, since };
        let settings = repository.settings();
        let object = settings.path_of(draft.object.as_str());
        match (settings.api, object) {
            (RepositoryApi::Fedora3, Some(object)) => fedora3::complete(&asking, &object, draft).await,
            (RepositoryApi::Ldp, Some(object)) => ldp::complete(&asking, Some(&object), draft).await,
            // The entities of Islandora are elsewhere, and some of their files in the repository.
            (RepositoryApi::Ldp, None) if draft.object.as_str().starts_with("urn:") => {
                ldp::complete(&asking, None, draft).await
            }
            (_, None) => {
                draft.lookup.mark = Some(LookupMark::Foreign);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        BaseUrl, Draft, Instant, Limits, Lookup, LookupMark, MissingFacts, Mode, Repository, RepositoryApi,
        RepositorySettings,
    };
    use crate::model::{DraftLookup, SourceName};

    /// The address has a fragment, and so has all that would be asked behind it.
    #[tokio::test]
    async fn what_cannot_be_asked_is_not_waited_for() {
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
