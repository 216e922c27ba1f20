//! Pushing over HTTP: a POST for each change, or for several at once, signed as Standard Webhooks 1.0.0 says.
//!
//! Messages go one after the other, the next when the one before has been answered; with `ordered = false` several
//! are on their way at once. There is no connection to speak of: it is made with the first message, kept while
//! messages go, and made anew when something went wrong with it.

mod settings;
mod signature;

use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use axum::http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_TYPE};

use self::{settings::Settings, signature::signatures};
use super::{
    Delivery, DeliveryError, DeliveryKind, Doing, Outcome, Outgoing, Pending, Window,
    answer::judge,
    attempts::{Attempt, AttemptOutcome, Attempts, beginning},
};
use crate::{
    format::{Beside, Carrier, Header},
    http_client::{BoundedResponse, Client, ClientError},
    model::{Seq, Timestamp},
    web::Secret,
};

/// HTTP as a delivery.
pub(super) static WEBHOOK: DeliveryKind = DeliveryKind {
    name: "webhook",
    about: "posts to a URL, signed as Standard Webhooks says",
    keys: &settings::KEYS,
    read: settings::read,
};

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

struct Webhook {
    settings: Arc<Settings>,
    client: Option<Client>,
    line: Arc<Line>,
}

/// What the messages on their way have in common.
struct Line {
    settings: Arc<Settings>,
    attempts: Arc<Attempts>,
    /// What must not be shown of an answer that repeats it.
    secrets: Vec<Secret>,
    /// Whether something went wrong with the connections.
    is_broken: AtomicBool,
    /// Changes that have arrived while one before them had not, as ranges: the first by its last. When the earlier
    /// one is sent again, they are not.
    arrived: Mutex<BTreeMap<Seq, Seq>>,
}

/// A message as it is posted.
struct Post {
    id: String,
    seq: Seq,
    last: Seq,
    changes: usize,
    headers: HeaderMap,
    body: bytes::Bytes,
}

impl Webhook {
    fn new(settings: Arc<Settings>, attempts: &Arc<Attempts>) -> Self {
        let line = Line {
            settings: Arc::clone(&settings),
            attempts: Arc::clone(attempts),
            secrets: settings.to.secrets(),
            is_broken: AtomicBool::new(false),
            arrived: Mutex::default(),
        };
        Self { settings, client: None, line: Arc::new(line) }
    }

    async fn set_up(&mut self) -> Result<(), DeliveryError> {
        if self.client.is_none() {
            let client = Client::new(self.settings.client.clone()).await;
            self.client = Some(client.map_err(|error| DeliveryError(error.to_string()))?);
        }
        Ok(())
    }

    fn post(&self, message: &Outgoing) -> Result<Pending, DeliveryError> {
        let client = self.client.clone().ok_or_else(|| DeliveryError("it is not set up".to_owned()))?;
        let line = Arc::clone(&self.line);
        let post = Post::new(message)?;
        if line.has_arrived(&post) {
            return Ok(Box::pin(std::future::ready(Outcome::Delivered)));
        }
        Ok(Box::pin(async move { line.deliver(&client, post).await }))
    }
}

impl Post {
    fn new(message: &Outgoing) -> Result<Self, DeliveryError> {
        let unreadable = |error: crate::journal::store::StoreError| DeliveryError(error.to_string());
        let Outgoing { change, more, is_batch, format, body } = message;
        let mut id = change.id().map_err(unreadable)?.to_string();
        // The same changes together have the same identifier, however often they are sent.
        if let Some(last) = more.last() {
            id = format!("{id}_{}", last.id().map_err(unreadable)?);
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(message.media_type()));
        if !is_batch && !matches!(format.beside, Beside::Nothing) {
            for Header { name, value } in format.headers(change.change().map_err(unreadable)?, Carrier::Http) {
                if let (Ok(name), Ok(value)) = (HeaderName::try_from(name.as_ref()), HeaderValue::try_from(value)) {
                    headers.insert(name, value);
                }
            }
        }
        let last = more.last().unwrap_or(change).seq();
        Ok(Self { id, seq: change.seq(), last, changes: 1 + more.len(), headers, body: body.clone() })
    }

    /// Adds what is made anew with each attempt: receivers refuse what was signed long ago.
    fn sign(&mut self, settings: &Settings, now: Timestamp) -> HeaderMap {
        let seconds = now.millis().div_euclid(1000);
        let signatures = signatures(&settings.keys, &self.id, seconds, &self.body);
        let mut headers = mem::take(&mut self.headers);
        for (name, value) in [(ID, self.id.clone()), (TIMESTAMP, seconds.to_string()), (SIGNATURE, signatures)] {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(name, value);
            }
        }
        headers
    }
}

impl Line {
    async fn deliver(&self, client: &Client, mut post: Post) -> Outcome {
        let (at, began) = (Timestamp::now(), Instant::now());
        let headers = post.sign(&self.settings, at);
        let answer = client.post(&self.settings.to, headers, mem::take(&mut post.body)).await;
        let outcome = judge(&answer, &self.settings.refused);
        match &answer {
            Err(_) => self.is_broken.store(true, Ordering::Relaxed),
            Ok(_) if outcome == Outcome::Delivered && !self.settings.is_ordered() => self.note_arrival(&post),
            Ok(_) => {}
        }
        self.attempts.keep(self.attempt(post, at, began, &answer, &outcome));
        outcome
    }

    fn attempt(
        &self,
        post: Post,
        at: Timestamp,
        began: Instant,
        answer: &Result<BoundedResponse, ClientError>,
        outcome: &Outcome,
    ) -> Attempt {
        let (outcome, reason) = match outcome {
            Outcome::Delivered | Outcome::Unroutable => (AttemptOutcome::Delivered, None),
            Outcome::Retry { reason, .. } | Outcome::TooLarge { reason } => {
                (AttemptOutcome::Retried, Some(reason.clone()))
            }
            Outcome::Refused { reason } => (AttemptOutcome::Refused, Some(reason.clone())),
            Outcome::Gone { reason } => (AttemptOutcome::Gone, Some(reason.clone())),
        };
        let (status, answer) = match answer {
            Ok(answer) => (Some(answer.status.as_u16()), beginning(&answer.body_start, &self.secrets)),
            Err(_) => (None, String::new()),
        };
        let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Attempt { at, id: post.id, seq: post.seq, changes: post.changes, millis, outcome, status, answer, reason }
    }

    fn arrived(&self) -> MutexGuard<'_, BTreeMap<Seq, Seq>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_arrival(&self, post: &Post) {
        let mut arrived = self.arrived();
        // Replayed dead letters lie before the cursor, and nothing else makes this grow.
        if arrived.len() >= 2 * self.settings.window.messages {
            arrived.pop_first();
        }
        let last = arrived.entry(post.seq).or_insert(post.last);
        *last = post.last.max(*last);
    }

    /// Whether all changes of a message have arrived, be it in another message.
    fn has_arrived(&self, post: &Post) -> bool {
        self.arrived().range(..=post.seq).next_back().is_some_and(|(_, last)| *last >= post.last)
    }

    /// Forgets arrivals that the cursor has passed.
    fn forget_through(&self, seq: Seq) {
        self.arrived().retain(|_, last| *last > seq);
    }
}

impl Delivery for Webhook {
    fn connect(&mut self) -> Doing<'_, Result<(), DeliveryError>> {
        Box::pin(self.set_up())
    }

    fn send(&mut self, message: Outgoing) -> Doing<'_, Result<Pending, DeliveryError>> {
        Box::pin(std::future::ready(self.post(&message)))
    }

    fn failed(&mut self) -> Doing<'_, DeliveryError> {
        // Between two messages nothing is known of a receiver.
        Box::pin(std::future::pending())
    }

    fn close(&mut self) -> Doing<'_, ()> {
        // Where it only answered something else, the connection is as good as before.
        if self.line.is_broken.swap(false, Ordering::Relaxed) {
            self.client = None;
        }
        Box::pin(std::future::ready(()))
    }

    fn window(&self) -> Window {
        self.settings.window
    }

    fn settled_through(&mut self, seq: Seq) {
        self.line.forget_through(seq);
    }
}
