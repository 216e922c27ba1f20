//! What fcrepo-camel and the applications of Fedora's Camel toolbox read of a message, through a real ActiveMQ and its own
//! Java client. Both programs need Maven, so their sources decide: fcrepo-camel 3e3fcd2 and fcrepo-camel-toolbox e0fd3d7.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::stomp::{REST, resource, subscription};
use crate::support::{
    activemq::Broker,
    subscription_fixture::{gateway, post_event},
};

const ACTIVITY_STREAMS: &str = "https://www.w3.org/ns/activitystreams#";

/// A message as ActiveMQ's own client reads it.
type Message = Vec<(String, String)>;

fn value<'m>(message: &'m Message, name: &str) -> Option<&'m str> {
    message.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// Returns the headers that fcrepo-camel makes of a body (`processor/EventProcessor.java`, `getValuesFromJson`). A member of
/// another type than these gives no header.
fn camel_headers(body: &Value) -> BTreeMap<&'static str, Vec<String>> {
    let texts = |node: &Value, name: &str| match &node[name] {
        Value::Array(values) => Some(values.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()),
        Value::String(value) => Some(vec![value.clone()]),
        _ => None,
    };
    let agents = body["actor"].as_array().map(|actors| {
        let text = |actor: &Value, name: &str| actor[name].as_str().map(str::to_owned);
        actors.iter().flat_map(|actor| [text(actor, "name"), text(actor, "id")]).flatten().collect::<Vec<_>>()
    });
    // `ActivityStreamTerms.java` expands the terms of ActivityStreams.
    let kinds = texts(body, "type").map(|kinds| kinds.iter().map(|kind| format!("{ACTIVITY_STREAMS}{kind}")).collect());
    let headers = [
        ("CamelFcrepoEventId", texts(body, "id")),
        ("CamelFcrepoDateTime", texts(body, "published")),
        ("CamelFcrepoEventType", kinds),
        ("CamelFcrepoUri", texts(&body["object"], "id")),
        ("CamelFcrepoResourceType", texts(&body["object"], "type")),
        ("CamelFcrepoAgent", agents),
    ];
    headers.into_iter().filter_map(|(name, values)| values.map(|values| (name, values))).collect()
}

#[tokio::test]
async fn fcrepo_camel_finds_all_that_it_reads() {
    let broker = Broker::shared();
    let (name, folder) = (broker.name(), tempfile::tempdir().unwrap());
    let more = format!("format = \"activitystreams\"\nbase_url = \"{REST}\"");
    let lines = subscription("index", &broker.url(), &format!("/queue/{name}"), &more);
    let gateway = gateway(folder.path(), &lines);
    let types = ["http://fedora.info/definitions/v4/repository#Binary", "http://www.w3.org/ns/ldp#NonRDFSource"];
    let user = json!({ "name": "Ada 😀", "uri": "info:fedora/local-user#ada" });
    // `EventProcessor` reads no `BytesMessage`, so no character may make one of a message.
    let told = json!({ "types": types, "user": user, "description": "a 😀 \"quoted\" €" });
    post_event(&gateway, &resource("/a", "ADD", &told)).await;
    post_event(&gateway, &resource("/a", "UPDATE", &json!({}))).await;
    post_event(&gateway, &resource("/a", "DELETE", &json!({}))).await;
    gateway.until_at("index", 3).await;
    let changes = gateway.changes().await;
    let messages = broker.consume_with_openwire(&name, 3, "TRUE");
    for ((message, change), kind) in messages.iter().zip(&changes).zip(["Create", "Update", "Delete"]) {
        let text = value(message, "text").unwrap_or_else(|| panic!("not a TextMessage: {message:#?}"));
        let body: Value = serde_json::from_str(text).unwrap();
        let read = camel_headers(&body);
        let one = |name: &str| read[name].first().map(String::as_str);
        assert_eq!(one("CamelFcrepoEventId"), change["id"].as_str());
        // `AuditSparqlProcessor.java` writes it as an xsd:dateTime.
        assert_eq!(one("CamelFcrepoDateTime"), Some("2026-01-02T03:04:05.678Z"));
        // The producer of fcrepo-camel requests this URL (`FcrepoProducer.java`, `getUrl`).
        assert_eq!(one("CamelFcrepoUri"), Some(format!("{REST}/a").as_str()));
        // `SolrRouter.java` and `TriplestoreRouter.java` delete what has this type, and index everything else.
        let kind = format!("{ACTIVITY_STREAMS}{kind}");
        assert_eq!(read["CamelFcrepoEventType"], std::slice::from_ref(&kind));
        // `HttpRouter.java` reads this header, and takes an event without it for an Update.
        assert_eq!(value(message, "org.fcrepo.jms.eventType"), Some(kind.as_str()));
        // `AuditSparqlProcessor.java` compares the types with fedora:Binary.
        assert_eq!(read["CamelFcrepoResourceType"], types);
    }
    let body: Value = serde_json::from_str(value(&messages[0], "text").unwrap()).unwrap();
    assert_eq!(body["name"], told["description"]);
    assert_eq!(camel_headers(&body)["CamelFcrepoAgent"], ["Ada 😀", "info:fedora/local-user#ada"]);
    assert_eq!(camel_headers(&body).len(), 6);
}
