//! Names of nodes: one live node has a name, and a restarted node waits for the lease of its crashed former run.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{
    gateway::{Gateway, command},
    nodes_fixture::{LEASE, SharedJournal},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_node_with_the_same_name_does_not_start() {
    let journal = SharedJournal::new("");
    let mut a = journal.node("a");
    let refused = journal.refused_node("a");
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{error}");
    let expected = "another node with the name a is running on this journal; give each node its own node.name";
    assert!(error.contains(expected), "{error}");
    assert_eq!(a.json("/nodes").await["nodes"][0]["name"], "a");

    // A restart after a crash waits for the lease, and a restart after a stop does not.
    a.kill();
    let began = Instant::now();
    let again = journal.node("a");
    assert!(began.elapsed() <= LEASE + Duration::from_secs(6), "{:?}", began.elapsed());
    assert!(again.stop().success());
    let began = Instant::now();
    let again = journal.node("a");
    assert!(began.elapsed() < LEASE, "{:?}", began.elapsed());
    assert!(again.stop().success());
}

/// The first nodes of a new journal create its tables once, whichever is first.
#[test]
fn nodes_that_start_together_on_an_empty_database_all_start() {
    for _ in 0..3 {
        let journal = SharedJournal::new("");
        std::thread::scope(|scope| {
            for name in ["a", "b", "c", "d"] {
                scope.spawn(|| journal.node(name));
            }
        });
    }
}

#[tokio::test]
async fn the_only_node_of_a_folder_shows_its_duties() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let view = gateway.json("/nodes").await;
    let node = &view["nodes"][0];
    assert_eq!((&node["answering"], &node["leaving"], &node["lag"]), (&json!(true), &json!(false), &json!(0)));
    let names: Vec<_> = node["duties"].as_array().unwrap().iter().map(|duty| duty["name"].as_str().unwrap()).collect();
    assert!(names.is_sorted() && ["due", "hub"].iter().all(|duty| names.contains(duty)), "{names:?}");
    assert!(node.get("renewed").is_none());

    let listed = |arguments: &[&str]| {
        let output = command().args(["nodes", "--gateway", &gateway.url]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let name = node["name"].as_str().unwrap();
    assert!(listed(&[]).lines().nth(1).unwrap().starts_with(name));
    let is_hub = |line: &str| line.split_whitespace().take(2).eq(["hub", name]);
    assert!(listed(&["--duties"]).lines().any(is_hub));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&listed(&["--json"])).unwrap()["nodes"][0]["name"], name);
}
