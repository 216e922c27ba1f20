//! What Islandora's Alpaca reads of a message, through a real ActiveMQ and its own Java client. Alpaca needs Maven, so its
//! sources decide: Alpaca ef738a2.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::{Map, Value};

use super::stomp::subscription;
use crate::support::{activemq::Broker, fixtures, gateway::Gateway, journal_fixture::configuration};

const TOKEN: &str = "Bearer hush-hush";

/// A message as Alpaca reads it.
#[derive(Debug, PartialEq, Eq)]
struct AlpacaEvent {
    kind: String,
    uuid: String,
    /// Address of the JSON-LD.
    json_ld: String,
    /// Page about which the triplestore gets statements.
    subject: String,
    /// Fedora in which Milliner saves the node.
    fedora: String,
}

/// Reads an event. Jackson refuses members that a class does not have, and other values than texts (`AS2Event.java` and its
/// neighbours).
fn read(body: &Value) -> AlpacaEvent {
    let members = |value: &Value, known: &[&str]| -> Map<String, Value> {
        let members = value.as_object().unwrap().clone();
        assert!(members.keys().all(|name| known.contains(&name.as_str())), "{members:?}");
        members
    };
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("not a text: {value}")).to_owned();
    let links = |value: &Value| -> Vec<Map<String, Value>> {
        let links = value.as_array().unwrap().iter();
        links.map(|link| members(link, &["name", "type", "href", "mediaType", "rel"])).collect()
    };
    let event = members(body, &["@context", "type", "summary", "target", "object", "actor", "attachment"]);
    let actor = members(&event["actor"], &["type", "id", "url"]);
    links(&actor["url"]);
    text(&event["@context"]);
    let object = members(&event["object"], &["type", "id", "url", "isNewVersion"]);
    let urls = links(&object["url"]);
    // `AS2Object.java`, `getObjectUrl`: the first one that fits.
    let first = |name: &str, value: &str| urls.iter().find(|link| link.get(name).is_some_and(|it| it == value));
    // `TriplestoreIndexer.java` prefers what the object describes to its page.
    let subject = first("rel", "describes").or_else(|| first("rel", "canonical")).unwrap();
    AlpacaEvent {
        kind: text(&event["type"]),
        // `FcrepoIndexer.java` requests node/UUID of Milliner.
        uuid: text(&object["id"]).replace("urn:uuid:", ""),
        json_ld: text(&first("mediaType", "application/ld+json").unwrap()["href"]),
        subject: text(&subject["href"]),
        fedora: text(&event["target"]),
    }
}

/// Starts a gateway with an Islandora whose changes two queues get.
fn gateway(folder: &Path, broker: &Broker, name: &str) -> Gateway {
    let token = folder.join("token");
    fs::write(&token, format!("{TOKEN}\n")).unwrap();
    let queue = |of: &str, changes: &str| {
        let more = format!(
            "format = \"islandora\"\nauthorization = {{ file = {token:?} }}\nfilter = {{ changes = [{changes}] }}"
        );
        subscription(of, &broker.url(), &format!("/queue/{name}.{of}"), &more)
    };
    let source = "[sources.drupal]\ntransport = \"http\"\ndialect = \"islandora\"\n";
    let lines = [source, &queue("index", "\"ADD\", \"UPDATE\""), &queue("delete", "\"DELETE\"")].concat();
    let config = configuration(folder, &lines);
    Gateway::start_logging(&folder.join("data"), &["--config", &config], &folder.join("log"))
}

#[tokio::test]
async fn alpaca_finds_all_that_its_indexers_read() {
    let broker = Broker::shared();
    let (name, folder) = (broker.name(), tempfile::tempdir().unwrap());
    let gateway = gateway(folder.path(), broker, &name);
    for file in ["node-create", "media-update-describes-a-file", "file-create", "node-update", "node-delete"] {
        let body = fs::read_to_string(fixtures::folder("islandora").join(format!("{file}.json"))).unwrap();
        let (status, answer) = gateway.post("drupal", "application/ld+json", body).await;
        assert_eq!(status, 201, "{file}: {answer}");
    }
    gateway.until_at("index", 5).await;
    gateway.until_at("delete", 5).await;

    let event = |kind: &str| AlpacaEvent {
        kind: kind.to_owned(),
        uuid: "1f0c6c5e-3b0a-4f5d-9a55-0c6f8a6b7c01".to_owned(),
        json_ld: "http://localhost:8000/node/7?_format=jsonld".to_owned(),
        subject: "http://localhost:8000/node/7".to_owned(),
        fedora: "http://localhost:8080/fcrepo/rest".to_owned(),
    };
    // Media and files have no message.
    for (queue, kinds) in [("index", &["Create", "Update"][..]), ("delete", &["Delete"])] {
        let messages = broker.consume_with_openwire(&format!("{name}.{queue}"), kinds.len(), "TRUE");
        for (message, kind) in messages.into_iter().zip(kinds) {
            let message: BTreeMap<_, _> = message.into_iter().collect();
            assert_eq!(read(&serde_json::from_str(&message["text"]).unwrap()), event(kind));
            // The only header that both indexers keep.
            assert_eq!(message["Authorization"], TOKEN);
        }
    }
    let (_, shown) = gateway.ask("GET", "/subscriptions/index", None).await;
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(!shown.to_string().contains("hush") && !log.contains("hush"), "{shown}\n{log}");
}
