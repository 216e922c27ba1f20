//! Ten thousand changes pass while receivers of webhooks are cut off, start again, are slow, answer that they have
//! failed and answer nothing at random, and the gateway is killed twice: each gets every change, in order, with
//! repeats under the same identifier alone.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use crate::{
    commotion::{Commotion, Seen},
    gateway::free_address,
    receiver::{Got, Receiver, Reply},
    webhooking::{SECRET, webhook},
};

const COUNT: u64 = 10_000;

/// A receiver that takes what it gets, whatever it answers then.
fn script(seen: &Arc<Seen>, random: fastrand::Rng) -> impl Fn(usize, &Got) -> Reply + Send + Sync + 'static {
    let (seen, random) = (Arc::clone(seen), Mutex::new(random));
    move |_, got| {
        assert!(got.is_signed_with(SECRET));
        let body = got.json();
        match body["changes"].as_array() {
            Some(changes) => {
                changes.iter().for_each(|one| seen.tell(one["seq"].as_u64().unwrap(), one["id"].as_str().unwrap()));
            }
            None => seen.tell(got.seq(), got.header("webhook-id")),
        }
        let mut random = random.lock().unwrap();
        match random.u32(..4000) {
            0 => Reply::of(500),
            1 => Reply::Close,
            2..=100 => Reply::After(Duration::from_micros(random.u64(..3000)), Box::new(Reply::of(200))),
            _ => Reply::of(200),
        }
    }
}

/// Is there, goes away, and comes again, until `done`.
async fn receive(address: SocketAddr, seen: Arc<Seen>, mut random: fastrand::Rng, done: CancellationToken) {
    while !done.is_cancelled() {
        let receiver = Receiver::at(address, script(&seen, random.fork())).await;
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(random.u64(300..3000))) => {}
            () = done.cancelled() => {}
        }
        drop(receiver);
        tokio::time::sleep(Duration::from_millis(random.u64(..50))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_changes_are_posted() {
    let folder = tempfile::tempdir().unwrap();
    let address = || free_address().parse().unwrap();
    let addresses = [address(), address()];
    let lines = webhook("single", &format!("http://{}/", addresses[0]), "answer_seconds = 1")
        + &webhook("batches", &format!("http://{}/", addresses[1]), "answer_seconds = 1\nmax_batch = 20");
    let mut commotion = Commotion::begin(folder.path(), &("[journal]\ntail_changes = 300\n".to_owned() + &lines));
    let everybody: Vec<Arc<Seen>> = addresses.iter().map(|_| Arc::default()).collect();
    let done = CancellationToken::new();
    let receivers: Vec<_> = addresses
        .iter()
        .zip(&everybody)
        .map(|(address, seen)| tokio::spawn(receive(*address, Arc::clone(seen), commotion.random.fork(), done.clone())))
        .collect();
    let gateway = commotion.pass(COUNT, 2, &everybody).await;
    done.cancel();
    for receiver in receivers {
        receiver.await.unwrap();
    }
    let changes = gateway.changes().await;
    assert_eq!(changes.len() as u64, COUNT);
    for seen in everybody {
        eprintln!("{} came again", seen.holds(&changes));
    }
}
