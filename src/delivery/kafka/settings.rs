//! Settings of the Kafka delivery.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::Kafka;
use crate::{
    delivery::{
        AttemptLog, ConfigResult, DefinitionContext, Delivery, DeliveryConfig, InvalidDefinition, Window, secret_url,
    },
    journal::subscriptions::MadeBy,
    kafka::{ClusterSettings, ClusterTable, Codec, Sasl, parse_brokers, parse_topic},
    model::SubscriptionName,
    settings::{Choice, Choose, Key, Seconds, Setting, Table, TextType, Whole, joined, settings},
};

settings! {
    /// What is published, and how.
    pub(super) struct KafkaTable {
        /// Topic, which must exist.
        pub(super) topic: Topic,
        // Brokers since version 0.8 and all clients can read Snappy.
        /// "none", "gzip", "snappy", "lz4" or "zstd". Default: "snappy".
        pub(super) compression: Choice<Codec> = Codec::Snappy,
        /// Maximum number of unconfirmed messages, 1 to 65535. Default: 1000.
        pub(super) window: Whole<usize, 1, 65_535> = 1000,
        /// Maximum size of unconfirmed messages, in bytes, 1024 to 1073741824. Default: 8388608.
        pub(super) window_bytes: Whole<usize, 1024, 1_073_741_824> = 8 * 1024 * 1024,
        // The client gives a broker 30 seconds for the replication of a batch.
        /// Maximum time to wait for a confirmation, in seconds, 1 to 3600. Default: 60.
        pub(super) confirm as "confirm_seconds": Seconds<1, 3600> = Duration::from_secs(60),
        // Below the default limit of brokers (`message.max.bytes`, 1 048 588 bytes for a batch).
        /// Size above which a message becomes a dead letter, in bytes, 1024 to 1073741824. Default: 1000000.
        pub(super) max_message_bytes: Whole<usize, 1024, 1_073_741_824> = 1_000_000,
    }
}

/// Specifications of the settings.
pub(super) const KEYS: [Key; 12] = joined(ClusterTable::KEYS, KafkaTable::KEYS);

impl Choose for Codec {
    const WHAT: &'static str = "compression";
}

/// The name of a topic.
pub(super) struct Topic;

impl TextType for Topic {
    type Value = String;

    fn parse(text: &str) -> Result<String, String> {
        parse_topic(text).map_err(|error| error.to_string())
    }
}

/// Validated settings.
pub(super) struct KafkaSettings {
    pub(super) cluster: ClusterSettings,
    pub(super) window: Window,
    pub(super) table: KafkaTable,
}

pub(super) fn parse(table: &Setting, context: &DefinitionContext<'_>) -> ConfigResult {
    // A cluster names the addresses of its brokers, and the client connects to all of them.
    if context.made_by == MadeBy::Api {
        let reason =
            "a cluster could send the gateway to any address; define the subscription in the configuration file";
        return Err(InvalidDefinition::new("delivery", reason));
    }
    let cluster = cluster(table, context)?;
    let table = KafkaTable::read_part(table)?;
    let window =
        Window { messages: table.window, changes: 1, bytes: table.window_bytes, outcome_timeout: table.confirm };
    let settings = KafkaSettings { cluster, window, table };
    Ok(Arc::new(KafkaConfig(Arc::new(settings))))
}

/// Reads the settings of the connection to the cluster.
fn cluster(table: &Setting, context: &DefinitionContext<'_>) -> Result<ClusterSettings, InvalidDefinition> {
    let ClusterTable { brokers, tls, ca, sasl, user, password } = ClusterTable::read_part(table)?;
    let brokers = parse_brokers(&brokers);
    let brokers = brokers.map_err(|error| InvalidDefinition::new("brokers", error.to_string()))?;
    let ca = context.ca_file(ca.map(Into::into))?;
    if ca.is_some() && !tls {
        let reason = "the connection is not encrypted; set tls = true, or leave ca out";
        return Err(InvalidDefinition::new("ca", reason));
    }
    let missing = |key| Err(InvalidDefinition::new(key, "it is missing; add it"));
    let password = password.map(|password| secret_url::read_secret(&password, &password, context)).transpose()?;
    let sasl = match (sasl, user, password) {
        (None, None, None) => None,
        (None, ..) => return Err(InvalidDefinition::new("sasl", "it is missing; user and password need a mechanism")),
        (Some(_), None, _) => return missing("user"),
        (Some(_), _, None) => return missing("password"),
        (Some(mechanism), Some(user), Some(password)) => {
            if user.is_empty() || password.expose().is_empty() || std::str::from_utf8(password.expose()).is_err() {
                return Err(InvalidDefinition::new("user", "user or password is empty or not UTF-8"));
            }
            Some(Sasl { mechanism, user, password })
        }
    };
    Ok(ClusterSettings { brokers, tls, ca, sasl })
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

    fn probe<'s>(&'s self, name: &'s str) -> Option<BoxFuture<'s, Result<(), String>>> {
        let KafkaSettings { cluster, table, .. } = &*self.0;
        Some(Box::pin(async move {
            let checked = async { cluster.connect(name).await?.partitions(std::slice::from_ref(&table.topic)).await };
            checked.await.map(drop).map_err(|error| error.to_string())
        }))
    }

    fn redacted(&self) -> Map<String, Value> {
        let KafkaSettings { cluster, table, .. } = &*self.0;
        let settings_json = json!({
            "brokers": cluster.address(),
            "tls": cluster.tls,
            "ca": cluster.ca,
            "sasl": cluster.sasl.as_ref().map(|sasl| sasl.mechanism.name()),
            "user": cluster.sasl.as_ref().map(|sasl| &sasl.user),
            "topic": table.topic,
            "compression": table.compression.name(),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{DefinitionContext, MadeBy, Setting, parse};
    use crate::{delivery::InvalidDefinition, http_client::OutboundPolicy};

    fn parsed(made_by: MadeBy, settings: serde_json::Value) -> Result<serde_json::Value, InvalidDefinition> {
        let guard = OutboundPolicy::unrestricted();
        let context = DefinitionContext { made_by, variable: &|_| Some("hush-hush".into()), guard: &guard };
        parse(&Setting::definition(settings), &context).map(|config| config.redacted().into())
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
