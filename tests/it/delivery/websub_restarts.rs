//! Thousands of changes pass while WebSub subscribers disconnect, restart, slow down, fail or stay silent at
//! random and the gateway is killed twice. Each subscriber gets every entry in order, and repeats only of the
//! same entries.

use std::net::SocketAddr;

use crate::support::{
    chaos::ChaosGateway,
    gateway::free_address,
    http_receiver::{Receiver, Reply},
    run_length::lengthened,
    websub_fixture::{LOCAL, SUBSCRIBER_SECRET, challenge, record_entries, subscribe_at, until_running_at},
};

/// Number of changes.
const COUNT: u64 = 4000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websub_subscribers_survive_restarts_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let chaos = ChaosGateway::start_with(folder.path(), &format!("[journal]\ntail_changes = 300\n{LOCAL}"));
    let addresses = [(); 2].map(|()| free_address().parse::<SocketAddr>().unwrap());
    for address in addresses {
        // The subscriber must be running for its verification.
        let subscriber = Receiver::at(address, |_, request| Reply::Answer(200, vec![], challenge(request))).await;
        subscribe_at(&chaos.url, &format!("http://{address}/"), &[("hub.secret", SUBSCRIBER_SECRET)]).await;
        subscriber.until(1).await;
    }
    until_running_at(&chaos.url, addresses.len()).await;
    chaos.run_with_receivers(&addresses, 1000, record_entries, lengthened(COUNT), 2).await;
}
