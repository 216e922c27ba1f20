//! Settings of connections to a Kafka cluster.

use std::{path::PathBuf, sync::Arc, time::Duration};

use rskafka::{
    BackoffConfig,
    client::{ClientBuilder, Credentials, SaslConfig, partition::Compression},
};

use super::{Cluster, KafkaError, TopicReader, error, reading::Access};
use crate::{broker::tls_config, web::Secret};

/// Port of brokers that are given without one.
const DEFAULT_PORT: u16 = 9092;

/// Maximum number of bootstrap brokers.
const MAX_BROKERS: usize = 64;

/// Maximum length of the name of a topic in Kafka.
const MAX_TOPIC_BYTES: usize = 249;

/// Maximum time for a connection to the cluster: to one of its brokers, with TLS, SASL and the list of topics.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Maximum size of a response, in bytes. A broker returns at least one batch, whose default limit is 1 MiB.
const MAX_RESPONSE_BYTES: usize = 128 * 1024 * 1024;

/// Waits of the library between its own attempts. They bridge a change of a partition's leader; afterwards the owner of
/// the connection reports the error and connects again.
const OWN_ATTEMPTS: BackoffConfig = BackoffConfig {
    init_backoff: Duration::from_millis(50),
    max_backoff: Duration::from_millis(500),
    base: 2.0,
    deadline: Some(Duration::from_secs(1)),
};

/// Settings of connections to a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Brokers that the first connection may go to, as `HOST:PORT`. The cluster names all others.
    pub brokers: Vec<String>,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// PEM file of the CA certificates that the brokers' certificates are checked against; `None` for those of the
    /// operating system.
    pub ca: Option<PathBuf>,
    /// Identification of the gateway.
    pub sasl: Option<Sasl>,
}

/// User and password for SASL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sasl {
    /// Mechanism that proves the password.
    pub mechanism: Mechanism,
    /// Name of the user.
    pub user: String,
    /// Password of the user, which is UTF-8.
    pub password: Secret,
}

named_values! {
    /// Mechanism of SASL.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Mechanism {
        /// The password itself.
        Plain = "plain",
        /// Salted challenge and response with SHA-256.
        ScramSha256 = "scram-sha-256",
        /// Salted challenge and response with SHA-512.
        ScramSha512 = "scram-sha-512",
    }
}

named_values! {
    /// Compression of published messages.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Codec {
        /// No compression.
        None = "none",
        /// gzip.
        Gzip = "gzip",
        /// Snappy.
        Snappy = "snappy",
        /// LZ4.
        Lz4 = "lz4",
        /// Zstandard.
        Zstd = "zstd",
    }
}

impl Codec {
    pub(super) fn compression(self) -> Compression {
        match self {
            Self::None => Compression::NoCompression,
            Self::Gzip => Compression::Gzip,
            Self::Snappy => Compression::Snappy,
            Self::Lz4 => Compression::Lz4,
            Self::Zstd => Compression::Zstd,
        }
    }
}

/// Reason why a setting is invalid. The text follows the key in an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSetting(String);

/// Parses a list of brokers: `HOST:PORT`, separated by commas. The default port is 9092.
///
/// # Errors
/// Fails if the list is empty or too long, or an entry is not a host with a port.
pub fn parse_brokers(text: &str) -> Result<Vec<String>, InvalidSetting> {
    let entries: Vec<&str> = text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
    let advice = "give HOST:PORT of some brokers of the cluster, separated by commas";
    if entries.is_empty() || entries.len() > MAX_BROKERS {
        return Err(InvalidSetting(format!("it has {} brokers; {advice}, at most {MAX_BROKERS}", entries.len())));
    }
    let broker = |entry: &str| {
        // An entry with a user is not repeated, because it may contain a password.
        if entry.contains("://") || entry.contains('@') || entry.contains('/') {
            let reason = "it contains a URL; give only HOST:PORT, and set tls, sasl, user and password";
            return Err(InvalidSetting(reason.to_owned()));
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
            _ => (entry, None),
        };
        let port = port.map_or(Ok(DEFAULT_PORT), str::parse).ok().filter(|port| *port > 0);
        match port {
            Some(port) if !host.is_empty() && !host.contains(char::is_whitespace) => Ok(format!("{host}:{port}")),
            _ => Err(InvalidSetting(format!("{entry:?} is not HOST:PORT; {advice}"))),
        }
    };
    entries.into_iter().map(broker).collect()
}

/// Checks the name of a topic.
///
/// # Errors
/// Fails if Kafka allows no topic with this name.
pub fn parse_topic(text: &str) -> Result<String, InvalidSetting> {
    let is_valid = |text: &str| text.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"._-".contains(&octet));
    match text {
        "" | "." | ".." => Err(InvalidSetting("it is empty; give the name of a topic".to_owned())),
        text if text.len() > MAX_TOPIC_BYTES || !is_valid(text) => Err(InvalidSetting(format!(
            "{text:?} is not the name of a topic: Kafka allows up to {MAX_TOPIC_BYTES} letters, digits, '.', '_' and '-'"
        ))),
        text => Ok(text.to_owned()),
    }
}

impl ClusterSettings {
    /// Connects to the cluster for reading, under a name that its log shows. The responses of all partitions together have
    /// at most `max_fetched_bytes` bytes, or are one larger batch. A value of more than `max_value_bytes` bytes can be
    /// unreadable.
    ///
    /// # Errors
    /// Fails if no broker accepts the connection in time.
    pub async fn connect_reader(
        &self,
        name: &str,
        max_fetched_bytes: usize,
        max_value_bytes: usize,
    ) -> Result<Arc<TopicReader>, KafkaError> {
        let tls = match self.tls {
            true => Some(Arc::new(tls_config(self.ca.clone()).await?)),
            false => None,
        };
        let access = Access { client: name.replace(' ', "-"), tls, sasl: self.sasl.clone() };
        TopicReader::connect(&self.brokers, access, max_fetched_bytes, max_value_bytes).await
    }

    /// Connects to the cluster for publishing, under a name that its log shows.
    ///
    /// # Errors
    /// Fails if no broker accepts the connection in time.
    pub async fn connect(&self, name: &str) -> Result<Cluster, KafkaError> {
        let mut client = ClientBuilder::new(self.brokers.clone())
            .client_id(name.replace(' ', "-"))
            .max_message_size(MAX_RESPONSE_BYTES)
            .backoff_config(OWN_ATTEMPTS);
        if self.tls {
            client = client.tls_config(Arc::new(tls_config(self.ca.clone()).await?));
        }
        if let Some(sasl) = &self.sasl {
            client = client.sasl_config(sasl.config());
        }
        let client = error::within("accept a connection", CONNECT_TIMEOUT, client.build()).await?;
        Ok(Cluster::new(client))
    }

    /// Returns a warning for the administrator if the password can be read on the way.
    #[must_use]
    pub fn warning(&self) -> Option<&'static str> {
        let is_open = !self.tls && self.sasl.as_ref().is_some_and(|sasl| sasl.mechanism == Mechanism::Plain);
        is_open.then_some("the password is sent to Kafka without encryption; set tls = true, or use a SCRAM mechanism")
    }

    /// Returns the brokers as a text.
    #[must_use]
    pub fn address(&self) -> String {
        self.brokers.join(",")
    }
}

impl Sasl {
    fn config(&self) -> SaslConfig {
        let password = String::from_utf8_lossy(self.password.expose()).into_owned();
        let credentials = Credentials::new(self.user.clone(), password);
        match self.mechanism {
            Mechanism::Plain => SaslConfig::Plain(credentials),
            Mechanism::ScramSha256 => SaslConfig::ScramSha256(credentials),
            Mechanism::ScramSha512 => SaslConfig::ScramSha512(credentials),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{parse_brokers, parse_topic};

    #[test]
    fn brokers_have_a_default_port() {
        let brokers = parse_brokers("kafka-1:9093, kafka-2,[::1]:7").unwrap();
        assert_eq!(brokers, ["kafka-1:9093", "kafka-2:9092", "[::1]:7"]);
        for (text, reason) in [
            ("", "it has 0 brokers; give HOST:PORT"),
            ("h:x", "\"h:x\" is not HOST:PORT"),
            ("h:0", "\"h:0\" is not HOST:PORT"),
            (":9092", "\":9092\" is not HOST:PORT"),
            ("SASL_SSL://me:hush@h:9092", "it contains a URL; give only HOST:PORT"),
        ] {
            let error = parse_brokers(text).unwrap_err().to_string();
            assert!(error.starts_with(reason) && !error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn topic_has_the_characters_that_kafka_allows() {
        assert_eq!(parse_topic("sandcrawler-qa.ingest_1").unwrap(), "sandcrawler-qa.ingest_1");
        for bad in ["", ".", "a b", "a/b", "ä", &"x".repeat(250)] {
            assert!(parse_topic(bad).is_err(), "{bad}");
        }
    }
}
