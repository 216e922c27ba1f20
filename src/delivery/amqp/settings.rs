//! Settings of the AMQP delivery.

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use lapin::types::ShortString;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::openapi::{ArrayBuilder, ObjectBuilder, Schema, schema::AdditionalProperties};

use super::{Amqp, routing::RoutingKey};
use crate::{
    amqp::{AmqpError, BrokerUrl, Connector, QueueType, Resolver, probed},
    delivery::{
        AttemptLog, ConfigResult, DefinitionContext, Delivery, DeliveryConfig, InvalidDefinition, Window,
        guarded_resolver::guarded_resolver, secret_url,
    },
    model::SubscriptionName,
    settings::{
        Choice, Choose, Flag, Key, Seconds, SecretText, Setting, SettingError, SettingErrors, Table, Text, TextType,
        ValueType, Whole, joined, settings,
    },
};

settings! {
    /// Where the broker is.
    struct BrokerTable {
        /// Broker: amqp://USER:PASSWORD@HOST:PORT/VHOST, or amqps; or { file = "PATH" }, or { env = "NAME" }
        /// (an environment variable).
        url: SecretText,
        /// PEM file with the CA certificate of the broker. Default: the CA certificates of the operating
        /// system.
        ca: Option<Text<PathBuf>>,
    }
}

settings! {
    /// What is published, and how.
    pub(super) struct AmqpTable {
        /// Durable topic exchange to publish to.
        pub(super) exchange: Name,
        /// Whether to create the exchange and the queues. With false they must exist. Default: true.
        pub(super) declare: Flag = true,
        /// Durable queues for consumers: `name`, `bindings` (default ["#"]), `type` ("quorum" or "classic";
        /// default quorum). Default: none.
        pub(super) queues: Queues = Vec::new(),
        /// Template of the routing key, with {kind} (add, update, delete, state, mixed) and {source}.
        /// Default: "content.{kind}.{source}".
        pub(super) routing_key: Option<Text>,
        /// What to do with a message that no queue receives. "hold": wait until a queue exists. "count":
        /// count it and send the next one. Default: hold.
        pub(super) unroutable: Choice<Unroutable> = Unroutable::Hold,
        // A larger window does not increase throughput, and a smaller one reduces it.
        /// Maximum number of unconfirmed messages, 1 to 65535. Default: 1000.
        pub(super) window: Whole<usize, 1, 65_535> = 1000,
        /// Maximum size of unconfirmed messages, in bytes, 1024 to 1073741824. Default: 8388608.
        pub(super) window_bytes: Whole<usize, 1024, 1_073_741_824> = 8 * 1024 * 1024,
        // Electing a leader of a quorum queue takes a few seconds.
        /// Maximum time to send a message and receive its confirmation, in seconds, 1 to 3600. Increase it
        /// for large messages over a slow network. Default: 30.
        pub(super) confirm as "confirm_seconds": Seconds<1, 3600> = Duration::from_secs(30),
        // The default is the limit of RabbitMQ before version 4 (`max_message_size`).
        /// Size above which a message becomes a dead letter, in bytes, 1024 to 1073741824. Default:
        /// 134217728.
        pub(super) max_message_bytes: Whole<usize, 1024, 1_073_741_824> = 128 * 1024 * 1024,
    }
}

/// Specifications of the settings.
pub(super) const KEYS: [Key; 11] = joined(BrokerTable::KEYS, AmqpTable::KEYS);

const DEFAULT_ROUTING_KEY: &str = "content.{kind}.{source}";

/// Validated settings.
pub(super) struct AmqpSettings {
    pub(super) address: BrokerUrl,
    pub(super) ca: Option<PathBuf>,
    /// Resolves the broker's host to allowed socket addresses.
    pub(super) resolver: Resolver,
    pub(super) routing_key: RoutingKey,
    pub(super) window: Window,
    pub(super) table: AmqpTable,
}

named_values! {
    /// Treatment of messages that reach no queue.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Unroutable {
        /// The message and all later ones wait until a queue is bound.
        Hold = "hold",
        /// The message is counted and skipped.
        Count = "count",
    }
}

impl Choose for Unroutable {
    const WHAT: &'static str = "";
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

/// Queues of consumers.
pub(super) struct Queues;

impl ValueType for Queues {
    type Value = Vec<Queue>;

    fn read(setting: &Setting) -> Result<Vec<Queue>, SettingErrors> {
        let queues: Vec<QueueTable> = setting.structure()?;
        let queues = queues.into_iter().enumerate().map(|(at, queue)| queue.validate(&setting.at(&at.to_string())));
        Ok(queues.collect::<Result<_, _>>()?)
    }

    fn schema() -> Schema {
        let table = ObjectBuilder::new().additional_properties(Some(AdditionalProperties::FreeForm(true)));
        ArrayBuilder::new().items(table.build()).into()
    }
}

pub(super) fn parse(table: &Setting, context: &DefinitionContext<'_>) -> ConfigResult {
    let BrokerTable { url, ca } = BrokerTable::read_part(table)?;
    let url = secret_url::read_url(&url, context)?;
    let address = BrokerUrl::parse(&String::from_utf8_lossy(url.expose()));
    let address = address.map_err(|error| InvalidDefinition::new("url", error.to_string()))?;
    let allowed = context.guard.check_named(address.host(), address.is_encrypted());
    allowed.map_err(|error| InvalidDefinition::new("url", error.to_string()))?;
    let ca = context.ca_file(ca)?;
    let table = AmqpTable::read_part(table)?;
    let routing_key = RoutingKey::parse(table.routing_key.as_deref().unwrap_or(DEFAULT_ROUTING_KEY))
        .map_err(|reason| InvalidDefinition::new("routing_key", reason))?;
    let window =
        Window { messages: table.window, changes: 1, bytes: table.window_bytes, outcome_timeout: table.confirm };
    let resolver = guarded_resolver(context.guard.clone());
    let settings = AmqpSettings { address, ca, resolver, routing_key, window, table };
    Ok(Arc::new(AmqpConfig(Arc::new(settings))))
}

impl QueueTable {
    fn validate(self, place: &Setting) -> Result<Queue, SettingError> {
        let wrong = |key: &str| {
            let place = place.at(key);
            move |reason: String| place.invalid(reason)
        };
        let name_of_type = self.kind.as_deref().unwrap_or(QueueType::Quorum.name());
        let kind = QueueType::ALL.into_iter().find(|kind| kind.name() == name_of_type).ok_or_else(|| {
            let types = QueueType::ALL.map(QueueType::name).join(" or ");
            wrong("type")(format!("it is {name_of_type:?}; give {types}"))
        })?;
        let bindings = self.bindings.unwrap_or_else(|| vec!["#".to_owned()]);
        let binding = |binding: &String| short_string(binding).map_err(wrong("bindings"));
        Ok(Queue {
            name: Name::parse(&self.name).map_err(wrong("name"))?,
            bindings: bindings.iter().map(binding).collect::<Result<_, _>>()?,
            kind,
        })
    }
}

/// The name of an exchange or a queue. The unnamed default exchange is refused, because queues cannot be bound to it.
pub(super) struct Name;

impl TextType for Name {
    type Value = ShortString;

    fn parse(name: &str) -> Result<ShortString, String> {
        if name.is_empty() { Err("it is empty; give a name".to_owned()) } else { short_string(name) }
    }
}

fn short_string(text: &str) -> Result<ShortString, String> {
    if text.len() > 255 {
        return Err(format!("it has {} bytes; AMQP allows 255", text.len()));
    }
    Ok(ShortString::from(text))
}

/// Configuration of the AMQP delivery.
struct AmqpConfig(Arc<AmqpSettings>);

impl DeliveryConfig for AmqpConfig {
    fn build(&self, subscription: &SubscriptionName, _: &Arc<AttemptLog>) -> Box<dyn Delivery> {
        Box::new(Amqp::new(Arc::clone(&self.0), subscription))
    }

    fn probe<'s>(&'s self, name: &'s str) -> Option<BoxFuture<'s, Result<(), String>>> {
        let settings = &*self.0;
        Some(Box::pin(async move {
            let connector = Connector::new(settings.address.clone(), name, settings.ca.clone())
                .with_resolver(Arc::clone(&settings.resolver));
            let connection = connector.connect().await.map_err(|error| error.to_string())?;
            let checked = async {
                let AmqpTable { exchange, queues, declare, .. } = &settings.table;
                probed(connection.channel().await?.exchange(exchange, true).await, *declare)?;
                for queue in queues {
                    // The broker closes a channel after an error.
                    let found = connection.channel().await?.queue(&queue.name, queue.kind, true).await;
                    probed(found.map(drop), *declare)?;
                }
                Ok(())
            };
            let checked: Result<(), AmqpError> = checked.await;
            connection.close().await;
            checked.map_err(|error| error.to_string())
        }))
    }

    fn redacted(&self) -> Map<String, Value> {
        let settings = &*self.0;
        let table = &settings.table;
        let queue = |queue: &Queue| {
            let bindings: Vec<_> = queue.bindings.iter().map(ShortString::as_str).collect();
            json!({ "name": queue.name.as_str(), "bindings": bindings, "type": queue.kind.name() })
        };
        let settings_json = json!({
            "url": settings.address.to_string(),
            "ca": settings.ca,
            "exchange": table.exchange.as_str(),
            "declare": table.declare,
            "queues": table.queues.iter().map(queue).collect::<Vec<_>>(),
            "routing_key": settings.routing_key.as_str(),
            "unroutable": table.unroutable.name(),
            "window": table.window,
            "window_bytes": table.window_bytes,
            "confirm_seconds": table.confirm.as_secs(),
            "max_message_bytes": table.max_message_bytes,
        });
        match settings_json {
            Value::Object(members) => members.into_iter().filter(|(_, value)| !value.is_null()).collect(),
            _ => Map::new(),
        }
    }
}
