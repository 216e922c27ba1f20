//! Retention and follow-up lookups run on exactly one node, whichever accepts the messages, and on another one after its
//! death.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    lookups::{
        failures::{SOON, lookup, modified, repository, url},
        fedora3::repository_config,
    },
    support::{
        duty_audit,
        fake_repository::Behaviour,
        gateway::Gateway,
        journal_fixture::post,
        nodes_fixture::{SharedJournal, holder_and_other, until},
    },
};

/// Number of changes that retention keeps.
const KEPT: u64 = 60;

/// Waits until a node has no more than the newest changes.
async fn until_removed(node: &Gateway, head: u64) {
    until("old changes are removed", async || {
        let response = node.http.get(format!("{}/changes?after=0", node.url)).send().await.unwrap();
        let problem: Value = response.json().await.unwrap();
        problem["first"] == head - KEPT + 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_runs_on_one_node_and_moves_after_its_death() {
    let journal = SharedJournal::new(&format!("[journal]\nkeep_changes = {KEPT}\ntail_changes = 5\n"));
    let nodes = ["a", "b"].map(|name| journal.node(name));
    duty_audit::start(|sql| journal.query(sql), &[]);
    let (mut holder, other) = holder_and_other(nodes, &journal, "retention").await;
    for number in 1..=200 {
        post(if number % 2 == 0 { &holder } else { &other }, number).await;
    }
    for node in [&holder, &other] {
        until_removed(node, 200).await;
    }
    holder.kill();
    for number in 201..=300 {
        post(&other, number).await;
    }
    until_removed(&other, 300).await;
    duty_audit::assert_no_strays(|sql| journal.query(sql));
    journal.query("DELETE FROM changes WHERE seq = (SELECT min(seq) FROM changes)");
    assert_eq!(journal.query("SELECT duty FROM audit.strays"), "retention", "the audit notes strays");
}

/// Returns the identifiers of the events that were completed, and panics if one was completed twice.
fn completed(changes: &[Value]) -> BTreeSet<&str> {
    let complete: Vec<_> = changes.iter().filter(|change| change["lookup"] != "incomplete").collect();
    let events: BTreeSet<_> = complete.iter().map(|change| change["sourceEventId"].as_str().unwrap()).collect();
    assert_eq!(events.len(), complete.len(), "{changes:#?}");
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follow_ups_run_on_one_node_and_move_after_its_death() {
    let repository = repository().await;
    let journal = SharedJournal::new(&repository_config("best-effort", &url(&repository), SOON));
    let nodes = ["a", "b"].map(|name| journal.node(name));
    duty_audit::start(|sql| journal.query(sql), &[]);
    let (mut holder, other) = holder_and_other(nodes, &journal, "follow-ups/fedora3").await;
    let send = async |node: &Gateway, second| {
        repository.api.write("demo:1", "OBJ", "image/jp2", second);
        let (status, response) = node.post("fedora3", "application/atom+xml", modified(second)).await;
        assert_eq!(status, 201, "{response}");
    };
    let until_complete = async |node: &Gateway| {
        until("no change is incomplete", async || lookup(node, "fedora3").await["incomplete"] == 0).await;
    };

    // Two rounds, so that the second begins when nothing is left to do. The node with the duty gets no message.
    for second in [2, 3] {
        repository.set_behaviour(Behaviour::Status(500));
        send(&other, second).await;
        until("the node with the duty counts it", async || lookup(&holder, "fedora3").await["incomplete"] == 1).await;
        repository.set_behaviour(Behaviour::Normal);
        until_complete(&holder).await;
        until_complete(&other).await;
    }
    assert_eq!(completed(&other.changes().await).len(), 2);

    repository.set_behaviour(Behaviour::Status(500));
    for second in [4, 5] {
        send(&other, second).await;
    }
    send(&holder, 6).await;
    holder.kill();
    send(&other, 7).await;
    repository.set_behaviour(Behaviour::Normal);
    until_complete(&other).await;
    until("every change is completed", async || journal.query("SELECT count(*) FROM incomplete_changes") == "0").await;
    // A result that is older than the registry makes no change.
    let changes = other.changes().await;
    let newest = changes.iter().rfind(|change| change["lookup"] == "incomplete").unwrap();
    assert!(completed(&changes).contains(newest["sourceEventId"].as_str().unwrap()), "{changes:#?}");
    duty_audit::assert_no_strays(|sql| journal.query(sql));
}
