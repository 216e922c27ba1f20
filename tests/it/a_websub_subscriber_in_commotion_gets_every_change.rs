//! Ten thousand changes pass while WebSub subscribers are cut off, start again, are slow, answer that they have failed
//! and answer nothing at random, and the gateway is killed twice: each gets every entry, in order, with repeats of the
//! same alone.

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
    websub::{LOCAL, challenge, is_signed, subscribe_at, until_running_at},
};

const COUNT: u64 = 10_000;
const SECRET: &str = "a secret of the test";

/// The numbers and the identifiers of the changes in a document, oldest first.
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

/// A subscriber that takes what it gets, whatever it answers then.
fn script(seen: &Arc<Seen>, random: fastrand::Rng) -> impl Fn(usize, &Got) -> Reply + Send + Sync + 'static {
    let (seen, random) = (Arc::clone(seen), Mutex::new(random));
    move |_, got| {
        if got.method == "GET" {
            return Reply::Answer(200, vec![], challenge(got));
        }
        assert!(is_signed(got, SECRET));
        for (seq, id) in changes(std::str::from_utf8(&got.body).unwrap()) {
            seen.tell(seq, &id);
        }
        let mut random = random.lock().unwrap();
        match random.u32(..1000) {
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

#[allow(clippy::print_stderr, reason = "how often things came again is of interest")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_changes_are_distributed() {
    let folder = tempfile::tempdir().unwrap();
    let mut commotion = Commotion::begin(folder.path(), &format!("[journal]\ntail_changes = 300\n{LOCAL}"));
    let everybody: Vec<Arc<Seen>> = vec![Arc::default(), Arc::default()];
    let addresses: Vec<SocketAddr> = everybody.iter().map(|_| free_address().parse().unwrap()).collect();
    for address in &addresses {
        // It is there while it is asked.
        let subscriber = Receiver::at(*address, script(&Arc::default(), fastrand::Rng::with_seed(0))).await;
        subscribe_at(&commotion.url, &format!("http://{address}/"), &[("hub.secret", SECRET)]).await;
        subscriber.until(1).await;
    }
    until_running_at(&commotion.url, addresses.len()).await;
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
