//! Settings of the Kafka delivery.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value, json};

use super::{super::definition::remove_key, Kafka};
use crate::{
    delivery::{
        AttemptLog, ConfigResult, DefinitionContext, Delivery, DeliveryConfig, InvalidDefinition, SettingSpec,
        ValueType, Window, secret_url,
    },
    journal::subscriptions::MadeBy,
    kafka::{ClusterSettings, Codec, Mechanism, Sasl, parse_brokers, parse_topic},
    model::SubscriptionName,
    suggestion::advice,
};

/// Specifications of the settings.
pub(super) const KEYS: [SettingSpec; 12] = [
    SettingSpec::required("brokers", ValueType::String, "Some brokers of the cluster: HOST:PORT, separated by commas."),
    SettingSpec::new("tls", ValueType::Bool, "Encrypt the connections."),
    SettingSpec::new("ca", ValueType::String, "PEM file with the CA certificate of the brokers."),
    SettingSpec::new("sasl", ValueType::Enum(&MECHANISMS), "Mechanism with which the gateway identifies itself."),
    SettingSpec::new("user", ValueType::String, "User for SASL."),
    SettingSpec::new("password", ValueType::Secret, "Password for SASL."),
    SettingSpec::required("topic", ValueType::String, "Topic, which must exist."),
    SettingSpec::new("compression", ValueType::Enum(&CODECS), "Compression of the batches."),
    WINDOW,
    WINDOW_BYTES,
    CONFIRM_SECONDS,
    MAX_MESSAGE_BYTES,
];

const MECHANISMS: [&str; 3] = [Mechanism::ALL[0].name(), Mechanism::ALL[1].name(), Mechanism::ALL[2].name()];

const CODECS: [&str; 5] =
    [Codec::ALL[0].name(), Codec::ALL[1].name(), Codec::ALL[2].name(), Codec::ALL[3].name(), Codec::ALL[4].name()];

const WINDOW: SettingSpec = SettingSpec::number("window", 1..=65_535, 1000, "Maximum number of unconfirmed messages.");

const WINDOW_BYTES: SettingSpec = SettingSpec::number(
    "window_bytes",
    1024..=1 << 30,
    8 * 1024 * 1024,
    "Maximum number of bytes in unconfirmed messages.",
);

/// The client gives a broker 30 seconds for the replication of a batch.
const CONFIRM_SECONDS: SettingSpec =
    SettingSpec::number("confirm_seconds", 1..=3600, 60, "Maximum time to wait for a confirmation.");

/// The default is below the default limit of brokers (`message.max.bytes`, 1 048 588 bytes for a batch).
const MAX_MESSAGE_BYTES: SettingSpec = SettingSpec::number(
    "max_message_bytes",
    1024..=1 << 30,
    1_000_000,
    "Maximum size, before compression; a larger message becomes a dead letter.",
);

/// Brokers since version 0.8 and all clients can read it.
const DEFAULT_CODEC: Codec = Codec::Snappy;

/// Validated settings.
pub(super) struct KafkaSettings {
    pub(super) cluster: ClusterSettings,
    pub(super) topic: String,
    pub(super) codec: Codec,
    pub(super) window: Window,
    pub(super) max_message_bytes: usize,
}

pub(super) fn parse(mut table: Map<String, Value>, context: &DefinitionContext<'_>) -> ConfigResult {
    // A cluster names the addresses of its brokers, and the client connects to all of them.
    if context.made_by == MadeBy::Api {
        let reason =
            "a cluster could send the gateway to any address; define the subscription in the configuration file";
        return Err(InvalidDefinition::new("delivery", reason));
    }
    let cluster = cluster(&mut table, context)?;
    let topic: Option<String> = remove_key(&mut table, "topic")?;
    let topic = topic.ok_or_else(|| InvalidDefinition::new("topic", "it is missing; add it"))?;
    let topic = parse_topic(&topic).map_err(|error| InvalidDefinition::new("topic", error.to_string()))?;
    let codec = remove_named(&mut table, "compression", &Codec::ALL, Codec::name)?.unwrap_or(DEFAULT_CODEC);
    let window = Window {
        messages: WINDOW.remove_integer(&mut table)?,
        changes: 1,
        bytes: WINDOW_BYTES.remove_integer(&mut table)?,
        outcome_timeout: Duration::from_secs(CONFIRM_SECONDS.remove_integer(&mut table)? as u64),
    };
    let max_message_bytes = MAX_MESSAGE_BYTES.remove_integer(&mut table)?;
    let settings = KafkaSettings { cluster, topic, codec, window, max_message_bytes };
    Ok(Arc::new(KafkaConfig(Arc::new(settings))))
}

/// Reads the settings of the connection to the cluster.
fn cluster(
    table: &mut Map<String, Value>,
    context: &DefinitionContext<'_>,
) -> Result<ClusterSettings, InvalidDefinition> {
    let missing = |key| InvalidDefinition::new(key, "it is missing; add it");
    let brokers: Option<String> = remove_key(table, "brokers")?;
    let brokers = parse_brokers(&brokers.ok_or_else(|| missing("brokers"))?);
    let brokers = brokers.map_err(|error| InvalidDefinition::new("brokers", error.to_string()))?;
    let tls = remove_key(table, "tls")?.unwrap_or(false);
    let ca = context.remove_ca_file(table)?;
    if ca.is_some() && !tls {
        let reason = "the connection is not encrypted; set tls = true, or leave ca out";
        return Err(InvalidDefinition::new("ca", reason));
    }
    let mechanism = remove_named(table, "sasl", &Mechanism::ALL, Mechanism::name)?;
    let user: Option<String> = remove_key(table, "user")?;
    let password = table.remove("password").filter(|password| !password.is_null());
    let password = password.map(|password| secret_url::read_secret("password", password, context)).transpose()?;
    let sasl = match (mechanism, user, password) {
        (None, None, None) => None,
        (None, ..) => return Err(InvalidDefinition::new("sasl", "it is missing; user and password need a mechanism")),
        (Some(_), None, _) => return Err(missing("user")),
        (Some(_), _, None) => return Err(missing("password")),
        (Some(mechanism), Some(user), Some(password)) => {
            if user.is_empty() || password.expose().is_empty() || std::str::from_utf8(password.expose()).is_err() {
                return Err(InvalidDefinition::new("user", "user or password is empty or not UTF-8"));
            }
            Some(Sasl { mechanism, user, password })
        }
    };
    Ok(ClusterSettings { brokers, tls, ca, sasl })
}

/// Removes a key whose value is the name of one of `all`.
fn remove_named<T: Copy>(
    table: &mut Map<String, Value>,
    key: &str,
    all: &[T],
    name_of: fn(T) -> &'static str,
) -> Result<Option<T>, InvalidDefinition> {
    let Some(name) = remove_key::<String>(table, key)? else { return Ok(None) };
    let names: Vec<_> = all.iter().copied().map(name_of).collect();
    let found = all.iter().copied().find(|known| name_of(*known) == name).map(Some);
    found.ok_or_else(|| InvalidDefinition::new(key, format!("there is no {key} {name:?}; {}", advice(&name, &names))))
}

/// Configuration of the Kafka delivery.
struct KafkaConfig(Arc<KafkaSettings>);

impl DeliveryConfig for KafkaConfig {
    fn build(&self, subscription: &SubscriptionName, _: &Arc<AttemptLog>) -> Box<dyn Delivery> {
        if let Some(warning) = self.0.cluster.warning() {
            tracing::warn!(%subscription, "{warning}");
        }
        Box::new(Kafka::new(Arc::clone(&self.0), subscription))
    }

    fn redacted(&self) -> Map<String, Value> {
        let KafkaSettings { cluster, topic, codec, window, max_message_bytes } = &*self.0;
        let settings_json = json!({
            "brokers": cluster.address(),
            "tls": cluster.tls,
            "ca": cluster.ca,
            "sasl": cluster.sasl.as_ref().map(|sasl| sasl.mechanism.name()),
            "user": cluster.sasl.as_ref().map(|sasl| &sasl.user),
            "topic": topic,
            "compression": codec.name(),
            "window": window.messages,
            "window_bytes": window.bytes,
            "confirm_seconds": window.outcome_timeout.as_secs(),
            "max_message_bytes": max_message_bytes,
        });
        match settings_json {
            Value::Object(members) => members.into_iter().filter(|(_, value)| !value.is_null()).collect(),
            _ => Map::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{DefinitionContext, MadeBy, parse};
    use crate::{delivery::InvalidDefinition, http_client::OutboundPolicy};

    fn parsed(made_by: MadeBy, settings: serde_json::Value) -> Result<serde_json::Value, InvalidDefinition> {
        let guard = OutboundPolicy::unrestricted();
        let context = DefinitionContext { made_by, variable: &|_| Some("hush-hush".into()), guard: &guard };
        let serde_json::Value::Object(table) = settings else { panic!() };
        parse(table, &context).map(|config| config.redacted().into())
    }

    #[test]
    fn password_is_not_shown() {
        let settings = json!({ "brokers": "a,b:1", "topic": "t", "sasl": "scram-sha-512", "user": "me", "tls": true,
            "password": { "env": "X" }, "compression": "zstd" });
        let shown = parsed(MadeBy::Config, settings.clone()).unwrap();
        assert_eq!((&shown["brokers"], &shown["compression"]), (&json!("a:9092,b:1"), &json!("zstd")));
        assert!(!shown.to_string().contains("hush"));
        assert_eq!(parsed(MadeBy::Api, settings).unwrap_err().key, "delivery");
    }

    #[test]
    fn invalid_settings_are_refused() {
        for (more, key) in [
            (json!({ "ca": "x.pem" }), "ca"),
            (json!({ "user": "me" }), "sasl"),
            (json!({ "sasl": "plain", "user": "me" }), "password"),
            (json!({ "sasl": "digest", "user": "me" }), "sasl"),
            (json!({ "topic": "a b" }), "topic"),
            (json!({ "compression": "brotli" }), "compression"),
            (json!({ "brokers": "" }), "brokers"),
        ] {
            let mut settings = json!({ "brokers": "a", "topic": "t" });
            settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_eq!(parsed(MadeBy::Config, settings).unwrap_err().key, key);
        }
    }
}
