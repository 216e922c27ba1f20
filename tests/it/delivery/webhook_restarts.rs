//! Thousands of changes pass while webhook receivers disconnect, restart, slow down, fail or stay silent at
//! random and the gateway is killed twice. Each receiver gets every change in order, and repeats only under the
//! same identifier.

use std::net::SocketAddr;

use crate::support::{
    chaos::ChaosGateway,
    gateway::free_address,
    run_length::lengthened,
    webhook_fixture::{record_changes, webhook},
};

/// Number of changes.
const COUNT: u64 = 4000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhook_receivers_survive_restarts_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = [(); 2].map(|()| free_address().parse::<SocketAddr>().unwrap());
    let lines = webhook("single", &format!("http://{}/", addresses[0]), "answer_seconds = 1")
        + &webhook("batches", &format!("http://{}/", addresses[1]), "answer_seconds = 1\nmax_batch = 20");
    let chaos = ChaosGateway::start_with(folder.path(), &("[journal]\ntail_changes = 300\n".to_owned() + &lines));
    chaos.run_with_receivers(&addresses, 4000, record_changes, lengthened(COUNT), 2).await;
}
