//! A row that only the database refuses costs its own message, and no other one of its batch.

use std::path::Path;

use futures_util::future::join_all;
use rusqlite::Connection;
use serde_json::json;
use wiremock::{Mock, MockServer, ResponseTemplate, matchers::any};

use crate::support::{
    gateway::{Gateway, command},
    journal_fixture::{configuration, journal_file},
    nodes_fixture::until,
    postgres,
};

/// The object of a change that the database refuses.
const REFUSED: &str = "urn:x:refused";

/// Makes the database refuse changes of the object, by a trigger that the gateway knows nothing about.
fn refuse_in_sqlite(folder: &Path) {
    let trigger = format!(
        "CREATE TRIGGER refuse BEFORE INSERT ON changes WHEN NEW.json LIKE '%{REFUSED}%'
         BEGIN SELECT RAISE(ABORT, 'refused by a test'); END"
    );
    Connection::open(journal_file(folder)).unwrap().execute_batch(&trigger).unwrap();
}

fn refuse_in_postgres(folder: &Path) {
    let function = format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF NEW.json::text LIKE '%{REFUSED}%' THEN RAISE EXCEPTION 'refused by a test'; END IF;
             RETURN NEW;
         END $$"
    );
    postgres::query(folder, &function);
    postgres::query(folder, "CREATE TRIGGER refuse BEFORE INSERT ON changes FOR EACH ROW EXECUTE FUNCTION refuse()");
}

async fn post(gateway: &Gateway, object: &str) -> u16 {
    let event = json!({ "object": object, "items": [{ "uri": object, "change": "ADD" }] });
    gateway.post("content-change", "application/json", event.to_string()).await.0
}

async fn check(gateway: &Gateway) {
    // Messages that wait together share a transaction.
    for round in 0..5 {
        let objects: Vec<_> = (0..30).map(|number| format!("urn:x:{round}-{number}")).collect();
        let posts = objects.iter().map(|object| post(gateway, object));
        let (statuses, refused) = tokio::join!(join_all(posts), post(gateway, REFUSED));
        assert!(statuses.iter().all(|status| *status == 201), "{statuses:?}");
        assert!(refused >= 400, "{refused}");
    }
    // So do the records of a page. The harvest goes on without the refused one, which is in the quarantine.
    let feed = MockServer::start().await;
    let entry = |number: usize| {
        let id = if number == 13 { REFUSED.to_owned() } else { format!("urn:x:entry-{number}") };
        format!("<entry><id>{id}</id></entry>")
    };
    let entries: String = (0..40).map(entry).collect();
    let document = format!("<feed xmlns='http://www.w3.org/2005/Atom'><id>f</id>{entries}</feed>");
    Mock::given(any()).respond_with(ResponseTemplate::new(200).set_body_string(document)).mount(&feed).await;
    let definition =
        json!({ "name": "feed", "transport": "feed", "dialect": "feed", "url": feed.uri(), "every": "1h" });
    assert_eq!(gateway.ask("POST", "/harvests", Some(definition)).await.0, 201);
    until("the run has ended", async || gateway.json("/harvests/feed").await["runs"][0]["state"] == "completed").await;
    let run = gateway.json("/harvests/feed").await["runs"][0].clone();
    assert_eq!((&run["records"], &run["changes"], &run["quarantined"]), (&json!(40), &json!(39), &json!(1)), "{run}");
    let quarantine = gateway.json("/quarantine").await;
    let messages = quarantine["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 1, "{quarantine}");
    assert!(messages[0]["reason"].as_str().unwrap().contains("the storage of the journal refuses the message"));
}

fn config(folder: &Path) -> String {
    configuration(folder, "[delivery]\nallow = [\"127.0.0.1\"]\n")
}

#[tokio::test]
async fn row_that_sqlite_refuses_costs_its_own_message_alone() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    Gateway::start(&data).stop();
    refuse_in_sqlite(&data);
    let config = config(folder.path());
    let gateway = Gateway::start_with(&data, &["--config", &config]);
    check(&gateway).await;
    assert!(gateway.stop().success());
}

#[tokio::test]
async fn row_that_postgresql_refuses_costs_its_own_message_alone() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir_all(&data).unwrap();
    let mut serve = command();
    serve.env("TIDINGS_JOURNAL__STORE", postgres::connection(&data));
    let config = config(folder.path());
    let gateway = Gateway::start_as(serve, &data, &["--listen", "127.0.0.1:0", "--config", &config]);
    refuse_in_postgres(&data);
    check(&gateway).await;
    assert!(gateway.stop().success());
}
