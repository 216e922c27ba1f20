//! Several nodes on one journal: one of them owns the name on the bus.

use serde_json::json;

use crate::support::{
    dbus_daemon::Bus,
    nodes_fixture::{SharedJournal, holder_and_other},
    subscription_fixture::post_event,
    xesam_fixture::{Crawler, image, settings, until, uri},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_takes_the_name_over() {
    let bus = Bus::start();
    let journal = SharedJournal::new(&settings(&bus, ""));
    let (a, b) = (journal.node("a"), journal.node("b"));
    let (mut holder, other) = holder_and_other([a, b], &journal, "dbus").await;
    let state = async |node: &crate::support::gateway::Gateway| {
        node.json("/subscriptions").await["dbus"]["connection"]["state"].as_str().unwrap().to_owned()
    };
    until("the holder is on the bus", async || state(&holder).await == "connected").await;
    until("the other is not", async || state(&other).await == "elsewhere").await;
    let crawler = Crawler::start(&bus.address(), &json!({ "mtime": 1 }));
    crawler.until_event("installed").await;
    // Changes of both nodes arrive in the order of the journal.
    for number in 0..20 {
        post_event(if number % 2 == 0 { &holder } else { &other }, &image(number)).await;
    }
    let records = crawler.until_records(20).await;
    crawler.check_order();
    assert_eq!(
        records.iter().map(|record| record.uri.clone()).collect::<Vec<_>>(),
        (0..20).map(uri).collect::<Vec<_>>()
    );
    holder.kill();
    until("the other takes over", async || state(&other).await == "connected").await;
    post_event(&other, &image(20)).await;
    let again = Crawler::start(&bus.address(), &json!({ "mtime": records[19].second() }));
    let after = again.until_record_of(&uri(20)).await;
    again.check_order();
    assert_eq!(again.until_event("installed").await["incremental"], true);
    let repeated = after.iter().filter(|record| record.uri != uri(20));
    let had = |record: &crate::support::xesam_fixture::Record| records.contains(record);
    assert!(repeated.clone().all(had), "every node gives a record the same timestamp");
}
