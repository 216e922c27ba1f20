//! Ten thousand changes pass while WebSub subscribers disconnect, restart, slow down, fail or stay silent at
//! random and the gateway is killed twice. Each subscriber gets every entry in order, and repeats only of the
//! same entries.

use std::net::SocketAddr;

use crate::support::{
    chaos::{ChaosGateway, ReceivedChanges},
    gateway::free_address,
    http_receiver::{ReceivedRequest, Receiver, Reply},
    websub_fixture::{LOCAL, challenge, is_signed, subscribe_at, until_running_at},
};

const COUNT: u64 = 10_000;
const SECRET: &str = "a secret of the test";

/// Returns the numbers and identifiers of the changes in a document, oldest first.
fn changes(document: &str) -> Vec<(u64, String)> {
    let between = |text: &str, start: &str, end: &str| {
        let (_, rest) = text.split_once(start).unwrap();
        rest.split_once(end).unwrap().0.to_owned()
    };
    let entries = document.split("<entry>").skip(1).map(|entry| {
        let source = between(entry, "<source>", "</source>");
        (between(entry, " seq=\"", "\"").parse().unwrap(), between(&source, "<id>", "</id>"))
    });
    let mut entries: Vec<_> = entries.collect();
    entries.reverse();
    entries
}

/// Records a request, whatever its reply will be.
fn take(received: &ReceivedChanges, request: &ReceivedRequest) -> Option<Reply> {
    if request.method == "GET" {
        return Some(Reply::Answer(200, vec![], challenge(request)));
    }
    assert!(is_signed(request, SECRET));
    for (seq, id) in changes(std::str::from_utf8(&request.body).unwrap()) {
        received.record(seq, &id);
    }
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websub_subscribers_survive_restarts_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let chaos = ChaosGateway::start_with(folder.path(), &format!("[journal]\ntail_changes = 300\n{LOCAL}"));
    let addresses = [(); 2].map(|()| free_address().parse::<SocketAddr>().unwrap());
    for address in addresses {
        // The subscriber must be running for its verification.
        let subscriber = Receiver::at(address, |_, request| Reply::Answer(200, vec![], challenge(request))).await;
        subscribe_at(&chaos.url, &format!("http://{address}/"), &[("hub.secret", SECRET)]).await;
        subscriber.until(1).await;
    }
    until_running_at(&chaos.url, addresses.len()).await;
    chaos.run_with_receivers(&addresses, 1000, take, COUNT, 2).await;
}
