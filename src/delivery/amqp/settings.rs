//! Settings of the AMQP delivery.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use lapin::types::ShortString;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{super::definition::remove_key, Amqp, routing::RoutingKey};
use crate::{
    amqp::{BrokerUrl, QueueType, Resolver},
    delivery::{
        AttemptLog, ConfigResult, DefinitionContext, Delivery, DeliveryConfig, InvalidDefinition, SettingSpec,
        ValueType, Window, secret_url,
    },
    http_client::{OutboundPolicy, SystemResolver},
    model::SubscriptionName,
};

/// Specifications of the settings.
pub(super) const KEYS: [SettingSpec; 11] = [
    SettingSpec::required(
        "url",
        ValueType::Url,
        "Broker: amqps://USER@HOST:PORT/VHOST; amqp, without TLS, only if the gateway's operator allows it.",
    ),
    SettingSpec::new(
        "ca",
        ValueType::String,
        "PEM file with the CA certificate of the broker; only in the configuration file.",
    ),
    SettingSpec::required("exchange", ValueType::String, "Durable topic exchange."),
    SettingSpec::new("declare", ValueType::Bool, "Declare the exchange and the queues, or only check that they exist."),
    SettingSpec::new("queues", ValueType::Tables, "Durable queues for consumers: name, bindings, type."),
    SettingSpec::new(
        "routing_key",
        ValueType::String,
        "Template of the routing key, with {kind} and {source}; unused if the format has keys of its own.",
    ),
    SettingSpec::new(
        "unroutable",
        ValueType::Enum(&["hold", "count"]),
        "Treatment of a message that reaches no queue: wait (hold) or count and skip it (count).",
    ),
    WINDOW,
    WINDOW_BYTES,
    CONFIRM_SECONDS,
    MAX_MESSAGE_BYTES,
];

/// A larger window does not increase throughput, and a smaller one reduces it.
const WINDOW: SettingSpec = SettingSpec::number("window", 1..=65_535, 1000, "Maximum number of unconfirmed messages.");

const WINDOW_BYTES: SettingSpec = SettingSpec::number(
    "window_bytes",
    1024..=1 << 30,
    8 * 1024 * 1024,
    "Maximum number of bytes in unconfirmed messages.",
);

/// Electing a leader of a quorum queue takes a few seconds.
const CONFIRM_SECONDS: SettingSpec =
    SettingSpec::number("confirm_seconds", 1..=3600, 30, "Maximum time to wait for a confirmation.");

/// The default is the limit of RabbitMQ before version 4 (`max_message_size`).
const MAX_MESSAGE_BYTES: SettingSpec = SettingSpec::number(
    "max_message_bytes",
    1024..=1 << 30,
    128 * 1024 * 1024,
    "Maximum size; a larger message becomes a dead letter.",
);

const DEFAULT_ROUTING_KEY: &str = "content.{kind}.{source}";

/// Validated settings.
pub(super) struct AmqpSettings {
    pub(super) address: BrokerUrl,
    pub(super) ca: Option<PathBuf>,
    /// Resolves the broker's host to allowed socket addresses.
    pub(super) resolver: Resolver,
    pub(super) exchange: ShortString,
    pub(super) declare: bool,
    pub(super) queues: Vec<Queue>,
    pub(super) routing_key: RoutingKey,
    pub(super) unroutable: Unroutable,
    pub(super) window: Window,
    pub(super) max_message_bytes: usize,
}

/// Treatment of messages that reach no queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Unroutable {
    /// The message and all later ones wait until a queue is bound.
    #[default]
    Hold,
    /// The message is counted and skipped.
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

/// A queue of a consumer, to declare or to check.
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

pub(super) fn parse(mut table: Map<String, Value>, context: &DefinitionContext<'_>) -> ConfigResult {
    let url = secret_url::read_url("url", table.remove("url"), context)?;
    let address = BrokerUrl::parse(&String::from_utf8_lossy(url.expose()));
    let address = address.map_err(|error| InvalidDefinition::new("url", error.to_string()))?;
    let allowed = context.guard.check_named(address.host(), address.is_encrypted());
    allowed.map_err(|error| InvalidDefinition::new("url", error.to_string()))?;
    let ca = context.remove_ca_file(&mut table)?;
    let exchange: Option<String> = remove_key(&mut table, "exchange")?;
    let exchange = exchange.ok_or_else(|| InvalidDefinition::new("exchange", "it is missing; add it"))?;
    let routing_key: Option<String> = remove_key(&mut table, "routing_key")?;
    let routing_key = RoutingKey::parse(routing_key.as_deref().unwrap_or(DEFAULT_ROUTING_KEY))
        .map_err(|reason| InvalidDefinition::new("routing_key", reason))?;
    let queues: Vec<QueueTable> = remove_key(&mut table, "queues")?.unwrap_or_default();
    let queues = queues.into_iter().enumerate().map(|(at, queue)| queue.validate(&format!("queues.{at}")));
    let window = Window {
        messages: WINDOW.remove_integer(&mut table)?,
        changes: 1,
        bytes: WINDOW_BYTES.remove_integer(&mut table)?,
        outcome_timeout: Duration::from_secs(CONFIRM_SECONDS.remove_integer(&mut table)? as u64),
    };
    let max_message_bytes = MAX_MESSAGE_BYTES.remove_integer(&mut table)?;
    Ok(Arc::new(AmqpConfig(Arc::new(AmqpSettings {
        address,
        ca,
        resolver: guarded_resolver(context.guard.clone()),
        exchange: name("exchange", &exchange)?,
        declare: remove_key(&mut table, "declare")?.unwrap_or(true),
        queues: queues.collect::<Result<_, _>>()?,
        routing_key,
        unroutable: remove_key(&mut table, "unroutable")?.unwrap_or_default(),
        window,
        max_message_bytes,
    }))))
}

/// Returns a resolver that omits addresses which the guard does not allow. The connection uses exactly the
/// checked addresses; the name is not resolved again.
fn guarded_resolver(guard: OutboundPolicy) -> Resolver {
    Arc::new(move |endpoint| {
        let (guard, host) = (guard.clone(), endpoint.host().to_owned());
        let (port, is_encrypted) = (endpoint.port(), endpoint.is_encrypted());
        Box::pin(async move {
            let addresses = guard.resolve(&SystemResolver::default(), &host, is_encrypted).await?;
            Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
        })
    })
}

impl QueueTable {
    fn validate(self, at: &str) -> Result<Queue, InvalidDefinition> {
        let name_of_type = self.kind.as_deref().unwrap_or(QueueType::Quorum.name());
        let kind = QueueType::ALL.into_iter().find(|kind| kind.name() == name_of_type).ok_or_else(|| {
            let types = QueueType::ALL.map(QueueType::name).join(" or ");
            InvalidDefinition::new(format!("{at}.type"), format!("it is {name_of_type:?}; give {types}"))
        })?;
        let bindings = self.bindings.unwrap_or_else(|| vec!["#".to_owned()]);
        let binding = |binding: &String| short_string(&format!("{at}.bindings"), binding);
        Ok(Queue {
            name: name(&format!("{at}.name"), &self.name)?,
            bindings: bindings.iter().map(binding).collect::<Result<_, _>>()?,
            kind,
        })
    }
}

/// Checks the name of an exchange or a queue. The unnamed default exchange is refused, because queues cannot be
/// bound to it.
fn name(key: &str, name: &str) -> Result<ShortString, InvalidDefinition> {
    if name.is_empty() { Err(InvalidDefinition::new(key, "it is empty; give a name")) } else { short_string(key, name) }
}

fn short_string(key: &str, text: &str) -> Result<ShortString, InvalidDefinition> {
    if text.len() > 255 {
        return Err(InvalidDefinition::new(key, format!("it has {} bytes; AMQP allows 255", text.len())));
    }
    Ok(ShortString::from(text))
}

/// Configuration of the AMQP delivery.
struct AmqpConfig(Arc<AmqpSettings>);

impl DeliveryConfig for AmqpConfig {
    fn build(&self, subscription: &SubscriptionName, _: &Arc<AttemptLog>) -> Box<dyn Delivery> {
        Box::new(Amqp::new(Arc::clone(&self.0), subscription))
    }

    fn redacted(&self) -> Map<String, Value> {
        let settings = &*self.0;
        let queue = |queue: &Queue| {
            let bindings: Vec<_> = queue.bindings.iter().map(ShortString::as_str).collect();
            json!({ "name": queue.name.as_str(), "bindings": bindings, "type": queue.kind.name() })
        };
        let settings_json = json!({
            "url": settings.address.to_string(),
            "ca": settings.ca,
            "exchange": settings.exchange.as_str(),
            "declare": settings.declare,
            "queues": settings.queues.iter().map(queue).collect::<Vec<_>>(),
            "routing_key": settings.routing_key.as_str(),
            "unroutable": settings.unroutable.name(),
            "window": settings.window.messages,
            "window_bytes": settings.window.bytes,
            "confirm_seconds": settings.window.outcome_timeout.as_secs(),
            "max_message_bytes": settings.max_message_bytes,
        });
        match settings_json {
            Value::Object(members) => members.into_iter().filter(|(_, value)| !value.is_null()).collect(),
            _ => Map::new(),
        }
    }
}
