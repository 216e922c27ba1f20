//! Posts changes over HTTP, one or several per request, signed according to Standard Webhooks 1.0.0.
//!
//! Messages are sent one at a time; with `ordered = false`, several are in flight. The HTTP client opens a
//! connection with the first message, reuses it, and opens another after a connection error. With a shape ([`shape`]), the
//! requests come from templates, for receivers that read no message of the gateway.

mod settings;
mod shape;
mod signature;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header::CONTENT_TYPE};

use self::{settings::WebhookSettings, signature::signatures};
use super::{
    BoxFuture, Delivery, DeliveryError, DeliveryFuture, DeliveryKind, DeliveryOutcome, Outgoing, REPEAT_HEADER, Window,
    attempts::{Attempt, AttemptLog, AttemptOutcome, excerpt},
    http_outcome::outcome_of,
};
use crate::{
    format::{ExtraHeaders, Header, HeaderProtocol},
    http_client::{BoundedResponse, Client, ClientError, OutboundUrl, RequestHeaders},
    journal::store::StoreError,
    model::{Seq, Timestamp},
    web::Secret,
};

/// HTTP as a kind of delivery.
pub(super) static WEBHOOK: DeliveryKind = DeliveryKind {
    name: "webhook",
    about: "posts to a URL, signed as Standard Webhooks says",
    has_routing_keys: false,
    settings: &settings::KEYS,
    parse: settings::parse,
};

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Estimate of the bytes in memory for each byte of a message that has a shape.
const SHAPE_FACTOR: usize = 10;

struct Webhook {
    settings: Arc<WebhookSettings>,
    client: Option<Client>,
    shared: Arc<SharedState>,
}

/// State shared by all in-flight messages.
struct SharedState {
    settings: Arc<WebhookSettings>,
    attempts: Arc<AttemptLog>,
    /// Secrets to remove from responses that echo them.
    secrets: Vec<Secret>,
    /// Whether a connection has failed.
    is_broken: AtomicBool,
    /// Delivered ranges of changes after an undelivered one, keyed by the first change, with the last as the
    /// value. When the undelivered message is sent again, these are not.
    arrived: Mutex<BTreeMap<Seq, Seq>>,
}

/// A message to deliver.
struct Post {
    id: String,
    seq: Seq,
    last: Seq,
    changes: usize,
}

/// One HTTP request of a message.
struct Request {
    method: Method,
    to: OutboundUrl,
    headers: RequestHeaders,
    body: bytes::Bytes,
}

impl Webhook {
    fn new(settings: Arc<WebhookSettings>, attempts: &Arc<AttemptLog>) -> Self {
        let shared = SharedState {
            settings: Arc::clone(&settings),
            attempts: Arc::clone(attempts),
            secrets: settings.secrets(),
            is_broken: AtomicBool::new(false),
            arrived: Mutex::default(),
        };
        Self { settings, client: None, shared: Arc::new(shared) }
    }

    async fn create_client(&mut self) -> Result<(), DeliveryError> {
        if self.client.is_none() {
            let client = Client::new(self.settings.client.clone()).await;
            self.client = Some(client.map_err(|error| DeliveryError(error.to_string()))?);
        }
        Ok(())
    }

    fn post(&self, message: Outgoing) -> Result<DeliveryFuture, DeliveryError> {
        let client = self.client.clone().ok_or_else(|| DeliveryError("it is not set up".to_owned()))?;
        let shared = Arc::clone(&self.shared);
        let post = Post::new(&message)?;
        if shared.has_arrived(&post) {
            return Ok(Box::pin(std::future::ready(DeliveryOutcome::Delivered)));
        }
        let plain = match self.settings.shape {
            Some(_) => None,
            None => Some(Request::plain(&message, &self.settings.to)?),
        };
        Ok(Box::pin(async move {
            match plain {
                Some(request) => shared.deliver(&client, post, vec![request]).await,
                None => shared.deliver_shaped(&client, post, message).await,
            }
        }))
    }
}

impl Post {
    fn new(message: &Outgoing) -> Result<Self, DeliveryError> {
        let Outgoing { change, more, .. } = message;
        let mut id = change.id().map_err(unreadable)?.to_string();
        // A batch of the same changes has the same identifier in every attempt.
        if let Some(last) = more.last() {
            id = format!("{id}_{}", last.id().map_err(unreadable)?);
        }
        let last = more.last().unwrap_or(change).seq();
        Ok(Self { id, seq: change.seq(), last, changes: 1 + more.len() })
    }
}

impl Request {
    /// Creates the request of a message without a shape: the body is the message, in its format.
    fn plain(message: &Outgoing, to: &OutboundUrl) -> Result<Self, DeliveryError> {
        let Outgoing { change, is_batch, is_repeat, format, body, .. } = message;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(message.media_type()));
        if !is_batch && !matches!(format.extra_headers, ExtraHeaders::None) {
            for Header { name, value } in format.headers(change.change().map_err(unreadable)?, HeaderProtocol::Http) {
                if let (Ok(name), Ok(value)) = (HeaderName::try_from(name.as_ref()), HeaderValue::try_from(value)) {
                    headers.insert(name, value);
                }
            }
        }
        if *is_repeat {
            headers.insert(HeaderName::from_static(REPEAT_HEADER), HeaderValue::from_static("true"));
        }
        Ok(Self { method: Method::POST, to: to.clone(), headers: headers.into(), body: body.clone() })
    }

    /// Adds the headers that each attempt needs anew, because receivers refuse old signatures.
    fn sign(&mut self, settings: &WebhookSettings, id: &str, now: Timestamp) {
        let seconds = now.millis().div_euclid(1000);
        let mut headers = vec![(ID, id.to_owned()), (TIMESTAMP, seconds.to_string())];
        if !settings.keys.is_empty() {
            headers.push((SIGNATURE, signatures(&settings.keys, id, seconds, &self.body)));
        }
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::try_from(value) {
                self.headers.insert(name, value);
            }
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is used in map_err")]
fn unreadable(error: StoreError) -> DeliveryError {
    DeliveryError(error.to_string())
}

impl SharedState {
    /// Makes the requests of a message by the shape, and sends them. A message without requests will never have any: it is
    /// refused.
    async fn deliver_shaped(self: Arc<Self>, client: &Client, post: Post, message: Outgoing) -> DeliveryOutcome {
        let shared = Arc::clone(&self);
        let made = tokio::task::spawn_blocking(move || {
            let WebhookSettings { shape, to, .. } = &*shared.settings;
            let Outgoing { body, is_batch, is_repeat, .. } = message;
            shape.as_ref().map_or(Ok(Vec::new()), |shape| shape.requests(&body, is_batch, is_repeat, to))
        });
        match made.await {
            Ok(Ok(requests)) => self.deliver(client, post, requests).await,
            Ok(Err(error)) => {
                let outcome = DeliveryOutcome::Refused { reason: error.to_string() };
                self.attempts.record(self.attempt(post, Timestamp::now(), Instant::now(), None, &outcome));
                outcome
            }
            Err(error) => DeliveryOutcome::Retry { reason: error.to_string(), after: None },
        }
    }

    /// Sends the requests of a message, one after the other, until one is not accepted.
    async fn deliver(&self, client: &Client, post: Post, requests: Vec<Request>) -> DeliveryOutcome {
        let (at, began) = (Timestamp::now(), Instant::now());
        let mut outcome = DeliveryOutcome::Delivered;
        let mut last_answer = None;
        for mut request in requests {
            request.sign(&self.settings, &post.id, Timestamp::now());
            let Request { method, to, headers, body } = request;
            let answer = client.send(method, &to, headers, body).await;
            outcome = self.outcome_of(&answer);
            last_answer = Some(answer);
            if outcome != DeliveryOutcome::Delivered {
                break;
            }
        }
        match &last_answer {
            Some(Err(_)) => self.is_broken.store(true, Ordering::Relaxed),
            _ if outcome == DeliveryOutcome::Delivered && !self.settings.table.is_ordered => {
                self.note_arrival(&post);
            }
            _ => {}
        }
        self.attempts.record(self.attempt(post, at, began, last_answer.as_ref(), &outcome));
        outcome
    }

    fn outcome_of(&self, answer: &Result<BoundedResponse, ClientError>) -> DeliveryOutcome {
        let by_shape = match (&self.settings.shape, answer) {
            (Some(shape), Ok(answer)) => shape.outcome_of(answer),
            _ => None,
        };
        if let Some(outcome) = by_shape {
            return outcome;
        }
        let mut outcome = outcome_of(answer, &self.settings.table.refused_statuses);
        if let (Ok(answer), DeliveryOutcome::Retry { reason, .. }) = (answer, &mut outcome)
            && answer.status == StatusCode::UNAUTHORIZED
        {
            reason.push_str(match self.settings.keys.is_empty() {
                false => ": does the receiver have the same secret?",
                true => ": does the receiver know the user, or the header in request.headers?",
            });
        }
        outcome
    }

    fn attempt(
        &self,
        post: Post,
        at: Timestamp,
        began: Instant,
        answer: Option<&Result<BoundedResponse, ClientError>>,
        outcome: &DeliveryOutcome,
    ) -> Attempt {
        let (outcome, reason) = match outcome {
            DeliveryOutcome::Delivered | DeliveryOutcome::Unroutable => (AttemptOutcome::Delivered, None),
            DeliveryOutcome::Retry { reason, .. } | DeliveryOutcome::TooLarge { reason } => {
                (AttemptOutcome::Retried, Some(reason.clone()))
            }
            DeliveryOutcome::Refused { reason } => (AttemptOutcome::Refused, Some(reason.clone())),
            DeliveryOutcome::Gone { reason } => (AttemptOutcome::Gone, Some(reason.clone())),
        };
        let (status, answer) = match answer {
            Some(Ok(answer)) => (Some(answer.status.as_u16()), excerpt(&answer.body_start, &self.secrets)),
            Some(Err(_)) | None => (None, String::new()),
        };
        let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Attempt { at, id: post.id, seq: post.seq, changes: post.changes, millis, outcome, status, answer, reason }
    }

    fn arrived(&self) -> MutexGuard<'_, BTreeMap<Seq, Seq>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_arrival(&self, post: &Post) {
        let mut arrived = self.arrived();
        // Only replayed dead letters, which are before the cursor, can make the map grow.
        if arrived.len() >= 2 * self.settings.window.messages {
            arrived.pop_first();
        }
        let last = arrived.entry(post.seq).or_insert(post.last);
        *last = post.last.max(*last);
    }

    /// Returns whether all changes of a message have been delivered, possibly in another message.
    fn has_arrived(&self, post: &Post) -> bool {
        self.arrived().range(..=post.seq).next_back().is_some_and(|(_, last)| *last >= post.last)
    }

    /// Removes deliveries that the cursor has passed.
    fn forget_through(&self, seq: Seq) {
        self.arrived().retain(|_, last| *last > seq);
    }
}

impl Delivery for Webhook {
    fn connect(&mut self) -> BoxFuture<'_, Result<(), DeliveryError>> {
        Box::pin(self.create_client())
    }

    fn send(&mut self, message: Outgoing) -> BoxFuture<'_, Result<DeliveryFuture, DeliveryError>> {
        Box::pin(std::future::ready(self.post(message)))
    }

    fn wait_for_failure(&mut self) -> BoxFuture<'_, DeliveryError> {
        // Between two messages the state of the receiver is unknown.
        Box::pin(std::future::pending())
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        // After an error response the connection still works, so the client is kept.
        if self.shared.is_broken.swap(false, Ordering::Relaxed) {
            self.client = None;
        }
        Box::pin(std::future::ready(()))
    }

    fn window(&self) -> Window {
        self.settings.window
    }

    /// A shape reads the message into values, and makes texts of them.
    fn extra_bytes(&self, size: usize) -> usize {
        if self.settings.shape.is_some() { SHAPE_FACTOR * size } else { 0 }
    }

    fn settled_through(&mut self, seq: Seq) {
        self.shared.forget_through(seq);
    }
}
