//! Settings of a source that reads topics of a Kafka cluster.

use std::{collections::BTreeSet, ffi::OsString, sync::Arc};

use chrono::DateTime;
use utoipa::openapi::Schema;

use super::{
    error::ConfigErrors,
    secret,
    transport::{Connection, PREFETCH, Prefetch, TransportKind},
};
use crate::{
    kafka::{ClusterSettings, ClusterTable, Sasl, parse_brokers, parse_topic},
    settings::{List, Setting, SettingErrors, Table, Text, TextType, ValueType, Whole, settings},
    source::kafka::{Start, TopicSettings},
    web::Secret,
};

/// Maximum number of topics of a source.
const MAX_TOPICS: usize = 100;

/// The transport `kafka`: topics of a Kafka cluster.
pub(super) static KAFKA: TransportKind = TransportKind {
    name: "kafka",
    keys: &[ClusterTable::KEYS, KafkaTable::KEYS],
    read: |table, environment| Ok(Connection::Broker(Arc::new(read(table, environment)?))),
};

settings! {
    struct KafkaTable {
        /// 1 to 100 topics, which must exist.
        topics: Topics,
        /// Where the first reading of a topic begins: "earliest", "latest", or a time as in
        /// "2026-01-02T03:04:05Z". Later the offsets in the journal count. Default: "earliest".
        start: StartTime = Start::Earliest,
        /// Maximum number of messages that are being parsed and written, 1 to 65535. Default: 1000.
        prefetch: Prefetch = PREFETCH,
        /// Bytes that all partitions together may have fetched in advance, 65536 to 1073741824. Default:
        /// 16777216.
        fetch_bytes: Whole<usize, 65_536, 1_073_741_824> = 16 * 1024 * 1024,
    }
}

/// Reads the settings from the table of a source.
fn read(table: &Setting, environment: &[(OsString, OsString)]) -> Result<TopicSettings, ConfigErrors> {
    let cluster = cluster(table, environment)?;
    let KafkaTable { topics, start, prefetch, fetch_bytes } = KafkaTable::read_part(table)?;
    Ok(TopicSettings { cluster, topics, start, prefetch, fetch_bytes })
}

/// Reads the settings of the connection to the cluster.
fn cluster(table: &Setting, environment: &[(OsString, OsString)]) -> Result<ClusterSettings, ConfigErrors> {
    let ClusterTable { brokers, tls, ca, sasl, user, password } = ClusterTable::read_part(table)?;
    let brokers = parse_brokers(&brokers).map_err(|error| table.at("brokers").invalid(error.to_string()))?;
    if ca.is_some() && !tls {
        let reason = "the connection is not encrypted; set tls = true, or leave ca out";
        return Err(table.at("ca").invalid(reason).into());
    }
    let sasl = match (sasl, user, password) {
        (None, None, None) => None,
        (None, user, _) => {
            let needless = table.at(if user.is_some() { "user" } else { "password" });
            let reason = "only a mechanism of SASL needs it; give sasl, such as \"scram-sha-512\"";
            return Err(needless.invalid(reason).into());
        }
        (Some(_), None, _) => return Err(table.at("user").missing().into()),
        (Some(_), _, None) => return Err(table.at("password").missing().into()),
        (Some(mechanism), Some(user), Some(password)) => {
            let password = secret::text(&password, environment)?;
            for (key, text) in [("user", &user), ("password", &password)] {
                if text.is_empty() || text.contains(char::is_control) {
                    return Err(table.at(key).invalid("it is empty or contains a control character").into());
                }
            }
            Some(Sasl { mechanism, user, password: Secret::new(password) })
        }
    };
    Ok(ClusterSettings { brokers, tls, ca: ca.map(Into::into), sasl })
}

/// Names of topics, each once.
struct Topics;

impl ValueType for Topics {
    type Value = Vec<String>;

    fn read(setting: &Setting) -> Result<Vec<String>, SettingErrors> {
        let topics = setting.read::<List<Text>>()?;
        if topics.is_empty() || topics.len() > MAX_TOPICS {
            return Err(setting.invalid(format!("it has {} topics; give 1 to {MAX_TOPICS}", topics.len())).into());
        }
        let names = topics.iter().map(|topic| parse_topic(topic).map_err(|error| setting.invalid(error.to_string())));
        let names: BTreeSet<String> = names.collect::<Result<_, _>>()?;
        Ok(names.into_iter().collect())
    }

    fn schema() -> Schema {
        List::<Text>::schema()
    }
}

/// Where the first reading of a topic begins.
struct StartTime;

impl TextType for StartTime {
    type Value = Start;

    fn parse(text: &str) -> Result<Start, String> {
        match text {
            "earliest" => Ok(Start::Earliest),
            "latest" => Ok(Start::Latest),
            time => DateTime::parse_from_rfc3339(time).map(|time| Start::At(time.into())).map_err(|_| {
                format!("it is {time:?}; give \"earliest\", \"latest\" or a time such as 2026-01-02T03:04:05Z")
            }),
        }
    }
}
