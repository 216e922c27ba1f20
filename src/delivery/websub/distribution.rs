//! Distributes the new entries of a topic to one callback (WebSub section 7), as a delivery of the engine: in
//! order, at least once, with retries until the lease expires.
//!
//! The engine passes several changes at once. They are posted as consecutive documents of bounded size. The
//! progress is remembered, so that a retry continues after the last delivered document.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::http::{
    HeaderMap, HeaderValue,
    header::{CONTENT_TYPE, LINK},
};
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Map, Value, json};
use sha2::{Sha256, Sha384, Sha512};

use super::{
    SignatureMethod,
    documents::{DOCUMENT_BYTES, Document, Documents, Position},
    subscriber_record::SubscriberRecord,
};
use crate::{
    delivery::{
        AttemptLog, BoxFuture, Delivery, DeliveryConfig, DeliveryError, DeliveryFuture, DeliveryKind, DeliveryOutcome,
        InvalidDefinition, Outgoing, Window, http_outcome::outcome_of,
    },
    format::{Batch, ExtraHeaders, FormatKind},
    http_client::{BoundedResponse, Client, ClientError},
    journal::RecordedChange,
    model::{SubscriptionName, Timestamp},
    web::Secret,
};

/// WebSub as a kind of delivery. A definition cannot name it, because subscribers use the hub.
pub(super) static WEBSUB: DeliveryKind = DeliveryKind {
    name: "websub",
    about: "posts a topic's new entries to a WebSub subscriber",
    has_routing_keys: false,
    settings: &[],
    parse: |_, _| Err(InvalidDefinition::new("delivery", "a WebSub subscriber subscribes at /hub")),
};

/// Format of hub subscriptions. The body depends on the topic, so a single change has none.
pub(super) static TOPIC_FORMAT: FormatKind = FormatKind {
    name: "websub",
    media_type: MEDIA_TYPE,
    about: "entries of a topic",
    write: |_| Vec::new(),
    write_modification: |_| Vec::new(),
    covers: None,
    extra_headers: ExtraHeaders::None,
    routed: None,
    batch: Some(Batch { media_type: MEDIA_TYPE, open: "", between: "", close: "" }),
};

/// Media type of the topics.
const MEDIA_TYPE: &str = "application/atom+xml;type=feed";

/// Header with the signature (section 7.1).
const SIGNATURE: &str = "x-hub-signature";

/// Bounds for the engine: one message at a time. The timeout covers all documents of one message; the client
/// limits each request.
const WINDOW: Window =
    Window { messages: 1, changes: MAX_CHANGES, bytes: 1 << 20, outcome_timeout: Duration::from_secs(10 * 60) };

/// Maximum number of changes in one message from the engine.
const MAX_CHANGES: usize = 20;

/// Bytes in memory per byte of a change's JSON during distribution: the text and its parsed form.
const BYTES_IN_MEMORY: usize = 4;

/// Bytes of two documents per such byte: each entry repeats the data of the whole change.
const DOCUMENTS_BY_SIZE: usize = 16;

/// Maximum number of such bytes in one message from the engine. Their entries fill about one document.
const HANDOVER_BYTES: usize = 256 * 1024;

/// Context shared by all distributions of a hub.
pub(super) struct HubContext {
    pub(super) client: Client,
    pub(super) documents: Documents,
    pub(super) hub_url: String,
    pub(super) signature: SignatureMethod,
}

/// Configuration of the delivery to one subscriber.
pub(super) struct WebSubConfig {
    pub(super) shared: Arc<HubContext>,
    pub(super) record: Arc<SubscriberRecord>,
}

impl DeliveryConfig for WebSubConfig {
    fn build(&self, _: &SubscriptionName, _: &Arc<AttemptLog>) -> Box<dyn Delivery> {
        let (shared, record) = (Arc::clone(&self.shared), Arc::clone(&self.record));
        Box::new(Distribution(Arc::new(Callback { shared, record, progress: Progress::default() })))
    }

    fn max_batch(&self) -> usize {
        MAX_CHANGES
    }

    fn redacted(&self) -> Map<String, Value> {
        let SubscriberRecord { callback, topic, lease, secret, view } = &*self.record;
        let settings_json = json!({
            "callback": callback.to_string(),
            "topic": topic,
            "lease": lease,
            "signed": secret.is_some(),
        });
        let mut members = match settings_json {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        if let Some(view) = view {
            members.insert("view".to_owned(), json!(**view));
        }
        members
    }
}

struct Distribution(Arc<Callback>);

/// A callback and the progress of its distribution.
struct Callback {
    shared: Arc<HubContext>,
    record: Arc<SubscriberRecord>,
    progress: Progress,
}

/// Progress of a distribution, and the document size that the callback accepts.
struct Progress {
    /// Position after the last delivered entry.
    position: Mutex<Position>,
    /// Maximum number of bytes in a document.
    bytes: AtomicUsize,
}

impl Default for Progress {
    fn default() -> Self {
        Self { position: Mutex::default(), bytes: AtomicUsize::new(DOCUMENT_BYTES) }
    }
}

impl Progress {
    fn position(&self) -> Position {
        *self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_arrived(&self, document: &Document) {
        *self.position.lock().unwrap_or_else(PoisonError::into_inner) = document.next;
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn was_too_large(&self, document: &Document) {
        self.bytes.store(document.body.len() / 2, Ordering::Relaxed);
    }
}

impl Callback {
    /// Posts the undelivered entries of these changes.
    async fn distribute(&self, changes: &[Arc<RecordedChange>]) -> DeliveryOutcome {
        let retry = |reason: String| DeliveryOutcome::Retry { reason, after: None };
        loop {
            if self.record.is_expired(Timestamp::now()) {
                return DeliveryOutcome::Gone { reason: "its lease has expired".to_owned() };
            }
            let (documents, progress) = (&self.shared.documents, &self.progress);
            let next =
                documents.next(&self.record.topic, &self.record.view, changes, progress.position(), progress.bytes());
            let document = match next.await {
                Ok(Some(document)) => document,
                Ok(None) => return DeliveryOutcome::Delivered,
                Err(reason) => return retry(reason),
            };
            let headers = match self.headers(&document) {
                Ok(headers) => headers,
                Err(reason) => return retry(reason),
            };
            let answer = self.shared.client.post(&self.record.callback, headers, document.body.clone()).await;
            match outcome(&answer, document.entries) {
                DeliveryOutcome::Delivered => progress.has_arrived(&document),
                DeliveryOutcome::TooLarge { .. } => progress.was_too_large(&document),
                other => return other,
            }
        }
    }

    fn headers(&self, document: &Document) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(document.media_type));
        let links = format!("<{}>; rel=\"hub\", <{}>; rel=\"self\"", self.shared.hub_url, self.record.topic);
        let signature = self.record.secret.as_ref().map(|secret| self.shared.signature.sign(secret, &document.body));
        for (name, value) in [(LINK.as_str(), Some(links)), (SIGNATURE, signature)] {
            let Some(value) = value else { continue };
            let value = HeaderValue::try_from(value).map_err(|error| format!("{name}: {error}"))?;
            headers.insert(name, value);
        }
        Ok(headers)
    }
}

impl Delivery for Distribution {
    fn connect(&mut self) -> BoxFuture<'_, Result<(), DeliveryError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn send(&mut self, message: Outgoing) -> BoxFuture<'_, Result<DeliveryFuture, DeliveryError>> {
        let callback = Arc::clone(&self.0);
        let Outgoing { change, more, .. } = message;
        let pending: DeliveryFuture = Box::pin(async move {
            let changes: Vec<_> = std::iter::once(change).chain(more).collect();
            callback.distribute(&changes).await
        });
        Box::pin(std::future::ready(Ok(pending)))
    }

    fn wait_for_failure(&mut self) -> BoxFuture<'_, DeliveryError> {
        // Between two messages the state of a callback is unknown.
        Box::pin(std::future::pending())
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn window(&self) -> Window {
        WINDOW
    }

    fn batch_bytes(&self) -> usize {
        HANDOVER_BYTES
    }

    fn size_in_message(&self, change: &RecordedChange, _: &Bytes) -> usize {
        change.json().len().saturating_mul(BYTES_IN_MEMORY)
    }

    fn extra_bytes(&self, size: usize) -> usize {
        // Counts two documents: the current one, and the one rendered before it to estimate the size.
        size.saturating_mul(DOCUMENTS_BY_SIZE).min(2 * DOCUMENT_BYTES)
    }
}

/// Returns the outcome of a document with this number of entries. A document of one entry cannot be made
/// smaller.
fn outcome(answer: &Result<BoundedResponse, ClientError>, entries: usize) -> DeliveryOutcome {
    match outcome_of(answer, &BTreeSet::new()) {
        DeliveryOutcome::TooLarge { reason } if entries <= 1 => DeliveryOutcome::Retry { reason, after: None },
        outcome => outcome,
    }
}

impl SignatureMethod {
    /// Returns the header value: `sha256=` and the HMAC of the body in hexadecimal.
    fn sign(self, secret: &Secret, body: &[u8]) -> String {
        let (name, key) = (self.name(), secret.expose());
        let code = match self {
            Self::Sha256 => mac::<Hmac<Sha256>>(key, body),
            Self::Sha384 => mac::<Hmac<Sha384>>(key, body),
            Self::Sha512 => mac::<Hmac<Sha512>>(key, body),
        };
        format!("{name}={code}")
    }
}

#[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
fn mac<M: Mac + KeyInit>(key: &[u8], body: &[u8]) -> String {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(body);
    hex::encode(mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::{BoundedResponse, Bytes, DeliveryOutcome, HeaderMap, Secret, SignatureMethod, outcome};

    /// RFC 4231, test case 2.
    #[test]
    fn signatures_match_rfc_4231() {
        let sign = |method: SignatureMethod| method.sign(&Secret::new("Jefe"), b"what do ya want for nothing?");
        assert_eq!(
            sign(SignatureMethod::Sha256),
            "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert!(sign(SignatureMethod::Sha384).starts_with("sha384=af45d2e376484031617f78d2b58a6b1b"));
        assert!(sign(SignatureMethod::Sha512).starts_with("sha512=164b7a7bfcf819e2e395fbe73b56e0a3"));
    }

    #[test]
    fn every_status_maps_to_an_outcome() {
        for status in 200..600 {
            let status_code = StatusCode::from_u16(status).unwrap();
            let answer = Ok(BoundedResponse {
                status: status_code,
                headers: HeaderMap::new(),
                body_start: Bytes::new(),
                is_complete: true,
            });
            let actual = outcome(&answer, 1);
            assert_eq!(matches!(outcome(&answer, 2), DeliveryOutcome::TooLarge { .. }), status == 413);
            let right = match status {
                200..=299 => actual == DeliveryOutcome::Delivered,
                410 => matches!(actual, DeliveryOutcome::Gone { .. }),
                _ => matches!(actual, DeliveryOutcome::Retry { .. }),
            };
            assert!(right, "{status}: {actual:?}");
        }
    }
}
