//! The examples: what can be connected, with its block of the configuration and its first message.

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::Kind;

/// Example of something that can be connected.
pub(super) struct Example {
    pub(super) kind: Kind,
    /// Name of the program or the protocol that is connected.
    pub(super) title: &'static str,
    /// Page of the documentation.
    pub(super) page: &'static str,
    /// Block of the configuration: one source or subscription, or the hub.
    pub(super) config: &'static str,
    /// Command for a first message, or one that shows the state.
    pub(super) command: Command,
}

/// Command of an example.
#[derive(Clone, Copy)]
pub(super) enum Command {
    /// Sends a message to the hook, with a header that says what it is.
    Send { header: &'static str, message: &'static str },
    /// Makes the harvest or the subscription of the block over HTTP.
    Create,
    /// Subscribes at the WebSub hub, which needs no table of its own.
    Subscribe,
    /// Shows the state.
    Show,
}
use Command::{Create, Send, Show, Subscribe};

impl Example {
    /// Returns the name and the settings of the source, subscription or hub.
    pub(super) fn parsed(&self) -> (String, Value) {
        if matches!(self.command, Subscribe) {
            return ("hub".to_owned(), Value::Null);
        }
        let tables = DeTable::parse(self.config).ok().map(|tables| json(&DeValue::Table(tables.into_inner())));
        let named = tables.as_ref().and_then(|tables| tables.as_object()?.values().next()?.as_object()?.iter().next());
        #[expect(clippy::expect_used, reason = "the block is one of the program, and a test reads each")]
        let (name, settings) = named.expect("a block has one table");
        (name.clone(), settings.clone())
    }
}

/// Converts a value of a block. Blocks have texts, whole numbers, flags, lists and tables.
fn json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Integer(number) => number.as_str().parse::<i64>().ok().into(),
        DeValue::Float(_) | DeValue::Datetime(_) => Value::Null,
        DeValue::Array(values) => values.iter().map(|value| json(value.get_ref())).collect(),
        DeValue::Table(table) => {
            table.iter().map(|(name, value)| (name.get_ref().to_string(), json(value.get_ref()))).collect()
        }
    }
}

/// All examples, in the order of the page.
pub(super) static EXAMPLES: &[Example] = &[
    Example {
        kind: Kind::Source,
        title: "Your own program, with the JSON of Tidings",
        page: "docs/send-changes.md",
        config: r#"[sources.content-change]
transport = "http"
dialect = "content-change"
"#,
        command: Send {
            header: "Content-Type: application/json",
            message: r#"{"sourceEventId": "event-1", "object": "http://repository.example.org/objects/1",
 "items": [{"uri": "http://repository.example.org/objects/1/photo", "change": "ADD"}]}"#,
        },
    },
    Example {
        kind: Kind::Source,
        title: "Fedora 3, by its ActiveMQ",
        page: "docs/fedora.md",
        config: r#"[sources.fedora3]
transport = "stomp"
dialect = "fedora-apim"
url = "stomp://activemq.example.org:61613"
destination = "/queue/tidings.fedora3"
"#,
        command: Show,
    },
    Example {
        kind: Kind::Source,
        title: "Fedora 3, over HTTP",
        page: "docs/fedora.md",
        config: r#"[sources.fedora3]
transport = "http"
dialect = "fedora-apim"
"#,
        command: Send {
            header: "Content-Type: application/atom+xml",
            message: r#"<entry xmlns="http://www.w3.org/2005/Atom">
 <id>urn:uuid:5c1f0c1e-0000-4000-8000-000000000001</id>
 <updated>2026-03-01T10:00:01.125Z</updated>
 <author><name>fedoraAdmin</name><uri>http://localhost:8080/fedora</uri></author>
 <title type="text">ingest</title>
 <summary type="text">demo:1</summary>
 <content type="text">demo:1</content>
 <category term="3.8.1" scheme="info:fedora/fedora-system:def/view#version"/>
 <category term="info:fedora/fedora-system:ATOM-APIM-1.0" scheme="http://www.fedora.info/definitions/1/0/types/formatURI"/>
</entry>"#,
        },
    },
    Example {
        kind: Kind::Source,
        title: "Fedora 4 to 6, by its ActiveMQ",
        page: "docs/fedora.md",
        config: r#"[sources.fedora]
transport = "stomp"
dialect = "fedora-events"
url = "stomp://activemq.example.org:61613"
destination = "/topic/fedora"
durable = "tidings"
"#,
        command: Show,
    },
    Example {
        kind: Kind::Source,
        title: "Fedora 4 to 6 and Trellis, over HTTP",
        page: "docs/fedora.md",
        config: r#"[sources.fedora]
transport = "http"
dialect = "fedora-events"
"#,
        command: Send {
            header: "Content-Type: application/ld+json",
            message: r#"{"@context": "https://www.w3.org/ns/activitystreams", "id": "urn:uuid:3c834a8f-5638-4412-aa4b-35ea80416a18",
 "type": "Create", "published": "2026-03-01T10:00:01.125Z",
 "object": {"id": "http://localhost:8080/rest/book/page", "type": "http://www.w3.org/ns/ldp#NonRDFSource"}}"#,
        },
    },
    Example {
        kind: Kind::Source,
        title: "Islandora 2, by its ActiveMQ",
        page: "docs/stomp.md",
        config: r#"[sources.islandora]
transport = "stomp"
dialect = "islandora"
url = "stomp://activemq.example.org:61613"
destination = "/queue/tidings.islandora"
"#,
        command: Show,
    },
    Example {
        kind: Kind::Source,
        title: "Islandora 2, over HTTP",
        page: "docs/send-changes.md",
        config: r#"[sources.islandora]
transport = "http"
dialect = "islandora"
"#,
        command: Send {
            header: "Content-Type: application/ld+json",
            message: r#"{"@context": "https://www.w3.org/ns/activitystreams", "type": "Update", "summary": "Update a Media",
 "actor": {"type": "Person", "id": "urn:uuid:0b3c5f0e-58f1-4c38-8b5e-6d6f3a1c2d4e", "name": "Ann"},
 "object": {"id": "urn:uuid:1f0c6c5e-3b0a-4f5d-9a55-0c6f8a6b7c03", "isNewVersion": false,
  "url": [{"name": "Describes", "type": "Link", "href": "http://localhost:8000/f.jpg", "mediaType": "image/jpeg", "rel": "describes"}]},
 "target": "http://localhost:8080/fcrepo/rest"}"#,
        },
    },
    Example {
        kind: Kind::Source,
        title: "S3: MinIO, Ceph or AWS",
        page: "docs/connect/s3.md",
        config: r#"[sources.minio]
transport = "http"
dialect = "mapped"
settings = { preset = "s3", base_url = "https://minio.example.org" }
"#,
        command: Send {
            header: "Content-Type: application/json",
            message: r#"{"Records": [{"eventName": "s3:ObjectCreated:Put", "eventTime": "2026-03-04T05:06:07.089Z",
 "s3": {"bucket": {"name": "pictures"}, "object": {"key": "day.jpg", "size": 4711, "contentType": "image/jpeg", "sequencer": "17D2"}}}]}"#,
        },
    },
    Example {
        kind: Kind::Source,
        title: "Alfresco, by its ActiveMQ",
        page: "docs/connect/alfresco.md",
        config: r#"[sources.alfresco]
transport = "stomp"
dialect = "mapped"
url = "stomp://alfresco.example.org:61613"
destination = "/topic/alfresco.repo.event2"
durable = "tidings"
settings = { preset = "alfresco", base_url = "https://alfresco.example.org" }
"#,
        command: Show,
    },
    Example {
        kind: Kind::Source,
        title: "Social Feed Manager, by its RabbitMQ",
        page: "docs/sfm.md",
        config: r##"[sources.sfm]
transport = "amqp"
dialect = "sfm"
url = "amqp://tidings:PASSWORD@rabbitmq.example.org:5672/%2f"
exchange = "sfm_exchange"
queue = "tidings.sfm"
bindings = ["harvest.#", "export.#", "warc_created", "*.warc_created"]
settings = { base_url = "https://sfm.example.org" }
"##,
        command: Show,
    },
    Example {
        kind: Kind::Source,
        title: "librairy Hoarder, by its RabbitMQ",
        page: "docs/harvester-messages.md",
        config: r#"[sources.hoarder]
transport = "amqp"
dialect = "hoarder"
url = "amqp://tidings:PASSWORD@rabbitmq.example.org:5672/%2f"
exchange = "librairy.eventbus"
queue = "tidings.hoarder"
bindings = ["source.*", "document.*", "item.*"]
settings = { base_url = "http://librairy.example.org/api" }
"#,
        command: Show,
    },
    Example {
        kind: Kind::Source,
        title: "librairy Hoarder, over HTTP",
        page: "docs/harvester-messages.md",
        config: r#"[sources.hoarder]
transport = "http"
dialect = "hoarder"
settings = { base_url = "http://librairy.example.org/api" }
"#,
        command: Send { header: "Routing-Key: source.new", message: "sources/oa-upm" },
    },
    Example {
        kind: Kind::Source,
        title: "Requests to archive datasets",
        page: "docs/filesets.md",
        config: r#"[sources.requests]
transport = "http"
dialect = "fileset-request"
"#,
        command: Send {
            header: "Content-Type: application/json",
            message: r#"{"ingest_type": "dataset", "base_url": "10.5072/zenodo.17"}"#,
        },
    },
    Example {
        kind: Kind::Source,
        title: "Archived datasets of another program, by Kafka",
        page: "docs/kafka.md",
        config: r#"[sources.sandcrawler]
transport = "kafka"
dialect = "fileset-result"
brokers = "kafka.example.org:9092"
topics = ["sandcrawler-prod.ingest-fileset-results"]
start = "earliest"
"#,
        command: Show,
    },
    Example {
        kind: Kind::Harvest,
        title: "A repository over OAI-PMH, such as DSpace or EPrints",
        page: "docs/harvesting.md",
        config: r#"[sources.theses]
transport = "oai-pmh"
dialect = "oai-pmh"
url = "https://repository.example.org/oai"
every = "1h"
"#,
        command: Create,
    },
    Example {
        kind: Kind::Harvest,
        title: "A feed: RSS or Atom",
        page: "docs/harvesting.md",
        config: r#"[sources.news]
transport = "feed"
dialect = "feed"
url = "https://repository.example.org/new-items.atom"
every = "1h"
"#,
        command: Create,
    },
    Example {
        kind: Kind::Harvest,
        title: "Another gateway",
        page: "docs/gateways.md",
        config: r#"[sources.edge]
transport = "gateway"
dialect = "gateway"
url = "https://tidings.edge.example.org"
"#,
        command: Show,
    },
    Example {
        kind: Kind::Harvest,
        title: "A folder with files",
        page: "docs/harvesting.md",
        config: r#"[sources.share]
transport = "folder"
dialect = "folder"
path = "/srv"
public_url = "https://files.example.org/share/"
every = "1h"
"#,
        command: Show,
    },
    Example {
        kind: Kind::Harvest,
        title: "Copies of the files that other sources name",
        page: "docs/harvesting.md",
        config: r#"[sources.files]
transport = "download"
dialect = "download"
of = ["content-change"]
urls = 'https://repository[.]example[.]org/.*[.]pdf'
"#,
        command: Show,
    },
    Example {
        kind: Kind::Delivery,
        title: "A webhook",
        page: "docs/webhooks.md",
        config: r#"[subscriptions.index]
delivery = "webhook"
format = "json"
start = "beginning"
url = "https://indexer.example.org/changes"
# Make your own with `tidings token --webhook`.
secrets = ["whsec_ZXhhbXBsZSBleGFtcGxlIGV4YW1wbGUgZXhhbXBsZQ=="]
"#,
        command: Show,
    },
    Example {
        kind: Kind::Delivery,
        title: "Solr",
        page: "docs/connect/solr.md",
        config: r#"[subscriptions.solr]
delivery = "webhook"
format = "json"
start = "beginning"
url = "https://solr.example.org:8984/solr/repository"
max_batch = 100
filter = { visibility = true }
request = { preset = "solr" }
"#,
        command: Create,
    },
    Example {
        kind: Kind::Delivery,
        title: "Elasticsearch or OpenSearch",
        page: "docs/connect/elasticsearch.md",
        config: r#"[subscriptions.search]
delivery = "webhook"
format = "json"
start = "beginning"
url = "https://search.example.org:9200"
max_batch = 100
filter = { visibility = true }
request = { preset = "elasticsearch", values = { index = "repository" } }
"#,
        command: Create,
    },
    Example {
        kind: Kind::Delivery,
        title: "RabbitMQ",
        page: "docs/push.md",
        config: r##"[subscriptions.queue]
delivery = "amqp"
format = "json"
start = "beginning"
url = "amqps://rabbitmq.example.org:5671/%2f"
exchange = "content.changes"
queues = [{ name = "index", bindings = ["content.#"] }]
"##,
        command: Create,
    },
    Example {
        kind: Kind::Delivery,
        title: "ActiveMQ",
        page: "docs/stomp.md",
        config: r#"[subscriptions.toolbox]
delivery = "stomp"
format = "activitystreams"
url = "stomp+ssl://activemq.example.org:61614"
destination = "/queue/content.changes"
"#,
        command: Create,
    },
    Example {
        kind: Kind::Delivery,
        title: "Kafka",
        page: "docs/kafka.md",
        config: r#"[subscriptions.topic]
delivery = "kafka"
format = "json"
brokers = "kafka.example.org:9092"
topic = "content-changes"
"#,
        command: Show,
    },
    Example {
        kind: Kind::Delivery,
        title: "A feed reader, by WebSub",
        page: "docs/websub.md",
        config: "[hub]\nenabled = true\n",
        command: Subscribe,
    },
];
