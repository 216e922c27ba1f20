//! What a subscription says about the exchange that it publishes to.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use lapin::types::ShortString;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{super::definition::take, Amqp, routing::RoutingKey};
use crate::{
    amqp::{BrokerUrl, QueueType, Resolver},
    delivery::{Attempts, Blueprint, Delivery, InvalidDefinition, Key, Maker, Read, Takes, Window, secret_url},
    http_client::{OutboundPolicy, SystemResolver},
    model::SubscriptionName,
};

/// The keys of the settings.
pub(super) const KEYS: [Key; 11] = [
    Key::needed(
        "url",
        Takes::Address,
        "The broker: amqps://USER@HOST:PORT/VHOST, or where the gateway's operator says so amqp, without TLS.",
    ),
    Key::new(
        "ca",
        Takes::Text,
        "A PEM file with the authority of the broker's certificate; in the configuration file alone.",
    ),
    Key::needed("exchange", Takes::Text, "The exchange: topic, durable."),
    Key::new("declare", Takes::Switch, "Whether the exchange and the queues are declared, or only looked for."),
    Key::new("queues", Takes::Tables, "Durable queues of consumers: name, bindings, type."),
    Key::new("routing_key", Takes::Text, "A key with {kind} and {source} in it."),
    Key::new("unroutable", Takes::Words(&["hold", "count"]), "What it means that a message reaches no queue."),
    WINDOW,
    WINDOW_BYTES,
    CONFIRM_SECONDS,
    MAX_MESSAGE_BYTES,
];

/// More unconfirmed messages bring no more throughput, and fewer less.
const WINDOW: Key = Key::number("window", 1..=65_535, 1000, "How many messages may be unconfirmed.");

const WINDOW_BYTES: Key = Key::number("window_bytes", 1024..=1 << 30, 8 * 1024 * 1024, "How many bytes of them.");

/// A quorum queue that elects a leader takes a few seconds.
const CONFIRM_SECONDS: Key = Key::number("confirm_seconds", 1..=3600, 30, "How long a confirmation is waited for.");

/// The default is RabbitMQ's own bound before version 4 (`max_message_size`).
const MAX_MESSAGE_BYTES: Key =
    Key::number("max_message_bytes", 1024..=1 << 30, 128 * 1024 * 1024, "A larger message becomes a dead letter.");

const DEFAULT_ROUTING_KEY: &str = "content.{kind}.{source}";

/// The settings, checked.
pub(super) struct Settings {
    pub(super) address: BrokerUrl,
    pub(super) ca: Option<PathBuf>,
    /// Finds the addresses that connections may go to.
    pub(super) resolver: Resolver,
    pub(super) exchange: ShortString,
    pub(super) declare: bool,
    pub(super) queues: Vec<Queue>,
    pub(super) routing_key: RoutingKey,
    pub(super) unroutable: Unroutable,
    pub(super) window: Window,
    pub(super) max_message_bytes: usize,
}

/// What it means that a message reaches no queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Unroutable {
    /// It waits, and everything behind it, until there is a queue for it.
    #[default]
    Hold,
    /// It is counted, and the next one is sent.
    Count,
}

impl Unroutable {
    fn name(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Count => "count",
        }
    }
}

/// A queue of a consumer that is known by name.
pub(super) struct Queue {
    pub(super) name: ShortString,
    pub(super) bindings: Vec<ShortString>,
    pub(super) kind: QueueType,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QueueTable {
    name: String,
    #[serde(default)]
    bindings: Option<Vec<String>>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
}

pub(super) fn read(mut table: Map<String, Value>, maker: &Maker<'_>) -> Read {
    let url = secret_url::read("url", table.remove("url"), maker)?;
    let address = BrokerUrl::parse(&String::from_utf8_lossy(url.expose()));
    let address = address.map_err(|error| InvalidDefinition::new("url", error.to_string()))?;
    let allowed = maker.guard.check_named(address.host(), address.is_encrypted());
    allowed.map_err(|error| InvalidDefinition::new("url", error.to_string()))?;
    let ca = maker.take_authority(&mut table)?;
    let exchange: Option<String> = take(&mut table, "exchange")?;
    let exchange = exchange.ok_or_else(|| InvalidDefinition::new("exchange", "it is missing; add it"))?;
    let routing_key: Option<String> = take(&mut table, "routing_key")?;
    let routing_key = RoutingKey::parse(routing_key.as_deref().unwrap_or(DEFAULT_ROUTING_KEY))
        .map_err(|reason| InvalidDefinition::new("routing_key", reason))?;
    let queues: Vec<QueueTable> = take(&mut table, "queues")?.unwrap_or_default();
    let queues = queues.into_iter().enumerate().map(|(at, queue)| queue.checked(&format!("queues.{at}")));
    let window = Window {
        messages: WINDOW.take(&mut table)?,
        changes: 1,
        bytes: WINDOW_BYTES.take(&mut table)?,
        patience: Duration::from_secs(CONFIRM_SECONDS.take(&mut table)? as u64),
    };
    let max_message_bytes = MAX_MESSAGE_BYTES.take(&mut table)?;
    Ok(Arc::new(Blue(Arc::new(Settings {
        address,
        ca,
        resolver: guarded(maker.guard.clone()),
        exchange: name("exchange", &exchange)?,
        declare: take(&mut table, "declare")?.unwrap_or(true),
        queues: queues.collect::<Result<_, _>>()?,
        routing_key,
        unroutable: take(&mut table, "unroutable")?.unwrap_or_default(),
        window,
        max_message_bytes,
    }))))
}

/// A resolver that leaves out the addresses that the guard does not allow. The connection goes to the addresses that
/// were checked, and the name is not looked up again.
fn guarded(guard: OutboundPolicy) -> Resolver {
    Arc::new(move |endpoint| {
        let (guard, host) = (guard.clone(), endpoint.host().to_owned());
        let (port, is_encrypted) = (endpoint.port(), endpoint.is_encrypted());
        Box::pin(async move {
            let found = guard.resolve(&SystemResolver::default(), &host, is_encrypted).await?;
            Ok(found.into_iter().map(|address| SocketAddr::new(address, port)).collect())
        })
    })
}

impl QueueTable {
    fn checked(self, at: &str) -> Result<Queue, InvalidDefinition> {
        let named = self.kind.as_deref().unwrap_or(QueueType::Quorum.name());
        let kind = QueueType::ALL.into_iter().find(|kind| kind.name() == named).ok_or_else(|| {
            let known = QueueType::ALL.map(QueueType::name).join(" or ");
            InvalidDefinition::new(format!("{at}.type"), format!("it is {named:?}; give {known}"))
        })?;
        let bindings = self.bindings.unwrap_or_else(|| vec!["#".to_owned()]);
        let binding = |binding: &String| bounded(&format!("{at}.bindings"), binding);
        Ok(Queue {
            name: name(&format!("{at}.name"), &self.name)?,
            bindings: bindings.iter().map(binding).collect::<Result<_, _>>()?,
            kind,
        })
    }
}

/// The name of an exchange or a queue. That without a name is one that nothing can be bound to.
fn name(key: &str, name: &str) -> Result<ShortString, InvalidDefinition> {
    if name.is_empty() { Err(InvalidDefinition::new(key, "it is empty; give a name")) } else { bounded(key, name) }
}

fn bounded(key: &str, text: &str) -> Result<ShortString, InvalidDefinition> {
    if text.len() > 255 {
        return Err(InvalidDefinition::new(key, format!("it has {} bytes; AMQP takes 255", text.len())));
    }
    Ok(ShortString::from(text))
}

/// The settings as a blueprint of the delivery.
struct Blue(Arc<Settings>);

impl Blueprint for Blue {
    fn build(&self, subscription: &SubscriptionName, _: &Arc<Attempts>) -> Box<dyn Delivery> {
        Box::new(Amqp::new(Arc::clone(&self.0), subscription))
    }

    fn shown(&self) -> Map<String, Value> {
        let settings = &*self.0;
        let queue = |queue: &Queue| {
            let bindings: Vec<_> = queue.bindings.iter().map(ShortString::as_str).collect();
            json!({ "name": queue.name.as_str(), "bindings": bindings, "type": queue.kind.name() })
        };
        let shown = json!({
            "url": settings.address.to_string(),
            "ca": settings.ca,
            "exchange": settings.exchange.as_str(),
            "declare": settings.declare,
            "queues": settings.queues.iter().map(queue).collect::<Vec<_>>(),
            "routing_key": settings.routing_key.as_str(),
            "unroutable": settings.unroutable.name(),
            "window": settings.window.messages,
            "window_bytes": settings.window.bytes,
            "confirm_seconds": settings.window.patience.as_secs(),
            "max_message_bytes": settings.max_message_bytes,
        });
        match shown {
            Value::Object(shown) => shown.into_iter().filter(|(_, value)| !value.is_null()).collect(),
            _ => Map::new(),
        }
    }
}
