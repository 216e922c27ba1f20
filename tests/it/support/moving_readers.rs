//! Readers of the stream and of long polls that move between gateways at random, as behind a load balancer. Like an
//! indexer each stores its cursor now and then, and sometimes starts again from there. They read until their task is
//! aborted.

use std::{sync::Arc, time::Duration};

use reqwest::{Client, StatusCode};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::support::{chaos::ReceivedChanges, event_stream::Stream, gateway::client};

/// Time without an event after which a reader moves.
const IDLE: Duration = Duration::from_secs(2);

/// Delay before the next attempt.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// A reader of all gateways.
pub(crate) struct MovingReader {
    http: Client,
    urls: Vec<String>,
    random: fastrand::Rng,
    received: Arc<ReceivedChanges>,
    last: u64,
    stored: u64,
}

impl MovingReader {
    pub(crate) fn new(urls: &[String], random: fastrand::Rng, received: &Arc<ReceivedChanges>) -> Self {
        let (urls, received) = (urls.to_owned(), Arc::clone(received));
        Self { http: client(), urls, random, received, last: 0, stored: 0 }
    }

    /// Returns the URL of any gateway. Sometimes the reader has restarted with the stored cursor.
    fn next_gateway(&mut self) -> &str {
        if self.random.u8(..8) == 0 {
            self.last = self.stored;
        }
        &self.urls[self.random.usize(..self.urls.len())]
    }

    /// Records a change, and sometimes stores the cursor and is slow.
    async fn record(&mut self, change: &Value) {
        self.last = change["seq"].as_u64().unwrap();
        self.received.record(self.last, change["id"].as_str().unwrap());
        if self.random.u8(..) == 0 {
            self.stored = self.last;
            sleep(Duration::from_millis(self.random.u64(..20))).await;
        }
    }

    /// Follows the streams.
    pub(crate) async fn follow(mut self) {
        loop {
            let request = format!("{}/stream?after=0", self.next_gateway());
            let request = self.http.get(request);
            let request = if self.last == 0 { request } else { request.header("last-event-id", self.last.to_string()) };
            let Ok(Ok(response)) = timeout(IDLE, request.send()).await else {
                sleep(RETRY_DELAY).await;
                continue;
            };
            if is_refused(response.status(), self.last) {
                sleep(RETRY_DELAY).await;
                continue;
            }
            let (mut stream, mut left) = (Stream::of(response), self.random.u32(1..1000));
            while left > 0
                && let Ok(Ok(Some(block))) = timeout(IDLE, stream.next()).await
            {
                let Some(data) = &block.data else { continue };
                let change: Value = serde_json::from_str(data).unwrap();
                assert_eq!(change["seq"], block.number());
                self.record(&change).await;
                left -= 1;
            }
        }
    }

    /// Polls.
    pub(crate) async fn poll(mut self) {
        loop {
            let limit = self.random.u32(1..400);
            let url = self.next_gateway().to_owned();
            let request = self.http.get(format!("{url}/changes?after={}&limit={limit}&wait=1", self.last));
            let Ok(Ok(response)) = timeout(IDLE, request.send()).await else {
                sleep(RETRY_DELAY).await;
                continue;
            };
            if is_refused(response.status(), self.last) {
                sleep(RETRY_DELAY).await;
                continue;
            }
            let Ok(Ok(page)) = timeout(IDLE, response.json::<Value>()).await else { continue };
            for change in page["changes"].as_array().unwrap() {
                self.record(change).await;
            }
            assert_eq!(page["next"].as_u64(), Some(self.last), "next cursor");
        }
    }
}

/// Returns whether a gateway could not serve the reader. It may never say that changes after the cursor are gone.
fn is_refused(status: StatusCode, cursor: u64) -> bool {
    assert!(
        status == StatusCode::OK || status == StatusCode::SERVICE_UNAVAILABLE,
        "a reader after change {cursor} gets {status}"
    );
    status != StatusCode::OK
}
