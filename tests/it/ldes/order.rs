//! Order times through clocks that are set back, restarts and restores.

use serde_json::{Value, json};
use tidings::journal::store::sqlite::{backup::back_up, restore::restore};

use crate::support::{
    gateway::{Gateway, command, free_address},
    journal_fixture::OpenJournal,
    ldes_client::read,
    shifted_clock::shift_clock,
    subscription_fixture::post,
};

/// Returns the order times of all members.
async fn orders(gateway: &Gateway) -> Vec<String> {
    let root = gateway.http.get(format!("{}/ldes", gateway.url)).send().await.unwrap();
    let (url, root) = (root.url().clone(), root.json::<Value>().await.unwrap());
    let mut nodes: Vec<_> =
        root["view"]["relation"].as_array().unwrap().iter().map(|one| one["node"].as_str().unwrap()).collect();
    nodes.dedup();
    let mut orders = Vec::new();
    for node in nodes {
        let page: Value = gateway.http.get(url.join(node).unwrap()).send().await.unwrap().json().await.unwrap();
        orders.extend(
            page["member"].as_array().unwrap().iter().map(|member| member["order"].as_str().unwrap().to_owned()),
        );
    }
    orders
}

#[tokio::test]
async fn clock_that_is_set_back_and_a_restart_change_no_order() {
    let folder = tempfile::tempdir().unwrap();
    let first = Gateway::start(folder.path());
    for number in 1..=110 {
        post(&first, number).await;
    }
    let before = orders(&first).await;
    assert!(first.stop().success());
    let mut late = command();
    shift_clock(&mut late, -3600);
    let late = Gateway::start_as(late, folder.path(), &["--listen", "127.0.0.1:0"]);
    for number in 111..=230 {
        post(&late, number).await;
    }
    let after = orders(&late).await;
    assert_eq!(after[..110], before);
    assert!(after.len() == 230 && after.is_sorted_by(|one, next| one < next));
    let client = read(&format!("{}/ldes", late.url), None, &[]);
    assert_eq!(client.numbers(), (1..=230).collect::<Vec<_>>(), "{}", client.errors);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_journal_has_another_stream_and_readers_start_again() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let (data, file, state) = (folder.path().join("data"), folder.path().join("backup"), folder.path().join("state"));
    let address = free_address();
    let start = || Gateway::start_elsewhere(&data, &["--listen", &address], None);
    let gateway = start();
    for number in 1..=130 {
        post(&gateway, number).await;
    }
    back_up(&data, &file, &mut |_, _| {}).unwrap();
    for number in 131..=210 {
        post(&gateway, number).await;
    }
    let root = gateway.http.get(format!("{}/ldes", gateway.url)).send().await.unwrap().url().clone();
    assert_eq!(read(root.as_str(), Some(&state), &[]).numbers().len(), 210);
    assert!(gateway.stop().success());
    restore(&file, &data, true, &mut |_, _| {}).unwrap();

    let restored = start();
    // The former stream says that it has ended, also to the client.
    assert_eq!(restored.http.get(root.clone()).send().await.unwrap().status(), 410);
    let ended = read(root.as_str(), Some(&state), &[]);
    assert!(!ended.succeeded && ended.members.is_empty(), "{ended:?}");
    for number in 1001..=1110 {
        post(&restored, number).await;
    }
    let again = read(&format!("{}/ldes", restored.url), None, &[]);
    let numbers: Vec<_> = restored.changes().await.iter().map(|change| change["seq"].as_u64().unwrap()).collect();
    assert_eq!(again.numbers(), numbers);
    assert_eq!(numbers.len(), 240);
    let orders = orders(&restored).await;
    assert!(orders.is_sorted_by(|one, next| one < next));
}

/// A burst runs ahead of the clock, and the order times return to it.
#[tokio::test]
async fn order_times_of_a_burst_are_ahead_of_the_clock_for_a_while() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let change = |at: usize| {
        let object = format!("http://h/{at}");
        json!({ "object": object, "items": [{ "uri": object, "change": "ADD" }] })
    };
    let journal = OpenJournal::at(folder.path());
    journal.append_batch((0..3000).map(change)).await;
    journal.close();
    let gateway = Gateway::start(folder.path());
    let orders_of_burst = orders(&gateway).await;
    let millis = |text: &str| chrono::DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis();
    let received = gateway.changes().await;
    let received = millis(received[0]["received"].as_str().unwrap());
    assert_eq!((millis(&orders_of_burst[0]), millis(&orders_of_burst[2999])), (received, received + 2999));
    // Half a minute later, the clock has passed the newest order time.
    assert!(gateway.stop().success());
    let mut later = command();
    shift_clock(&mut later, 30);
    let gateway = Gateway::start_as(later, folder.path(), &["--listen", "127.0.0.1:0"]);
    post(&gateway, 1).await;
    let (newest, change) = (orders(&gateway).await.pop().unwrap(), gateway.changes().await.pop().unwrap());
    assert_eq!(newest, change["received"].as_str().unwrap());
}
