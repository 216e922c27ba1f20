//! Ten thousand changes pass while webhook receivers disconnect, restart, slow down, fail or stay silent at
//! random and the gateway is killed twice. Each receiver gets every change in order, and repeats only under the
//! same identifier.

use std::net::SocketAddr;

use crate::support::{
    chaos::{Commotion, Seen},
    gateway::free_address,
    http_receiver::{Got, Reply},
    webhook_fixture::{SECRET, webhook},
};

const COUNT: u64 = 10_000;

/// Records a request, whatever its reply will be.
fn take(seen: &Seen, got: &Got) -> Option<Reply> {
    assert!(got.is_signed_with(SECRET));
    let body = got.json();
    match body["changes"].as_array() {
        Some(changes) => {
            changes.iter().for_each(|one| seen.tell(one["seq"].as_u64().unwrap(), one["id"].as_str().unwrap()));
        }
        None => seen.tell(got.seq(), got.header("webhook-id")),
    }
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhook_receivers_survive_restarts_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = [(); 2].map(|()| free_address().parse::<SocketAddr>().unwrap());
    let lines = webhook("single", &format!("http://{}/", addresses[0]), "answer_seconds = 1")
        + &webhook("batches", &format!("http://{}/", addresses[1]), "answer_seconds = 1\nmax_batch = 20");
    let commotion = Commotion::begin(folder.path(), &("[journal]\ntail_changes = 300\n".to_owned() + &lines));
    commotion.pass_to(&addresses, 4000, take, COUNT, 2).await;
}
