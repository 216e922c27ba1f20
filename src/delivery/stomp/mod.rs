//! Publishes to a queue or a topic of ActiveMQ, or of another broker that speaks STOMP. A message is delivered when its
//! receipt has arrived: the broker has stored it then.
//!
//! Messages have the headers of Fedora's own messages besides those of the gateway, so consumers of Fedora's events can
//! read them. After a lost connection all unconfirmed messages are sent again in order.

mod settings;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use self::settings::StompSettings;
use super::{
    BoxFuture, Delivery, DeliveryError, DeliveryFuture, DeliveryKind, DeliveryOutcome, Outgoing, REPEAT_HEADER, Window,
};
use crate::{
    format::{FormatKind, Header, HeaderProtocol, fedora_event_headers},
    model::{Change, ItemChangeKind},
    stomp::{Publisher, Receipt, StompError},
};

/// STOMP as a kind of delivery.
pub(super) static STOMP: DeliveryKind = DeliveryKind {
    name: "stomp",
    about: "publishes to a queue or a topic of an ActiveMQ, or another STOMP broker",
    has_routing_keys: true,
    settings: settings::KEYS,
    parse: settings::parse,
};

/// Header `type` (`JMSType`), for consumers that read several kinds of messages.
const MESSAGE_TYPE: &str = "content-change";

/// Header with the identifier of the change. `message-id` belongs to the broker, and consumers acknowledge with it.
const CHANGE_ID: &str = "change-id";

/// Header with which ActiveMQ makes a `TextMessage`, as Fedora sends, of a message with a length.
const TEXT_MESSAGE: (&str, &str) = ("amq-msg-type", "text");

/// Header that consumers pass to another service. Alpaca reads it in this spelling alone.
const AUTHORIZATION: &str = "Authorization";

/// Headers of a message by name, which is unique.
type Headers = BTreeMap<String, String>;

struct Stomp {
    settings: Arc<StompSettings>,
    publisher: Option<Publisher>,
}

impl Stomp {
    async fn open(&mut self) -> Result<(), StompError> {
        self.publisher = None;
        self.publisher = Some(self.settings.broker.publisher().await?);
        Ok(())
    }

    /// Hands the messages of a change to the connection. The change is delivered when all its messages are.
    fn publish(&mut self, message: Outgoing) -> Result<DeliveryFuture, DeliveryError> {
        let Outgoing { change, format, body, is_repeat, .. } = message;
        let change = change.change().map_err(|error| DeliveryError(error.to_string()))?;
        let mut common = self.headers(change, format);
        if is_repeat {
            common.insert(REPEAT_HEADER.to_owned(), "true".to_owned());
        }
        let id = change.modification.id;
        let with = |more: [(&str, String); 3]| {
            let mut headers = common.clone();
            headers.extend(more.map(|(name, value)| (name.to_owned(), value)));
            headers
        };
        let messages: Vec<(Headers, Bytes)> = match format.routed {
            Some(routed) => {
                let messages = routed(change).into_iter().enumerate().map(|(index, message)| {
                    let key = ("routing-key", message.routing_key.to_owned());
                    let resource = ("resource", message.resource.as_str().to_owned());
                    // A repeat of the change has the same identifiers.
                    (with([(CHANGE_ID, format!("{id}#{index}")), key, resource]), Bytes::from(message.body))
                });
                messages.collect()
            }
            None => {
                common.insert(CHANGE_ID.to_owned(), id.to_string());
                vec![(common, body)]
            }
        };
        let max_bytes = self.settings.table.max_message_bytes;
        if let Some((_, body)) = messages.iter().find(|(_, body)| body.len() > max_bytes) {
            let reason =
                format!("the message has {} bytes; the maximum is {max_bytes} (max_message_bytes)", body.len());
            return Ok(Box::pin(std::future::ready(DeliveryOutcome::Refused { reason })));
        }
        let publisher = self.publisher.as_mut().ok_or_else(|| DeliveryError("no connection is open".to_owned()))?;
        let receipts: Vec<_> = messages.into_iter().map(|(headers, body)| send(publisher, &headers, body)).collect();
        let settings = Arc::clone(&self.settings);
        Ok(Box::pin(async move {
            for receipt in receipts {
                match outcome(receipt, &settings).await {
                    DeliveryOutcome::Delivered => {}
                    failure => return failure,
                }
            }
            DeliveryOutcome::Delivered
        }))
    }

    /// Returns the headers that all messages of a change have.
    fn headers(&self, change: &Change, format: &FormatKind) -> Headers {
        let modification = &change.modification;
        let kinds = ItemChangeKind::among(change).into_iter().map(ItemChangeKind::as_str);
        let mut headers: Headers = [
            ("destination", self.settings.table.destination.clone()),
            ("persistent", "true".to_owned()),
            ("content-type", format.media_type.to_owned()),
            ("type", MESSAGE_TYPE.to_owned()),
            ("seq", change.seq.0.to_string()),
            ("object", modification.object.as_str().to_owned()),
            ("source", modification.origin.source.to_string()),
            ("changes", kinds.collect::<Vec<_>>().join(",")),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        if change.settlement.is_late() {
            headers.insert("late".to_owned(), "true".to_owned());
        }
        let mut of_format = format.headers(change, HeaderProtocol::Stomp);
        if format.routed.is_none() {
            // They replace those of the format `activitystreams`, which knows no base URL.
            of_format.extend(fedora_event_headers(change, self.settings.table.base_url.as_ref()));
        }
        // A secret is one line of visible characters.
        let authorization =
            self.settings.authorization.as_ref().map(|it| String::from_utf8_lossy(it.expose()).into_owned());
        headers.extend(authorization.map(|value| (AUTHORIZATION.to_owned(), value)));
        headers.extend(of_format.into_iter().map(|Header { name, value }| (name.into_owned(), value)));
        headers
    }
}

fn send(publisher: &mut Publisher, headers: &Headers, body: Bytes) -> Receipt {
    let mut headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    headers.extend(is_plain_text(&body).then_some(TEXT_MESSAGE));
    publisher.send(&headers, body)
}

/// Returns whether Java's modified UTF-8, in which ActiveMQ stores the text of a `TextMessage`, has the same octets as
/// UTF-8. ActiveMQ does not convert the text, so a JMS client could not read another one.
fn is_plain_text(body: &[u8]) -> bool {
    // Characters beyond U+FFFF begin with such an octet.
    body.iter().all(|octet| (1..0xF0).contains(octet))
}

async fn outcome(receipt: Receipt, settings: &StompSettings) -> DeliveryOutcome {
    let retry = |reason| DeliveryOutcome::Retry { reason, after: None };
    match receipt.await {
        Ok(Ok(())) => DeliveryOutcome::Delivered,
        Ok(Err(error @ StompError::MessageRefused(_))) => {
            DeliveryOutcome::Refused { reason: settings.describe(&error) }
        }
        Ok(Err(error)) => retry(settings.describe(&error)),
        Err(_) => retry("the connection to the broker is lost".to_owned()),
    }
}

impl Delivery for Stomp {
    fn connect(&mut self) -> BoxFuture<'_, Result<(), DeliveryError>> {
        Box::pin(async { self.open().await.map_err(|error| DeliveryError(error.to_string())) })
    }

    fn send(&mut self, message: Outgoing) -> BoxFuture<'_, Result<DeliveryFuture, DeliveryError>> {
        Box::pin(std::future::ready(self.publish(message)))
    }

    fn wait_for_failure(&mut self) -> BoxFuture<'_, DeliveryError> {
        Box::pin(async {
            match &mut self.publisher {
                Some(publisher) => DeliveryError(self.settings.describe(&publisher.failed().await)),
                None => DeliveryError("no connection is open".to_owned()),
            }
        })
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        let publisher = self.publisher.take();
        Box::pin(async {
            if let Some(publisher) = publisher {
                publisher.close().await;
            }
        })
    }

    fn window(&self) -> Window {
        self.settings.window
    }
}

#[cfg(test)]
mod tests {
    use super::is_plain_text;

    #[test]
    fn text_beyond_the_basic_plane_is_no_text_message() {
        assert!(is_plain_text("{\"a\": \"Skøyen €\u{FFFD}\"}".as_bytes()));
        assert!(!is_plain_text("\u{10000}".as_bytes()) && !is_plain_text(b"\0"));
    }
}
