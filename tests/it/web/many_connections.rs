//! A thousand concurrent clients, more than the connection limit: each gets a response, and every acknowledged
//! event is in the journal.

use std::collections::BTreeMap;

use crate::support::{
    fedora3_messages::Call,
    gateway::{PATIENCE, client},
    resource_watch::WatchedGateway,
};

const CLIENTS: u64 = 1000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_connections_lose_no_acknowledged_event() {
    // Fewer connections than clients, so that some wait while others keep theirs open.
    // A connection that sends nothing makes room only because others need it.
    let gateway = WatchedGateway::start("[limits]\nconnections = 400\nhead_seconds = 3600\n");
    let clients: Vec<_> = (1..=CLIENTS)
        .map(|number| {
            let url = format!("{}/hooks/fedora3", gateway.url);
            tokio::spawn(async move {
                let pid = format!("crowd:{number}");
                let parameters = &[("dsID", "DC"), ("dsState", "A")][..];
                let call = Call { number, method: "addDatastream", pid: &pid, parameters, returned: Some("DC") };
                // Each client has a connection of its own.
                let http = client();
                // The clients share two processors with the gateway and with other tests.
                let request = http.post(url).timeout(4 * PATIENCE).header("content-type", "text/xml");
                let answer = request.body(call.message()).send().await.unwrap();
                let status = answer.status().as_u16();
                let answer: serde_json::Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
                (call.id(), status, answer, http)
            })
        })
        .collect();
    let mut acknowledged = BTreeMap::new();
    let mut open_clients = Vec::new();
    for client in clients {
        let (id, status, answer, http) = client.await.unwrap();
        open_clients.push(http);
        match status {
            201 => {
                acknowledged.insert(id, answer["changes"][0]["seq"].as_u64().unwrap());
            }
            503 => assert_eq!(answer["type"], "urn:tidings:problem:unavailable", "{answer}"),
            _ => panic!("{status}: {answer}"),
        }
    }
    assert!(acknowledged.len() > 500, "only {} were served", acknowledged.len());
    let changes = gateway.changes().await;
    let numbers: BTreeMap<_, _> = changes
        .iter()
        .map(|change| (change["sourceEventId"].as_str().unwrap().to_owned(), change["seq"].as_u64().unwrap()))
        .collect();
    for (id, seq) in &acknowledged {
        assert_eq!(numbers.get(id), Some(seq), "{id} was acknowledged");
    }
    gateway.still_serves("a thousand connections");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_connections_lose_no_request_when_they_make_room_for_others() {
    let gateway = WatchedGateway::start("[limits]\nconnections = 10\n");
    let clients: Vec<_> = (1..=50)
        .map(|client_number| {
            let url = format!("{}/hooks/content-change", gateway.url);
            tokio::spawn(async move {
                let http = client();
                for request in 0..20 {
                    let body = format!(r#"{{"object":"http://h/{client_number}/{request}","purge":true}}"#);
                    let answer = http.post(&url).header("content-type", "application/json").body(body).send().await;
                    let answer = answer.unwrap_or_else(|error| panic!("client {client_number}: {error:?}"));
                    assert!(answer.status().is_success(), "{}", answer.status());
                    answer.bytes().await.unwrap();
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
}
