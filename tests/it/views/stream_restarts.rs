//! Thousands of changes pass while each reader disconnects, restarts and slows down at random and the gateway
//! is killed twice. Every reader gets every change in order, and repeats only under the same identifier.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use crate::support::{
    chaos::{ChaosGateway, ReceivedChanges},
    event_stream::Stream,
    gateway::{PATIENCE, client},
    run_length::lengthened,
};

/// Number of changes.
fn count() -> u64 {
    lengthened(4000)
}

/// Follows the stream until every change has arrived. Like an indexer it stores its cursor now and then, so
/// that later changes are repeated after its restart.
async fn follow(url: String, received: Arc<ReceivedChanges>, mut random: fastrand::Rng) {
    let (mut stored, mut last) = (0, 0);
    'connections: while last < count() {
        let http = client();
        if random.u8(..4) == 0 {
            // Restart with the stored cursor.
            last = stored;
        }
        let request = http.get(format!("{url}/stream?after=0"));
        let request = if last == 0 { request } else { request.header("last-event-id", last.to_string()) };
        let Ok(response) = request.send().await else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        assert_eq!(response.status(), 200);
        let mut stream = Stream::of(response);
        let mut left = random.u32(1..2000);
        while let Ok(Some(block)) = stream.next().await {
            let Some(data) = &block.data else { continue };
            let change: Value = serde_json::from_str(data).unwrap();
            assert_eq!(change["seq"], block.number());
            last = block.number();
            received.record(last, change["id"].as_str().unwrap());
            if last == count() {
                break 'connections;
            }
            if random.u8(..) == 0 {
                stored = last;
                tokio::time::sleep(Duration::from_millis(random.u64(..20))).await;
            }
            left -= 1;
            if left == 0 {
                // Disconnect.
                continue 'connections;
            }
        }
    }
}

/// Polls until every change has arrived. Now and then it cancels a waiting poll, or restarts from its stored
/// cursor.
async fn poll(url: String, received: Arc<ReceivedChanges>, mut random: fastrand::Rng) {
    let http = client();
    let (mut stored, mut last) = (0, 0);
    while last < count() {
        if random.u8(..20) == 0 {
            last = stored;
        }
        let limit = random.u32(1..400);
        let request = http.get(format!("{url}/changes?after={last}&limit={limit}&wait=10")).send();
        let patience = if random.u8(..4) == 0 { Duration::from_millis(random.u64(..5)) } else { PATIENCE };
        let Ok(Ok(response)) = tokio::time::timeout(patience, request).await else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        assert_eq!(response.status(), 200);
        let Ok(page) = response.json::<Value>().await else { continue };
        for change in page["changes"].as_array().unwrap() {
            last = change["seq"].as_u64().unwrap();
            received.record(last, change["id"].as_str().unwrap());
        }
        assert_eq!(page["next"].as_u64(), Some(last), "next cursor");
        if random.u8(..4) == 0 {
            stored = last;
            tokio::time::sleep(Duration::from_millis(random.u64(..20))).await;
        }
    }
}

#[allow(clippy::print_stderr, reason = "prints the number of repeats")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_and_poll_readers_survive_restarts_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    // The tail in memory is shorter than the lag of a reader.
    let mut chaos = ChaosGateway::start_with(folder.path(), "[journal]\ntail_changes = 300\n");
    let received_by_reader: Vec<Arc<ReceivedChanges>> = (0..4).map(|_| Arc::default()).collect();
    let mut readers = Vec::new();
    for (number, received) in received_by_reader.iter().enumerate() {
        let (url, received, random) = (chaos.url.clone(), Arc::clone(received), chaos.random.fork());
        readers.push(match number {
            0 | 1 => tokio::spawn(follow(url, received, random)),
            _ => tokio::spawn(poll(url, received, random)),
        });
    }
    let gateway = chaos.run(count(), 2, &received_by_reader).await;
    for reader in readers {
        reader.await.unwrap();
    }
    let changes = gateway.changes().await;
    assert_eq!(changes.len() as u64, count());
    for received in received_by_reader {
        eprintln!("{} came again", received.assert_complete(&changes));
    }
}
