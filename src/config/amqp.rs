//! Settings of a source that reads a queue over AMQP 0-9-1.

use std::{ffi::OsString, sync::Arc};

use super::{
    certificate::ca_certificate,
    error::ConfigErrors,
    secret,
    transport::{Connection, PREFETCH, Prefetch, TransportKind},
};
use crate::{
    amqp::{BrokerUrl, QueueSettings, QueueType, ShortString},
    settings::{Choice, Choose, Flag, List, SecretText, Setting, Table, Text, TextType, settings},
};

/// The transport `amqp`: a queue of a broker that supports AMQP 0-9-1.
pub(super) static AMQP: TransportKind = TransportKind {
    name: "amqp",
    keys: &[AmqpTable::KEYS],
    read: |table, environment| Ok(Connection::Broker(Arc::new(read(table, environment)?))),
};

settings! {
    struct AmqpTable {
        /// Broker: "amqp://USER:PASSWORD@HOST:PORT/VHOST", or "amqps" for TLS; given by value, as { file =
        /// "PATH" } or as { env = "NAME" }. Percent-encode characters that have a meaning in URLs, as in %40
        /// for @ in a password, and /%2f for the virtual host /. Defaults: port 5672 (TLS: 5671), user guest,
        /// virtual host /.
        url: SecretText,
        /// PEM file with the CA certificate of the broker, for TLS. Default: the CA certificates of the
        /// operating system.
        ca: Option<Text>,
        /// Queue to consume.
        queue: Name,
        /// Exchange that the queue is bound to. Default: none; other means fill the queue.
        exchange: Option<Name>,
        /// Routing keys to bind: * matches one word, # any number of words. Default: all keys, ["#"].
        bindings: Option<List<RoutingKey>>,
        /// "quorum" or "classic". Default: "quorum".
        queue_type: Choice<QueueType> = QueueType::Quorum,
        /// Whether to create the durable topic exchange, the durable queue and the bindings if they are
        /// missing. With false they must exist; the queue may then have either type, but not be a stream.
        /// Default: true.
        declare: Flag = true,
        /// Maximum number of messages that are received before the first is stored, 1 to 65535. All of them
        /// may be in memory, so choose less if messages are large. Default: 1000.
        prefetch: Prefetch = PREFETCH,
    }
}

impl Choose for QueueType {
    const WHAT: &'static str = "type of queue";
}

/// Reads the settings from the table of a source.
fn read(table: &Setting, environment: &[(OsString, OsString)]) -> Result<QueueSettings, ConfigErrors> {
    let AmqpTable { url, ca, queue, exchange, bindings, queue_type, declare, prefetch } = AmqpTable::read_part(table)?;
    let broker_url =
        BrokerUrl::parse(&secret::text(&url, environment)?).map_err(|error| url.invalid(error.to_string()))?;
    let ca = ca_certificate(ca, broker_url.is_encrypted(), "amqps", table)?;
    let bindings = match (&exchange, bindings) {
        (Some(_), None) => vec!["#".into()],
        (None, Some(_)) => return Err(table.at("bindings").invalid("bindings need an exchange; give both").into()),
        (_, bindings) => bindings.unwrap_or_default(),
    };
    Ok(QueueSettings { broker_url, ca, exchange, queue, queue_type, bindings, prefetch, declare })
}

/// The name of an exchange or a queue.
struct Name;

impl TextType for Name {
    type Value = ShortString;

    fn parse(text: &str) -> Result<ShortString, String> {
        if text.is_empty() { Err("it is empty; give a name".to_owned()) } else { RoutingKey::parse(text) }
    }
}

/// A routing key, which may be empty.
struct RoutingKey;

impl TextType for RoutingKey {
    type Value = ShortString;

    fn parse(text: &str) -> Result<ShortString, String> {
        ShortString::try_new(text).map_err(|_| "it has more than 255 bytes, the maximum in AMQP".to_owned())
    }
}
