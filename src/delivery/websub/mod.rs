//! The WebSub hub of the gateway's own feed (W3C Recommendation of 23 January 2018). `docs/websub.md` has its
//! every MUST beside the test that shows it.
//!
//! A subscriber asks at `POST /hub` ([`http`]) and is answered at once. What it asks for waits, bounded
//! ([`pending`]), until the hub has asked its callback whether it was meant ([`callback`]). Then it is a
//! subscription like any other, a cursor with a lease, kept in the journal ([`kept`]); the engine distributes to it
//! ([`distribution`]). The [`HubRunner`] does what takes time, so that no request waits for a callback.
//!
//! A topic is the feed, with any filter. How it is spelt and written is the view's affair; the application
//! hands it in as [`Topics`].

mod callback;
mod distribution;
mod documents;
mod failure_log;
pub mod http;
mod kept;
mod pending;
mod request;
mod runner;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

pub(super) use kept::is_of_hub;
pub use request::{InvalidRequest, Request};
pub use runner::HubRunner;

use self::{
    distribution::{Blue, ENTRIES, Shared, WEBSUB},
    documents::Documents,
    failure_log::FailureLog,
    kept::Kept,
    pending::{Full, Pending, Target},
};
use super::{Definition, OperationError, Start, Subscriptions};
use crate::{
    http_client::{Client, OutboundPolicy, OutboundUrl},
    journal::{RecordedChange, subscriptions::MadeBy},
    model::{Filter, Seq, SubscriptionName},
};

/// How many subscriptions a hub may have at the most, whatever its settings.
pub const MOST: usize = 10_000;

/// How a hub works.
#[derive(Clone)]
pub struct HubSettings {
    /// Its own address, as subscribers reach it.
    pub url: String,
    /// How long a lease is that nobody has told a time for.
    pub lease: Duration,
    /// How long one is at the most.
    pub longest_lease: Duration,
    /// How many subscriptions there may be, and of them to one callback.
    pub subscriptions: usize,
    /// The same, to one callback.
    pub per_callback: usize,
    /// How messages are signed.
    pub signature: SignatureMethod,
}

named_values! {
    /// By which algorithm messages are signed (section 7.1.1). SHA-1 is left out, as section 8.3 advises.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SignatureMethod {
        /// SHA-256.
        Sha256 = "sha256",
        /// SHA-384.
        Sha384 = "sha384",
        /// SHA-512.
        Sha512 = "sha512",
    }
}

/// The topics of a hub.
pub trait Topics: Send + Sync {
    /// The topic at an address, however it is spelt.
    ///
    /// # Errors
    /// When it is none, why.
    fn find(&self, address: &str) -> Result<Topic, String>;

    /// The feed of a topic with the entries of these changes, as they stand.
    ///
    /// # Errors
    /// When it is no topic, or what is stored is not a change.
    fn entries(&self, topic: &str, changes: &[Arc<RecordedChange>]) -> Result<Vec<u8>, String>;
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its address, in the one spelling that the topic itself has as `self`.
    pub address: String,
    /// Which changes have entries there.
    pub filter: Filter,
}

/// The hub. Clones are handles to the same one.
#[derive(Clone)]
pub struct Hub(Arc<Inner>);

struct Inner {
    subscriptions: Subscriptions,
    shared: Arc<Shared>,
    topics: Arc<dyn Topics>,
    guard: OutboundPolicy,
    settings: HubSettings,
    waiting: Mutex<Pending<Wanted>>,
    wake: Notify,
    /// Those that are verified.
    known: Mutex<BTreeMap<SubscriptionName, Arc<Kept>>>,
    failures: Mutex<FailureLog>,
}

/// A request that waits.
#[derive(Clone)]
struct Wanted {
    request: Request,
    topic: Topic,
    /// The newest change when it was first asked for: what comes after it is what a subscriber waits for.
    since: Seq,
}

/// Why a request is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// It is wrong.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// Too many wait to be verified.
    #[error("too many subscriptions wait to be verified; ask again in a moment")]
    Busy,
}

impl Hub {
    /// Sets the hub up, and has its subscriptions go on. The application runs the [`HubRunner`].
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn open(
        subscriptions: Subscriptions,
        topics: Arc<dyn Topics>,
        client: Client,
        guard: OutboundPolicy,
        settings: HubSettings,
    ) -> Result<(Self, HubRunner), OperationError> {
        let (hub_url, signature) = (settings.url.clone(), settings.signature);
        let hub = Self(Arc::new(Inner {
            shared: Arc::new(Shared { client, documents: Documents::new(Arc::clone(&topics)), hub_url, signature }),
            topics,
            guard,
            settings,
            waiting: Mutex::new(Pending::new()),
            wake: Notify::new(),
            known: Mutex::default(),
            failures: Mutex::default(),
            subscriptions,
        }));
        hub.0.revive().await?;
        Ok((hub.clone(), HubRunner(hub.0)))
    }

    /// Where a callback may lead.
    #[must_use]
    pub fn guard(&self) -> &OutboundPolicy {
        &self.0.guard
    }

    /// Takes a request, to be verified later.
    ///
    /// # Errors
    /// When its topic is none, or too many wait.
    pub fn take(&self, request: Request) -> Result<(), NotTaken> {
        let inner = &self.0;
        let topic = inner.topics.find(&request.topic).map_err(InvalidRequest::Topic)?;
        let name = Kept::name_of(&request.callback, &topic.address);
        let name = name.ok_or_else(|| InvalidRequest::Topic("it has no name".to_owned()))?;
        let head = inner.subscriptions.journal().head();
        let target = Target { server: request.callback.origin(), site: request.callback.site() };
        let taken = inner.waiting().add(&name, &target, Instant::now(), |before: Option<Wanted>| {
            let since = before.map_or(head, |before| before.since);
            Wanted { request, topic, since }
        });
        inner.wake.notify_one();
        taken.map_err(|Full| NotTaken::Busy)
    }
}

impl Inner {
    fn waiting(&self) -> MutexGuard<'_, Pending<Wanted>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<SubscriptionName, Arc<Kept>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a failure at a site is worth a line of the log, and not one of many.
    fn is_news(&self, callback: &OutboundUrl) -> bool {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.is_news(&callback.site(), Instant::now())
    }

    /// Has the subscriptions go on that the journal has.
    async fn revive(&self) -> Result<(), OperationError> {
        for stored in self.subscriptions.journal().subscriptions().await? {
            if stored.made_by != MadeBy::Hub {
                continue;
            }
            let kept = Kept::from_json(stored.definition.expose(), &self.guard).map_err(|error| error.to_string());
            let kept = kept.and_then(|kept| Ok((self.topics.find(&kept.topic)?.filter, Arc::new(kept))));
            match kept {
                Ok((filter, kept)) => {
                    self.known().insert(stored.name.clone(), Arc::clone(&kept));
                    self.subscriptions.define(&stored.name, Arc::new(self.definition(filter, kept)))?;
                }
                Err(reason) => {
                    tracing::warn!(subscription = %stored.name, reason, "a WebSub subscription cannot go on");
                    self.subscriptions.cannot_work(&stored.name, &reason)?;
                }
            }
        }
        Ok(())
    }

    fn definition(&self, filter: Filter, kept: Arc<Kept>) -> Definition {
        let blueprint = Arc::new(Blue { shared: Arc::clone(&self.shared), kept });
        // Nothing is refused for good, so there are no dead letters.
        Definition { filter, format: &ENTRIES, start: Start::Now, dead_letters: 0, delivery: &WEBSUB, blueprint }
    }

    /// Why there cannot be one more subscription, if there cannot.
    fn no_room(&self, name: &SubscriptionName, callback: &OutboundUrl) -> Option<String> {
        let known = self.known();
        if known.contains_key(name) {
            return None;
        }
        let of_callback = known.values().filter(|kept| kept.callback.is_same_without_query(callback)).count();
        if known.len() >= self.settings.subscriptions {
            Some("this hub has as many subscriptions as it may have".to_owned())
        } else if of_callback >= self.settings.per_callback {
            Some(format!("this callback has {of_callback} subscriptions, and may have no more"))
        } else {
            None
        }
    }
}
