//! WebSub hub for the gateway's own feed (W3C Recommendation of 23 January 2018). `docs/websub.md` lists every
//! MUST of it with the test that covers it.
//!
//! A subscriber sends a request to `POST /hub` ([`http`]) and receives a response immediately. The request
//! waits in a bounded queue ([`verification_queue`]) until the callback has confirmed it ([`callback`]). Then
//! it becomes a subscription: a cursor with a lease, stored in the journal ([`subscriber_record`]), to which
//! the engine distributes ([`distribution`]). The [`HubRunner`] performs the slow work, so no request waits for
//! a callback.
//!
//! A topic is the feed with any filter. The view defines the URLs and documents of topics; the application
//! passes them in as [`Topics`].

mod callback;
mod distribution;
mod documents;
mod failure_log;
pub mod http;
mod request;
mod runner;
mod subscriber_record;
mod verification_queue;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

pub use request::{HubRequest, InvalidRequest};
pub use runner::HubRunner;
pub(super) use subscriber_record::is_hub_subscription;

use self::{
    distribution::{HubContext, TOPIC_FORMAT, WEBSUB, WebSubConfig},
    documents::Documents,
    failure_log::FailureLog,
    subscriber_record::SubscriberRecord,
    verification_queue::{QueueFull, Target, VerificationQueue},
};
use super::{BoxFuture, Definition, OperationError, StartPosition, Subscriptions, subscriptions::HubRecords};
use crate::{
    http_client::{Client, OutboundPolicy, OutboundUrl},
    journal::{
        RecordedChange,
        subscriptions::{MadeBy, SubscriptionRecord},
    },
    model::{Filter, ReaderView, Seq, SubscriptionName},
};

/// Upper limit of the configured number of subscriptions.
pub const MAX_SUBSCRIPTIONS: usize = 10_000;

/// Settings of the hub.
#[derive(Clone)]
pub struct HubSettings {
    /// URL of the hub, as subscribers reach it.
    pub url: String,
    /// Default lease.
    pub lease: Duration,
    /// Maximum lease.
    pub max_lease: Duration,
    /// Maximum number of subscriptions.
    pub subscriptions: usize,
    /// Maximum number of subscriptions of one callback.
    pub per_callback: usize,
    /// Algorithm of the signatures.
    pub signature: SignatureMethod,
}

named_values! {
    /// Signature algorithm (section 7.1.1). SHA-1 is omitted, as section 8.3 recommends.
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
    /// Returns the topic of a URL, in any of its spellings, for a subscriber who may see this part of the journal.
    ///
    /// # Errors
    /// Returns the reason if the URL is not a topic.
    fn find(&self, url: &str, view: Option<Arc<ReaderView>>) -> Result<Topic, String>;

    /// Renders the document of a topic with the entries of these changes, which are newest first, for a subscriber with this
    /// view.
    ///
    /// # Errors
    /// Fails if the URL is not a topic or a change cannot be read.
    fn entries<'a>(
        &'a self,
        topic: &'a str,
        view: Option<Arc<ReaderView>>,
        changes: &'a [Arc<RecordedChange>],
    ) -> BoxFuture<'a, Result<TopicDocument, String>>;
}

/// A document of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDocument {
    /// Media type of the topic.
    pub media_type: &'static str,
    /// The document.
    pub body: Vec<u8>,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Canonical URL, which the topic itself gives as `self`.
    pub url: String,
    /// Selects the changes that have entries in the topic.
    pub filter: Filter,
}

/// Handle to the hub. Clones share the same state.
#[derive(Clone)]
pub struct Hub(Arc<Inner>);

struct Inner {
    subscriptions: Subscriptions,
    shared: Arc<HubContext>,
    topics: Arc<dyn Topics>,
    guard: OutboundPolicy,
    settings: HubSettings,
    queue: Mutex<VerificationQueue<QueuedRequest>>,
    wake: Notify,
    /// Verified subscribers.
    subscribers: Mutex<BTreeMap<SubscriptionName, Arc<SubscriberRecord>>>,
    failures: Mutex<FailureLog>,
}

/// A request that waits for verification.
#[derive(Clone)]
struct QueuedRequest {
    request: HubRequest,
    topic: Topic,
    /// Newest change when the subscription was first requested; the subscriber receives everything after it.
    since: Seq,
}

/// Error of submitting a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The request is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// Too many requests wait for verification.
    #[error("too many requests wait for verification; try again in a moment")]
    Busy,
}

impl Hub {
    /// Creates the hub and resumes its stored subscriptions. The application runs the [`HubRunner`].
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub async fn open(
        subscriptions: Subscriptions,
        topics: Arc<dyn Topics>,
        client: Client,
        guard: OutboundPolicy,
        settings: HubSettings,
    ) -> Result<(Self, HubRunner), OperationError> {
        let (hub_url, signature) = (settings.url.clone(), settings.signature);
        let hub = Self(Arc::new(Inner {
            shared: Arc::new(HubContext { client, documents: Documents::new(Arc::clone(&topics)), hub_url, signature }),
            topics,
            guard,
            settings,
            queue: Mutex::new(VerificationQueue::new()),
            wake: Notify::new(),
            subscribers: Mutex::default(),
            failures: Mutex::default(),
            subscriptions,
        }));
        let records: Weak<Inner> = Arc::downgrade(&hub.0);
        hub.0.subscriptions.set_hub(records);
        hub.0.resume_stored().await?;
        Ok((hub.clone(), HubRunner(hub.0)))
    }

    /// Returns the rules for callback URLs.
    #[must_use]
    pub fn guard(&self) -> &OutboundPolicy {
        &self.0.guard
    }

    /// Queues the request of a subscriber, who may see this part of the journal, for verification.
    ///
    /// # Errors
    /// Fails if the topic does not exist or the queue is full.
    pub fn submit(&self, request: HubRequest, view: Option<Arc<ReaderView>>) -> Result<(), SubmitError> {
        let inner = &self.0;
        let topic = inner.topics.find(&request.topic, view).map_err(InvalidRequest::Topic)?;
        let name = SubscriberRecord::name_of(&request.callback, &topic.url);
        let name = name.ok_or_else(|| InvalidRequest::Topic("it has no name".to_owned()))?;
        let head = inner.subscriptions.journal().head();
        let target = Target { server: request.callback.origin(), site: request.callback.site() };
        let added = inner.queue().add(&name, &target, Instant::now(), |before: Option<QueuedRequest>| {
            let since = before.map_or(head, |before| before.since);
            QueuedRequest { request, topic, since }
        });
        inner.wake.notify_one();
        added.map_err(|QueueFull| SubmitError::Busy)
    }
}

impl HubRecords for Inner {
    fn attach(&self, stored: &SubscriptionRecord) -> Result<Arc<Definition>, String> {
        let record = SubscriberRecord::from_json(stored.definition.expose(), &self.guard);
        let record = Arc::new(record.map_err(|error| error.to_string())?);
        let filter = self.topics.find(&record.topic, record.view.clone())?.filter;
        self.subscribers().insert(stored.name.clone(), Arc::clone(&record));
        Ok(Arc::new(self.definition(filter, record)))
    }

    fn detach(&self, name: &SubscriptionName) {
        self.subscribers().remove(name);
    }
}

impl Inner {
    fn queue(&self) -> MutexGuard<'_, VerificationQueue<QueuedRequest>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribers(&self) -> MutexGuard<'_, BTreeMap<SubscriptionName, Arc<SubscriberRecord>>> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether to log a failure at a callback's site above `debug`.
    fn is_news(&self, callback: &OutboundUrl) -> bool {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.is_news(&callback.site(), Instant::now())
    }

    /// Resumes the hub subscriptions of the journal.
    async fn resume_stored(&self) -> Result<(), OperationError> {
        for stored in self.subscriptions.journal().subscriptions().await? {
            if stored.made_by != MadeBy::Hub {
                continue;
            }
            match self.attach(&stored) {
                Ok(definition) => self.subscriptions.attach_hub_definition(&stored.name, definition)?,
                Err(reason) => {
                    tracing::warn!(subscription = %stored.name, reason, "cannot resume a WebSub subscription");
                    self.subscriptions.mark_failed(&stored.name, &reason)?;
                }
            }
        }
        Ok(())
    }

    fn definition(&self, filter: Filter, record: Arc<SubscriberRecord>) -> Definition {
        let config = Arc::new(WebSubConfig { shared: Arc::clone(&self.shared), record });
        // A hub subscription has no dead letters, because nothing is permanently refused.
        Definition {
            filter,
            format: &TOPIC_FORMAT,
            start: StartPosition::Now,
            dead_letters: 0,
            delivery: &WEBSUB,
            config,
        }
    }

    /// Returns the reason why there is no room for another subscription, if there is none.
    fn denial_reason(&self, name: &SubscriptionName, callback: &OutboundUrl) -> Option<String> {
        let subscribers = self.subscribers();
        if subscribers.contains_key(name) {
            return None;
        }
        let of_callback = subscribers.values().filter(|record| record.callback.is_same_without_query(callback)).count();
        if subscribers.len() >= self.settings.subscriptions {
            Some("this hub has reached its maximum number of subscriptions".to_owned())
        } else if of_callback >= self.settings.per_callback {
            Some(format!("this callback has {of_callback} subscriptions, which is the maximum"))
        } else {
            None
        }
    }
}
