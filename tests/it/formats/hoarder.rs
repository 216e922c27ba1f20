//! Format `hoarder`: a harvested record and its file become messages of librairy's event bus.

use std::path::Path;

use lapin::message::Delivery;
use serde_json::{Value, json};

use crate::support::{
    gateway::Gateway,
    harvest_fixture::run_to_end,
    journal_fixture::configuration,
    rabbitmq::Broker,
    scripted_files::{FileResponse, FileServer},
    scripted_repository::ScriptedRepository,
    subscription_fixture::{gateway, text},
};

const IDENTIFIER: &str = "oai:oa.upm.es:17";

/// Returns the configuration of a gateway that harvests a repository, downloads its files and publishes to the bus. The
/// queue `seen` is for the test, the queue `relayed` for another gateway.
fn harvester(repository: &ScriptedRepository, broker_url: &str) -> String {
    let url = repository.url();
    format!(
        "[delivery]\nallow = [\"127.0.0.1\"]\n[sources.upm]\ntransport = \"oai-pmh\"\ndialect = \"oai-pmh\"\nurl = \"{url}\"\n\
         settings.files = 'http://.*[.]pdf'\n[sources.upm-files]\ntransport = \"download\"\ndialect = \"download\"\n\
         of = [\"upm\"]\nurls = '.*[.]pdf'\n[subscriptions.bus]\ndelivery = \"amqp\"\nformat = \"hoarder\"\n\
         start = \"beginning\"\nurl = \"{broker_url}\"\nexchange = \"librairy.eventbus\"\n\
         queues = [{{ name = \"seen\", bindings = [\"document.#\", \"item.#\"], type = \"classic\" }},\n\
         {{ name = \"relayed\", bindings = [\"document.*\", \"item.*\"], type = \"classic\" }}]\n"
    )
}

fn relay(folder: &Path, broker_url: &str) -> Gateway {
    let lines = format!(
        "[sources.librairy]\ntransport = \"amqp\"\ndialect = \"hoarder\"\nurl = \"{broker_url}\"\n\
         exchange = \"librairy.eventbus\"\nqueue = \"relayed\"\nbindings = [\"document.*\", \"item.*\"]\nqueue_type = \"classic\"\n\
         settings = {{ base_url = \"http://librairy.example.org\" }}\n"
    );
    Gateway::start_with(folder, &["--config", &configuration(folder, &lines)])
}

fn shape(message: &Delivery) -> (String, String) {
    (message.routing_key.to_string(), String::from_utf8(message.data.clone()).unwrap())
}

fn expected(messages: &[(&str, &str)]) -> Vec<(String, String)> {
    messages.iter().map(|(key, body)| ((*key).to_owned(), (*body).to_owned())).collect()
}

#[tokio::test]
async fn harvested_record_reaches_the_bus_and_another_gateway() {
    let vhost = Broker::shared().vhost();
    let (folders, server) = ([tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()], FileServer::start().await);
    let file = server.put("/17/1/eciencia_upm.pdf", "application/pdf", b"%PDF-1.7 a paper", FileResponse::Good);
    let repository = ScriptedRepository::start(0).await;
    repository.put_now(IDENTIFIER, &file);
    let harvester = gateway(folders[0].path(), &harvester(&repository, &vhost.url()));
    let client = vhost.client().await;
    harvester.until("bus", "the copy is published", |status| status["cursor"] == 2).await;
    let messages = client.read("seen", 4).await;
    let (document, item) = ("documents/oa-upm-17", "items/17-eciencia");
    assert_eq!(
        messages.iter().map(shape).collect::<Vec<_>>(),
        expected(&[
            ("document.new", document),
            ("item.new", item),
            // The copy is in the file store.
            ("document.opened", document),
            ("item.opened", item),
        ])
    );
    let changes = harvester.changes().await;
    let ids: Vec<_> = messages.iter().map(|message| text(message.properties.message_id().as_ref())).collect();
    let id_of = |change: usize, index: usize| format!("{}#{index}", changes[change]["id"].as_str().unwrap());
    assert_eq!(ids, [id_of(0, 0), id_of(0, 1), id_of(1, 0), id_of(1, 1)]);
    let header = |message: &Delivery, name: &str| {
        message.properties.headers().as_ref().unwrap().inner()[name].as_long_string().unwrap().to_string()
    };
    assert_eq!(header(&messages[1], "resource"), file);
    assert_eq!(header(&messages[0], "resource"), header(&messages[0], "object"));
    assert_eq!(text(messages[0].properties.content_type().as_ref()), "text/plain;charset=utf-8");

    repository.delete_now(IDENTIFIER);
    run_to_end(&harvester, "upm").await;
    let messages = client.read("seen", 2).await;
    let deleted = expected(&[("document.deleted", document), ("item.deleted", item)]);
    assert_eq!(messages.iter().map(shape).collect::<Vec<_>>(), deleted);

    // Another gateway reads the same messages: each resource is new, modified and deleted.
    let relay = relay(folders[1].path(), &vhost.url());
    let read = async || relay.head().await == 6;
    crate::support::nodes_fixture::until("the other gateway has read the messages", read).await;
    let changes = relay.changes().await;
    let kinds: Vec<_> = changes.iter().map(|change| (&change["object"], &change["items"][0]["change"])).collect();
    let [document, item] = [document, item].map(|path| json!(format!("http://librairy.example.org/{path}")));
    let [add, update, delete] = ["ADD", "UPDATE", "DELETE"].map(Value::from);
    let expected = [&add, &update, &delete].into_iter().flat_map(|kind| [(&document, kind), (&item, kind)]);
    assert_eq!(kinds, expected.collect::<Vec<_>>());
}

#[tokio::test]
async fn message_without_a_queue_holds_its_change_and_repeats_keep_their_identifiers() {
    let vhost = Broker::shared().vhost();
    let folder = tempfile::tempdir().unwrap();
    let lines = format!(
        "[subscriptions.bus]\ndelivery = \"amqp\"\nformat = \"hoarder\"\nstart = \"beginning\"\nurl = \"{}\"\n\
         exchange = \"librairy.eventbus\"\n\
         queues = [{{ name = \"documents\", bindings = [\"document.*\"], type = \"classic\" }}]\n",
        vhost.url()
    );
    let gateway = gateway(folder.path(), &lines);
    let item = |name: &str| json!({ "uri": format!("urn:item:{name}"), "change": "ADD" });
    let event = json!({ "object": "oai:oa.upm.es:17", "items": [item("a"), item("b")] });
    let (status, answer) = gateway.post("content-change", "application/json", event.to_string()).await;
    assert_eq!(status, 201, "{answer}");
    let status = gateway.until("bus", "it retries", |status| status["state"] == "retrying").await;
    assert_eq!(status["cursor"], 0, "{status}");
    assert!(status["lastError"]["reason"].as_str().unwrap().contains("it reached no queue"), "{status}");
    let client = vhost.client().await;
    client.queue("items", "classic").await;
    client.bind("items", "librairy.eventbus", "item.*").await;
    gateway.until_at("bus", 1).await;
    let id = gateway.changes().await[0]["id"].as_str().unwrap().to_owned();
    let ids = async |queue: &str| {
        let messages = client.read(queue, client.waiting(queue).await as usize).await;
        messages.iter().map(|message| text(message.properties.message_id().as_ref()).to_owned()).collect::<Vec<_>>()
    };
    let documents = ids("documents").await;
    assert!(documents.len() >= 2 && documents.iter().all(|document| *document == format!("{id}#0")), "{documents:?}");
    let items = ids("items").await;
    let last = &items[items.len() - 2..];
    assert_eq!(last, [format!("{id}#1"), format!("{id}#2")]);
}

#[tokio::test]
async fn delivery_without_routing_keys_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[delivery]\nallow = [\"127.0.0.1\"]");
    let definition = json!({ "delivery": "webhook", "format": "hoarder", "url": "http://127.0.0.1:9/" });
    let (status, problem) = gateway.ask("PUT", "/subscriptions/bus", Some(definition)).await;
    assert_eq!(status, 422, "{problem}");
    let reason = "the format hoarder needs routing keys; give the delivery amqp, kafka or stomp";
    assert!(problem.to_string().contains(reason), "{problem}");
}
