//! Ten thousand changes pass while WebSub subscribers are cut off, start again, are slow, answer that they have failed
//! and answer nothing at random, and the gateway is killed twice: each gets every entry, in order, with repeats of the
//! same alone.

use std::net::SocketAddr;

use crate::support::{
    chaos::{Commotion, Seen},
    gateway::free_address,
    http_receiver::{Got, Receiver, Reply},
    websub_fixture::{LOCAL, challenge, is_signed, subscribe_at, until_running_at},
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

/// Takes what it gets, whatever it answers then.
fn take(seen: &Seen, got: &Got) -> Option<Reply> {
    if got.method == "GET" {
        return Some(Reply::Answer(200, vec![], challenge(got)));
    }
    assert!(is_signed(got, SECRET));
    for (seq, id) in changes(std::str::from_utf8(&got.body).unwrap()) {
        seen.tell(seq, &id);
    }
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websub_subscribers_survive_restarts_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let commotion = Commotion::begin(folder.path(), &format!("[journal]\ntail_changes = 300\n{LOCAL}"));
    let addresses = [(); 2].map(|()| free_address().parse::<SocketAddr>().unwrap());
    for address in addresses {
        // It is there while it is asked.
        let subscriber = Receiver::at(address, |_, got| Reply::Answer(200, vec![], challenge(got))).await;
        subscribe_at(&commotion.url, &format!("http://{address}/"), &[("hub.secret", SECRET)]).await;
        subscriber.until(1).await;
    }
    until_running_at(&commotion.url, addresses.len()).await;
    commotion.pass_to(&addresses, 1000, take, COUNT, 2).await;
}
