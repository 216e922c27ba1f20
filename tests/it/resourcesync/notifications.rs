//! Change notifications over the hub: their intervals meet, also over restarts, and their changes are those of the lists.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};

use crate::support::{
    gateway::Gateway,
    http_receiver::ReceivedRequest,
    journal_fixture::configuration,
    resourcesync_reader::{Destination, Document, Entry, time},
    subscription_fixture::post_event,
    websub_fixture::{
        LOCAL, confirming_subscriber, distributed, is_signed, ok_status, subscribe, until, until_subscribed,
    },
};

const LINES: &str = "[resourcesync]\nnotifications = true\n";

fn event(number: usize, hidden: bool) -> Value {
    let uri = format!("http://h.example/{number}?a&b");
    let state = if hidden { "INACTIVE" } else { "ACTIVE" };
    json!({ "object": uri, "items": [{ "uri": uri, "change": "ADD", "stateAfter": state }] })
}

fn notification(request: &ReceivedRequest) -> Document {
    Document::parse(String::from_utf8(request.body.clone()).unwrap())
}

#[tokio::test]
async fn notifications_meet_and_have_the_changes_of_the_lists() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), &format!("{LINES}{LOCAL}"));
    let data = folder.path().join("data");
    let address = crate::support::gateway::free_address();
    let start = || Gateway::start_elsewhere(&data, &["--listen", &address, "--config", &config], None);
    let mut gateway = start();
    post_event(&gateway, &event(0, false)).await;
    let topic = format!("{}/resourcesync/notifications.xml", gateway.url);
    let hub = format!("{}/hub", gateway.url);

    // The topic, as the capability list announces it.
    let capabilities =
        gateway.http.get(format!("{}/resourcesync/capabilitylist.xml", gateway.url)).send().await.unwrap();
    let capabilities = Document::parse(capabilities.text().await.unwrap()).entries();
    let announced = capabilities.iter().find(|entry| entry.metadata["capability"] == "change-notification").unwrap();
    assert_eq!((&*announced.loc, json!(announced.links)), (&*topic, json!([{ "rel": "hub", "href": hub }])));
    for request in [gateway.http.get(&topic), gateway.http.head(&topic)] {
        let response = request.send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (200, &"application/xml".parse().unwrap())
        );
        assert_eq!(response.headers()["content-length"], "0");
        let link = format!("<{hub}>; rel=\"hub\", <{topic}>; rel=\"self\"");
        assert_eq!(response.headers()["link"].to_str().unwrap(), link);
    }

    let subscriber = confirming_subscriber(&ok_status()).await;
    subscribe(&gateway, &subscriber.url(), &topic, &[("hub.secret", "a secret")]).await;
    until_subscribed(&gateway, 1).await;
    for number in 1..60 {
        // Hidden items are none of the set, and make no gap.
        post_event(&gateway, &event(number, number % 3 == 0)).await;
        if number == 30 {
            assert!(gateway.stop().success());
            gateway = start();
        }
    }
    let expected: BTreeSet<_> =
        (1..60).filter(|number| number % 3 != 0).map(|number| format!("http://h.example/{number}?a&b")).collect();
    let all = || -> Vec<Document> { distributed(&subscriber).iter().map(notification).collect() };
    let locs = || -> BTreeSet<String> { all().iter().flat_map(Document::entries).map(|entry| entry.loc).collect() };
    until("all changes have come", || locs() == expected).await;

    let (_, changes) = Destination::default().changes(&gateway).await;
    let mut begins = Vec::new();
    for (request, document) in distributed(&subscriber).iter().zip(all()) {
        assert!(is_signed(request, "a secret"));
        assert_eq!(request.header("content-type"), "application/xml");
        assert!(request.header("link").contains(&topic) && request.header("link").contains("rel=\"hub\""));
        assert_eq!(document.metadata("capability"), Some("change-notification"));
        assert!(document.link("up").unwrap().ends_with("/resourcesync/capabilitylist.xml"));
        let (from, until) = (document.time("from").unwrap(), document.time("until").unwrap());
        // A message that was on its way when the gateway stopped is repeated.
        assert!(begins.is_empty() || begins.contains(&from), "there is a gap before {from}: {begins:?}");
        begins.push(from);
        begins.push(until);
        let is_within = |entry: &&Entry| {
            let datetime = time(&entry.metadata["datetime"]);
            from < datetime && datetime <= until
        };
        let listed: Vec<_> = changes.iter().filter(is_within).cloned().collect();
        assert_eq!(document.entries(), listed, "all changes of the interval, in the order of the lists");
    }
}

#[tokio::test]
async fn notification_about_a_part_of_the_objects_leads_to_their_capability_list() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), &format!("{LINES}{LOCAL}"));
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    let query = "?object=http%3A%2F%2Fh.example%2F2";
    let list = format!("{}/resourcesync/capabilitylist.xml{query}", gateway.url);
    let capabilities = Destination::default().read(&gateway, &list).await.entries();
    let topic = capabilities.iter().find(|entry| entry.metadata["capability"] == "change-notification").unwrap();
    let subscriber = confirming_subscriber(&ok_status()).await;
    subscribe(&gateway, &subscriber.url(), &topic.loc, &[]).await;
    until_subscribed(&gateway, 1).await;
    for number in 1..4 {
        post_event(&gateway, &event(number, false)).await;
    }
    until("the change has come", || !distributed(&subscriber).is_empty()).await;
    let document = notification(&distributed(&subscriber)[0]);
    assert_eq!(document.link("up"), Some(&*list));
    let locs: Vec<_> = document.entries().into_iter().map(|entry| entry.loc).collect();
    assert_eq!(locs, ["http://h.example/2?a&b"]);
}

#[tokio::test]
async fn readers_who_cannot_subscribe_see_no_notifications() {
    let folder = tempfile::tempdir().unwrap();
    let public = "[access.public]\nsurfaces = [\"resourcesync\"]\n";
    let lines = [&crate::support::views_fixture::token("admin", "admin", ""), LINES, public].concat();
    let gateway = Arc::new(Gateway::start_with(
        &folder.path().join("data"),
        &["--config", &configuration(folder.path(), &lines)],
    ));
    for (token, announced) in [(None, false), (Some("tdg_admin"), true)] {
        let destination = Destination::new(token, "");
        let url = format!("{}/resourcesync/capabilitylist.xml", gateway.url);
        let list = destination.read(&gateway, &url).await;
        assert_eq!(list.bytes.contains("change-notification"), announced);
    }
}
