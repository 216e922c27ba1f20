//! Settings of a source that reads topics of a Kafka cluster.

use std::{collections::BTreeSet, ffi::OsString, sync::Arc};

use chrono::DateTime;
use serde::{Deserialize, de::IgnoredAny};

use super::{
    amqp::{PREFETCH, Prefetch, required},
    error::ConfigError,
    secret,
    setting::{Setting, bounded},
    source::named,
    transport::{Connection, TransportKey, TransportKind},
};
use crate::{
    kafka::{ClusterSettings, Mechanism, Sasl, parse_brokers, parse_topic},
    source::kafka::{Start, TopicSettings},
    web::Secret,
};

/// Default number of bytes that all partitions together may have fetched.
const FETCH_BYTES: FetchBytes = FetchBytes(16 * 1024 * 1024);

/// Maximum number of topics of a source.
const MAX_TOPICS: usize = 100;

/// The transport `kafka`: topics of a Kafka cluster.
pub(super) static KAFKA: TransportKind = TransportKind {
    name: "kafka",
    keys: &[
        TransportKey::of::<String>("brokers"),
        TransportKey::of::<bool>("tls"),
        TransportKey::of::<String>("ca"),
        TransportKey::of::<String>("sasl"),
        TransportKey::of::<String>("user"),
        TransportKey::of::<IgnoredAny>("password"),
        TransportKey::of::<Vec<String>>("topics"),
        TransportKey::of::<String>("start"),
        TransportKey::of::<Prefetch>("prefetch"),
        TransportKey::of::<FetchBytes>("fetch_bytes"),
    ],
    read: |table, environment| Ok(Connection::Broker(Arc::new(read(table, environment)?))),
};

/// A number of bytes from 64 KiB to 1 GiB.
#[derive(Deserialize)]
struct FetchBytes(#[serde(deserialize_with = "bounded::<65_536, 1_073_741_824, _, _>")] usize);

/// Reads the settings from the table of a source.
fn read(table: &Setting, environment: &[(OsString, OsString)]) -> Result<TopicSettings, ConfigError> {
    let cluster = cluster(table, environment)?;
    let topics: Vec<String> = required(table, "topics")?.read()?;
    let invalid = |reason: String| table.entry("topics").map_or_else(|error| error, |topics| topics.invalid(reason));
    if topics.is_empty() || topics.len() > MAX_TOPICS {
        return Err(invalid(format!("it has {} topics; give 1 to {MAX_TOPICS}", topics.len())));
    }
    let names = topics.iter().map(|topic| parse_topic(topic).map_err(|error| invalid(error.to_string())));
    let names: BTreeSet<String> = names.collect::<Result<_, _>>()?;
    let start = match table.get::<String>("start")?.as_deref() {
        None | Some("earliest") => Start::Earliest,
        Some("latest") => Start::Latest,
        Some(time) => Start::At(DateTime::parse_from_rfc3339(time).map(Into::into).or_else(|_| {
            let reason =
                format!("it is {time:?}; give \"earliest\", \"latest\" or a time such as 2026-01-02T03:04:05Z");
            Err(table.entry("start")?.invalid(reason))
        })?),
    };
    let Prefetch(prefetch) = table.get("prefetch")?.unwrap_or(PREFETCH);
    let FetchBytes(fetch_bytes) = table.get("fetch_bytes")?.unwrap_or(FETCH_BYTES);
    Ok(TopicSettings { cluster, topics: names.into_iter().collect(), start, prefetch, fetch_bytes })
}

/// Reads the settings of the connection to the cluster.
fn cluster(table: &Setting, environment: &[(OsString, OsString)]) -> Result<ClusterSettings, ConfigError> {
    let brokers = required(table, "brokers")?;
    let brokers =
        parse_brokers(&brokers.clone().read::<String>()?).map_err(|error| brokers.invalid(error.to_string()))?;
    let tls = table.get("tls")?.unwrap_or(false);
    let ca = table.get::<String>("ca")?;
    if ca.is_some() && !tls {
        return Err(table.entry("ca")?.invalid("the connection is not encrypted; set tls = true, or leave ca out"));
    }
    let (user, password) = (table.entry("user")?, table.entry("password")?);
    let sasl = match named(table, "sasl", "mechanism of SASL", &Mechanism::ALL, Mechanism::name)? {
        None => match [user, password].into_iter().find(Setting::is_given) {
            Some(needless) => {
                return Err(needless.invalid("only a mechanism of SASL needs it; give sasl, such as \"scram-sha-512\""));
            }
            None => None,
        },
        Some(mechanism) => {
            let (user, password) = (required(table, "user")?, required(table, "password")?);
            let (user_name, text) = (user.clone().read::<String>()?, secret::text(&password, environment)?);
            for (setting, text) in [(user, &user_name), (password, &text)] {
                if text.is_empty() || text.contains(char::is_control) {
                    return Err(setting.invalid("it is empty or contains a control character"));
                }
            }
            Some(Sasl { mechanism, user: user_name, password: Secret::new(text) })
        }
    };
    Ok(ClusterSettings { brokers, tls, ca: ca.map(Into::into), sasl })
}
