//! Twenty times, several clients post concurrently and the gateway is killed meanwhile. Every acknowledged
//! event is in the journal exactly once. An unacknowledged event is sent again and is there once too. The
//! numbers have no gap.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::support::{fedora3_messages::Call, gateway::Gateway};

const ROUNDS: u64 = 20;
const POSTERS: u64 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_loses_no_acknowledged_event() {
    let folder = tempfile::tempdir().unwrap();
    let acknowledged = Arc::new(Mutex::new(BTreeMap::new()));
    let mut unanswered: Vec<u64> = Vec::new();
    let next = Arc::new(AtomicU64::new(1));
    for round in 0..ROUNDS {
        let mut gateway = Gateway::start(folder.path());
        // An event without a response may have been stored or not, so its sender sends it again.
        for number in unanswered.drain(..) {
            let seq = post(&gateway.http, &gateway.url, number).await.unwrap();
            acknowledged.lock().unwrap().insert(number, seq);
        }
        let enough = acknowledged.lock().unwrap().len() + 10 + usize::try_from(round * 7 % 40).unwrap();
        let posters: Vec<_> = (0..POSTERS)
            .map(|_| {
                let (http, url) = (gateway.http.clone(), gateway.url.clone());
                let (acknowledged, next) = (Arc::clone(&acknowledged), Arc::clone(&next));
                tokio::spawn(async move {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        match post(&http, &url, number).await {
                            Some(seq) => acknowledged.lock().unwrap().insert(number, seq),
                            None => return number,
                        };
                    }
                })
            })
            .collect();
        while acknowledged.lock().unwrap().len() < enough {
            tokio::task::yield_now().await;
        }
        gateway.kill();
        for poster in posters {
            unanswered.push(poster.await.unwrap());
        }
    }
    let gateway = Gateway::start(folder.path());
    let changes = gateway.changes().await;
    let numbers: Vec<_> = changes.iter().map(|change| change["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=changes.len() as u64).collect::<Vec<_>>());
    let events: BTreeMap<_, _> = changes
        .iter()
        .map(|change| (change["sourceEventId"].as_str().unwrap(), change["seq"].as_u64().unwrap()))
        .collect();
    assert_eq!(events.len(), changes.len(), "an event is in the journal twice");
    for (number, seq) in acknowledged.lock().unwrap().iter() {
        assert_eq!(events.get(id(*number).as_str()), Some(seq), "event {number} was acknowledged");
    }
    let objects: BTreeSet<_> = changes.iter().map(|change| change["object"].as_str().unwrap()).collect();
    assert!(objects.len() > 100, "the test did nothing");
}

fn call(number: u64, pid: &str) -> Call<'_> {
    Call { number, method: "addDatastream", pid, parameters: &[("dsID", "DC"), ("dsState", "A")], returned: Some("DC") }
}

fn id(number: u64) -> String {
    call(number, "").id()
}

/// Posts an event; returns the number of its change, or `None` if there was no response.
async fn post(http: &reqwest::Client, url: &str, number: u64) -> Option<u64> {
    let pid = format!("crash:{number}");
    let request = http.post(format!("{url}/hooks/fedora3")).header("content-type", "application/atom+xml");
    let answer = request.body(call(number, &pid).message()).send().await.ok()?;
    let status = answer.status();
    let answer: serde_json::Value = serde_json::from_slice(&answer.bytes().await.ok()?).ok()?;
    assert!(status.is_success(), "{status}: {answer}");
    answer["changes"][0]["seq"].as_u64()
}
