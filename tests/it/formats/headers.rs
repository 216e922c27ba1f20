//! Message headers of each format through a real broker. A format that needs headers is not offered where there
//! are none.

use lapin::types::FieldTable;
use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, command},
    rabbitmq::Broker,
    subscription_fixture::{event, gateway, post_event, text},
};

fn subscription(name: &str, format: &str, url: &str) -> String {
    format!(
        "[subscriptions.{name}]\ndelivery = \"amqp\"\nformat = \"{format}\"\nstart = \"beginning\"\nurl = \"{url}\"\n\
         exchange = \"{name}\"\nqueues = [{{ name = \"{name}\", bindings = [\"#\"], type = \"classic\" }}]\n\
         [subscriptions.{name}.filter]\nobjects = [\"http://h.example/{name}/\"]\n"
    )
}

fn header(headers: &FieldTable, name: &str) -> String {
    let value = headers.inner().get(name).unwrap_or_else(|| panic!("{name} is there: {headers:?}"));
    value.as_long_string().unwrap().to_string()
}

#[tokio::test]
async fn amqp_message_has_the_headers_of_its_format() {
    let vhost = Broker::shared().vhost();
    let folder = tempfile::tempdir().unwrap();
    let formats = ["cloudevents", "cloudevents-binary", "activitystreams"];
    let names = ["whole", "binary", "fedora"];
    let lines: String =
        names.iter().zip(formats).map(|(name, format)| subscription(name, format, &vhost.url())).collect();
    let gateway = gateway(folder.path(), &lines);
    for name in names {
        let mut text = event(1);
        text["object"] = json!(format!("http://h.example/{name}/é%201"));
        text["sourceEventId"] = json!(name);
        post_event(&gateway, &text).await;
    }
    let changes = gateway.changes().await;
    let client = vhost.client().await;
    for (at, (name, media_type)) in names
        .into_iter()
        .zip(["application/cloudevents+json", "application/json", "application/activity+json"])
        .enumerate()
    {
        gateway.until_at(name, 3).await;
        let message = &client.read(name, 1).await[0];
        assert_eq!(text(message.properties.message_id().as_ref()), changes[at]["id"].as_str().unwrap());
        assert_eq!(text(message.properties.content_type().as_ref()), media_type);
        let headers = message.properties.headers().as_ref().unwrap();
        let body: Value = serde_json::from_slice(&message.data).unwrap();
        let id = changes[at]["id"].as_str().unwrap();
        match name {
            "whole" => assert_eq!((&body["id"], &body["data"]), (&json!(id), &changes[at])),
            "binary" => {
                assert_eq!(body, changes[at]);
                assert_eq!(header(headers, "cloudEvents_id"), id);
                assert_eq!(header(headers, "ce-id"), id);
                assert_eq!(header(headers, "cloudEvents_subject"), "http://h.example/binary/é%201");
                assert_eq!(header(headers, "ce-type"), "tidings.change.add");
            }
            _ => {
                assert_eq!((&body["id"], &body["type"]), (&json!(id), &json!(["Create"])));
                assert_eq!(header(headers, "org.fcrepo.jms.eventID"), id);
                assert_eq!(header(headers, "org.fcrepo.jms.eventType"), "https://www.w3.org/ns/activitystreams#Create");
            }
        }
    }
}

#[tokio::test]
async fn change_page_offers_only_formats_with_a_complete_body() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    post_event(&gateway, &event(1)).await;
    let change = gateway.changes().await.remove(0);
    let url = format!("{}/changes/{}", gateway.url, change["id"].as_str().unwrap());
    for (accept, details) in [
        ("application/cloudevents+json", "\"data\""),
        ("application/activity+json", "https://www.w3.org/ns/activitystreams"),
        ("application/xml", "contentObjectModification"),
    ] {
        let answer = gateway.http.get(&url).header("accept", accept).send().await.unwrap();
        assert_eq!(answer.headers()["content-type"], accept);
        let body = answer.text().await.unwrap();
        assert!(body.contains(details), "{accept}: {body}");
    }
    let plain = gateway.http.get(&url).header("accept", "application/json").send().await.unwrap();
    assert!(plain.headers().keys().all(|name| !name.as_str().starts_with("ce-")));
    assert_eq!(plain.json::<Value>().await.unwrap(), change);
    let refused = gateway.http.get(&url).header("accept", "text/csv").send().await.unwrap();
    assert_eq!(refused.status(), 406);
}

#[test]
fn convert_refuses_a_format_that_needs_headers() {
    let convert = |format: &str| {
        let fixture = "fixtures/content-change/synthetic-json-full.json";
        let mut convert = command();
        convert.args(["convert", "--dialect", "content-change", "--format", format, fixture]);
        convert.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap()
    };
    let refused = convert("cloudevents-binary");
    assert_eq!(refused.status.code(), Some(2));
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("there are atom, json, xml, cloudevents, activitystreams"), "{text}");
    assert!(convert("cloudevents").status.success());
}
