//! Distributing a topic's new entries to one callback (WebSub section 7), as a delivery of the engine: in order,
//! at least once, tried again for as long as the lease lasts.
//!
//! The engine hands over some changes at once, and they go out as one document after another, each of a bounded size.
//! How far they have come is remembered, so that an attempt after a failure goes on where the one before it ended.

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
    kept::Kept,
};
use crate::{
    delivery::{
        Attempts, Blueprint, Delivery, DeliveryError, DeliveryKind, Doing, InvalidDefinition, Outcome, Outgoing,
        Pending, Window, answer::judge,
    },
    format::{Batch, Beside, FormatKind},
    http_client::{BoundedResponse, Client, ClientError},
    journal::RecordedChange,
    model::{SubscriptionName, Timestamp},
    web::Secret,
};

/// WebSub as a delivery. A definition cannot name it: who subscribes asks the hub.
pub(super) static WEBSUB: DeliveryKind = DeliveryKind {
    name: "websub",
    about: "posts a topic's new entries to a WebSub subscriber",
    keys: &[],
    read: |_, _| Err(InvalidDefinition::new("delivery", "a WebSub subscriber subscribes at /hub")),
};

/// What a message is made of depends on its topic, so a change alone has no body.
pub(super) static ENTRIES: FormatKind = FormatKind {
    name: "websub",
    media_type: MEDIA_TYPE,
    about: "entries of a topic",
    write: |_| Vec::new(),
    write_modification: |_| Vec::new(),
    beside: Beside::Nothing,
    batch: Some(Batch { media_type: MEDIA_TYPE, open: "", between: "", close: "" }),
};

/// That of the topics.
const MEDIA_TYPE: &str = "application/atom+xml;type=feed";

/// The header with the signature (section 7.1).
const SIGNATURE: &str = "x-hub-signature";

/// Bounds of the engine: it hands over changes when those before them have arrived. The client bounds each request;
/// this bounds all documents of one handover together.
const WINDOW: Window =
    Window { messages: 1, changes: MOST_CHANGES, bytes: 1 << 20, patience: Duration::from_secs(10 * 60) };

/// Maximum number of changes that the engine hands over at once.
const MOST_CHANGES: usize = 20;

/// Bytes that a change takes in memory while it is distributed, for each byte of its JSON: the text and what is read
/// from it.
const BYTES_IN_MEMORY: usize = 4;

/// Bytes of two documents for each of these bytes: an entry repeats what the change says as a whole.
const DOCUMENTS_BY_SIZE: usize = 16;

/// Bytes of changes, so counted, that the engine hands over at once. Their entries fill a document, about.
const HANDOVER_BYTES: usize = 256 * 1024;

/// What the distributions of one hub have in common.
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) documents: Documents,
    pub(super) hub_url: String,
    pub(super) signature: SignatureMethod,
}

/// A subscriber as a blueprint of its delivery.
pub(super) struct Blue {
    pub(super) shared: Arc<Shared>,
    pub(super) kept: Arc<Kept>,
}

impl Blueprint for Blue {
    fn build(&self, _: &SubscriptionName, _: &Arc<Attempts>) -> Box<dyn Delivery> {
        let (shared, kept) = (Arc::clone(&self.shared), Arc::clone(&self.kept));
        Box::new(Distribution(Arc::new(Callback { shared, kept, progress: Progress::default() })))
    }

    fn max_batch(&self) -> usize {
        MOST_CHANGES
    }

    fn shown(&self) -> Map<String, Value> {
        let Kept { callback, topic, lease, secret } = &*self.kept;
        let shown = json!({
            "callback": callback.to_string(),
            "topic": topic,
            "lease": lease,
            "signed": secret.is_some(),
        });
        match shown {
            Value::Object(shown) => shown,
            _ => Map::new(),
        }
    }
}

struct Distribution(Arc<Callback>);

/// One callback, and how far its distribution is.
struct Callback {
    shared: Arc<Shared>,
    kept: Arc<Kept>,
    progress: Progress,
}

/// How far a distribution is, and how much the callback accepts at once.
struct Progress {
    /// Position behind the last entry that has arrived.
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
    /// Posts the entries of these changes that have not arrived yet.
    async fn distribute(&self, changes: &[Arc<RecordedChange>]) -> Outcome {
        let retry = |reason: String| Outcome::Retry { reason, after: None };
        loop {
            if self.kept.is_over(Timestamp::now()) {
                return Outcome::Gone { reason: "its lease has run out".to_owned() };
            }
            let (documents, progress) = (&self.shared.documents, &self.progress);
            let next = documents.next(&self.kept.topic, changes, progress.position(), progress.bytes());
            let document = match next {
                Ok(Some(document)) => document,
                Ok(None) => return Outcome::Delivered,
                Err(reason) => return retry(reason),
            };
            let headers = match self.headers(&document.body) {
                Ok(headers) => headers,
                Err(reason) => return retry(reason),
            };
            let answer = self.shared.client.post(&self.kept.callback, headers, document.body.clone()).await;
            match outcome(&answer, document.entries) {
                Outcome::Delivered => progress.has_arrived(&document),
                Outcome::TooLarge { .. } => progress.was_too_large(&document),
                other => return other,
            }
        }
    }

    fn headers(&self, body: &[u8]) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        let links = format!("<{}>; rel=\"hub\", <{}>; rel=\"self\"", self.shared.hub_url, self.kept.topic);
        let signature = self.kept.secret.as_ref().map(|secret| self.shared.signature.sign(secret, body));
        for (name, value) in [(LINK.as_str(), Some(links)), (SIGNATURE, signature)] {
            let Some(value) = value else { continue };
            let value = HeaderValue::try_from(value).map_err(|error| format!("{name}: {error}"))?;
            headers.insert(name, value);
        }
        Ok(headers)
    }
}

impl Delivery for Distribution {
    fn connect(&mut self) -> Doing<'_, Result<(), DeliveryError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn send(&mut self, message: Outgoing) -> Doing<'_, Result<Pending, DeliveryError>> {
        let callback = Arc::clone(&self.0);
        let Outgoing { change, more, .. } = message;
        let pending: Pending = Box::pin(async move {
            let changes: Vec<_> = std::iter::once(change).chain(more).collect();
            callback.distribute(&changes).await
        });
        Box::pin(std::future::ready(Ok(pending)))
    }

    fn failed(&mut self) -> Doing<'_, DeliveryError> {
        // Between two messages nothing is known of a callback.
        Box::pin(std::future::pending())
    }

    fn close(&mut self) -> Doing<'_, ()> {
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
        // A document, and the one that was rendered before it to find its size.
        size.saturating_mul(DOCUMENTS_BY_SIZE).min(2 * DOCUMENT_BYTES)
    }
}

/// Returns the outcome of a document with this number of entries. A document of one entry cannot be made smaller.
fn outcome(answer: &Result<BoundedResponse, ClientError>, entries: usize) -> Outcome {
    match judge(answer, &BTreeSet::new()) {
        Outcome::TooLarge { reason } if entries <= 1 => Outcome::Retry { reason, after: None },
        outcome => outcome,
    }
}

impl SignatureMethod {
    /// The value of the header: `sha256=` and the HMAC of the body by the secret, in hexadecimal.
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

    use super::{BoundedResponse, Bytes, HeaderMap, Outcome, Secret, SignatureMethod, outcome};

    /// RFC 4231, test case 2.
    #[test]
    fn signs_as_the_standard_does() {
        let sign = |method: SignatureMethod| method.sign(&Secret::new("Jefe"), b"what do ya want for nothing?");
        assert_eq!(
            sign(SignatureMethod::Sha256),
            "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert!(sign(SignatureMethod::Sha384).starts_with("sha384=af45d2e376484031617f78d2b58a6b1b"));
        assert!(sign(SignatureMethod::Sha512).starts_with("sha512=164b7a7bfcf819e2e395fbe73b56e0a3"));
    }

    #[test]
    fn every_answer_but_success_and_the_end_is_a_failure() {
        for status in 200..600 {
            let status_code = StatusCode::from_u16(status).unwrap();
            let answer = Ok(BoundedResponse {
                status: status_code,
                headers: HeaderMap::new(),
                body_start: Bytes::new(),
                is_complete: true,
            });
            let judged = outcome(&answer, 1);
            assert_eq!(matches!(outcome(&answer, 2), Outcome::TooLarge { .. }), status == 413);
            let right = match status {
                200..=299 => judged == Outcome::Delivered,
                410 => matches!(judged, Outcome::Gone { .. }),
                _ => matches!(judged, Outcome::Retry { .. }),
            };
            assert!(right, "{status}: {judged:?}");
        }
    }
}
