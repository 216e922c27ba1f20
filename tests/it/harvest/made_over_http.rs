//! Harvests that are made, paused and removed over HTTP and by the command, with one node and with two.

use std::{io::BufRead, path::Path};

use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, command},
    journal_fixture::configuration,
    nodes_fixture::{SharedJournal, until},
    scripted_repository::{Misbehaviour, ScriptedRepository, identifier},
};

const ALLOW: &str = "[delivery]\nallow = [\"127.0.0.1\"]\n";

fn start(folder: &Path, lines: &str) -> Gateway {
    Gateway::start_with(folder, &["--config", &configuration(folder, lines)])
}

fn definition(name: &str, repository: &ScriptedRepository) -> Value {
    json!({ "name": name, "transport": "oai-pmh", "dialect": "oai-pmh", "url": repository.url(), "every": "1h" })
}

async fn add(gateway: &Gateway, definition: Value) {
    let (status, answer) = gateway.ask("POST", "/harvests", Some(definition)).await;
    assert_eq!(status, 201, "{answer}");
}

/// Waits until a harvest has this number of complete runs.
async fn until_completed(gateway: &Gateway, name: &str, count: usize) {
    until("the runs are complete", async || {
        let (_, harvest) = gateway.ask("GET", &format!("/harvests/{name}"), None).await;
        let is_complete = |run: &&Value| run["state"] == "completed";
        harvest["runs"].as_array().is_some_and(|runs| runs.iter().filter(is_complete).count() == count)
    })
    .await;
}

#[tokio::test]
async fn harvest_begins_at_once_and_survives_kill_9_until_it_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let repository = ScriptedRepository::start(25).await;
    let mut gateway = start(folder.path(), ALLOW);
    add(&gateway, definition("upm", &repository)).await;
    gateway.kill();
    let mut gateway = start(folder.path(), ALLOW);
    until_completed(&gateway, "upm", 1).await;
    assert_eq!(gateway.head().await, 25);
    let harvests = gateway.json("/harvests").await;
    assert_eq!((&harvests["harvests"][0]["source"], &harvests["harvests"][0]["from"]), (&json!("upm"), &json!("api")));
    let sources = gateway.json("/sources").await;
    let listed = sources["sources"].as_array().unwrap().iter().find(|source| source["name"] == "upm").unwrap();
    assert_eq!((&listed["transport"], &listed["dialect"]), (&json!("oai-pmh"), &json!("oai-pmh")));
    let metrics = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("tidings_harvest_runs_total{source=\"upm\",outcome=\"completed\"} 1"), "{metrics}");

    // The kill may have come after the first request.
    let first_pages = repository.first_pages().len();
    let requests = repository.script().requests.len();
    let (status, _) = gateway.ask("DELETE", "/harvests/upm", None).await;
    assert_eq!(status, 204);
    assert_eq!(gateway.ask("GET", "/harvests/upm", None).await.0, 404);
    assert_eq!(gateway.ask("DELETE", "/harvests/upm", None).await.0, 404);
    gateway.kill();
    let gateway = start(folder.path(), ALLOW);
    assert_eq!(gateway.json("/harvests").await["harvests"], json!([]));
    assert_eq!(repository.script().requests.len(), requests);
    // A new harvest of the name begins from the start, and unchanged records are no changes.
    add(&gateway, definition("upm", &repository)).await;
    until_completed(&gateway, "upm", 1).await;
    assert_eq!((gateway.head().await, repository.first_pages().len()), (25, first_pages + 1));
    // The dialect of the harvest reads its quarantined records again, and its registry can be seeded.
    assert_eq!(gateway.ask("GET", "/sources/upm/registry", None).await.0, 200);
}

#[tokio::test]
async fn paused_harvest_waits_and_resumes_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let repository = ScriptedRepository::start(5).await;
    let lines = format!(
        "{ALLOW}[sources.configured]\ntransport = \"oai-pmh\"\ndialect = \"oai-pmh\"\nurl = \"{}\"\n",
        repository.url()
    );
    let mut gateway = start(folder.path(), &lines);
    until_completed(&gateway, "configured", 1).await;
    add(&gateway, json!({ "name": "made", "transport": "oai-pmh", "dialect": "oai-pmh", "url": repository.url() }))
        .await;
    until_completed(&gateway, "made", 1).await;
    for name in ["configured", "made"] {
        assert_eq!(gateway.ask("POST", &format!("/harvests/{name}/pause"), None).await.0, 204);
        assert_eq!(gateway.ask("POST", &format!("/harvests/{name}/run"), None).await.0, 202);
    }
    gateway.kill();
    let gateway = start(folder.path(), &lines);
    for name in ["configured", "made"] {
        let path = format!("/harvests/{name}");
        until("the harvest is paused", async || gateway.json(&path).await["state"] == "paused").await;
        assert_eq!(gateway.json(&path).await["runs"].as_array().unwrap().len(), 1);
        assert_eq!(gateway.ask("POST", &format!("{path}/resume"), None).await.0, 204);
        until_completed(&gateway, name, 2).await;
    }
}

#[tokio::test]
async fn paused_run_continues_with_the_page_after_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    let repository = ScriptedRepository::start(3000).await;
    repository.script().page_size = 1;
    let gateway = start(folder.path(), ALLOW);
    add(&gateway, definition("upm", &repository)).await;
    until("a page is on disk", async || gateway.head().await > 0).await;
    assert_eq!(gateway.ask("POST", "/harvests/upm/pause", None).await.0, 204);
    until("the harvest is paused", async || gateway.json("/harvests/upm").await["state"] == "paused").await;
    let paused = gateway.json("/harvests/upm").await;
    assert_eq!(paused["run"]["state"], "running", "{paused}");
    let pages = paused["run"]["pages"].as_u64().unwrap();
    assert_eq!(gateway.ask("POST", "/harvests/upm/resume", None).await.0, 204);
    let pages_now = async || gateway.json("/harvests/upm").await["run"]["pages"].as_u64().unwrap();
    until("the run continues", async || pages_now().await > pages).await;
    assert_eq!(gateway.json("/harvests/upm").await["runs"].as_array().unwrap().len(), 1);
    assert_eq!(repository.first_pages().len(), 1);
}

#[tokio::test]
async fn refused_operations_say_the_reason_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let repository = ScriptedRepository::start(1).await;
    let lines = format!(
        "[sources.configured]\ntransport = \"oai-pmh\"\ndialect = \"oai-pmh\"\nurl = \"{}\"\nmode = \"once\"\n",
        repository.url()
    );
    let gateway = start(folder.path(), &lines);
    let with = |key: &str, value: Value| {
        let mut definition = definition("made", &repository);
        definition["url"] = json!("https://repository.example.org/oai");
        definition[key] = value;
        definition
    };
    for (definition, status, expected) in [
        (with("url", json!(repository.url())), 422, "which is a loopback address"),
        (with("url", json!("https://user:hush@repository.example.org/")), 422, "it has a user or password"),
        (with("url", json!({ "file": "/etc/hostname" })), 422, "only environment variables"),
        (with("name", json!("configured")), 409, "is defined in the configuration file"),
        (with("name", json!("content-change")), 409, "is defined in the configuration file"),
        (with("name", json!("A name!")), 422, "The body is invalid"),
        (with("transport", json!("http")), 422, "there is no transport of a harvest"),
        (json!([]), 422, "The body is invalid"),
        (with("description", json!("x".repeat(100))), 422, "there is no setting"),
    ] {
        let (found, problem) = gateway.ask("POST", "/harvests", Some(definition)).await;
        let problem = problem.to_string();
        assert!(found == status && problem.contains(expected), "{found}: {problem}");
        assert!(!problem.contains("hush") && !problem.contains("stack"), "{problem}");
    }
    let (status, problem) = gateway.ask("DELETE", "/harvests/configured", None).await;
    assert_eq!((status, problem["type"].as_str()), (409, Some("urn:tidings:problem:conflict")), "{problem}");
    assert_eq!(gateway.json("/harvests").await["harvests"].as_array().unwrap().len(), 1);
    for path in ["/harvests/made/pause", "/harvests/made/resume", "/harvests/made/run"] {
        assert_eq!(gateway.ask("POST", path, None).await.0, 404);
    }
}

#[tokio::test]
async fn name_of_an_internal_host_is_refused_when_the_connection_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let repository = ScriptedRepository::start(1).await;
    // With a network in the list, a name is checked after its resolution.
    let gateway = start(folder.path(), "[delivery]\nallow = [\"10.0.0.0/8\"]\n");
    let mut definition = definition("upm", &repository);
    definition["url"] = json!(repository.url().replace("127.0.0.1", "localhost"));
    add(&gateway, definition).await;
    until("the run has failed", async || gateway.json("/harvests/upm").await["run"]["state"] == "failed").await;
    let harvest = gateway.json("/harvests/upm").await;
    assert!(harvest["run"]["reason"].as_str().unwrap().contains("list it in delivery.allow"), "{harvest}");
    assert!(repository.script().requests.is_empty());
}

#[tokio::test]
async fn commands_make_pause_resume_and_remove_a_harvest() {
    let folder = tempfile::tempdir().unwrap();
    let repository = ScriptedRepository::start(3).await;
    let gateway = start(folder.path(), ALLOW);
    let run = |arguments: &[&str]| {
        let output = command().arg("harvests").args(arguments).args(["--gateway", &gateway.url]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let url = format!("url={}", repository.url());
    let set = ["--set", "transport=oai-pmh", "--set", "dialect=oai-pmh", "--set", &url];
    let (code, errors) = run(&[&["add", "upm"][..], &set].concat());
    assert!(code == Some(0) && errors.contains("the harvest of upm is made"), "{errors}");
    until_completed(&gateway, "upm", 1).await;
    let (code, errors) = run(&[&["add", "upm"][..], &set].concat());
    assert!(code == Some(1) && errors.contains("There is a harvest of a source upm already"), "{errors}");
    for (action, done) in [("pause", "paused"), ("resume", "resumed"), ("remove", "removed")] {
        let (code, errors) = run(&[action, "upm"]);
        assert!(code == Some(0) && errors.contains(&format!("the harvest of upm is {done}")), "{errors}");
    }
    assert_eq!(gateway.json("/harvests").await["harvests"], json!([]));
}

#[tokio::test]
async fn command_waits_for_the_end_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let repository = ScriptedRepository::start(25).await;
    let gateway = start(folder.path(), ALLOW);
    add(&gateway, definition("upm", &repository)).await;
    until_completed(&gateway, "upm", 1).await;
    let wait = || {
        let arguments = ["harvests", "run", "upm", "--wait", "--gateway", &gateway.url];
        let output = command().args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    repository.put_now(&identifier(3), "Another title");
    let (code, errors) = wait();
    // The overlap of two runs has the newest record of the first one again.
    let expected = "the run is complete: 1 pages, 2 records, 1 changes";
    assert!(code == Some(0) && errors.contains(expected), "{errors}");
    assert_eq!(gateway.head().await, 26);
    repository.misbehave(&[Misbehaviour::Busy(403, 1000)]);
    let (code, errors) = wait();
    assert!(code == Some(1) && errors.contains("the run has failed: 0 pages") && errors.contains("403"), "{errors}");
}

#[tokio::test]
async fn ctrl_c_ends_the_wait_and_not_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let repository = ScriptedRepository::start(3000).await;
    {
        let mut script = repository.script();
        script.page_size = 1;
        script.misbehaviours = vec![Misbehaviour::Announces(3000)];
    }
    let gateway = start(folder.path(), ALLOW);
    add(&gateway, definition("upm", &repository)).await;
    until("the total is known", async || gateway.json("/harvests/upm").await["announced"] == 3000).await;
    let mut wait = command();
    wait.args(["harvests", "run", "upm", "--wait", "--gateway", &gateway.url]).stderr(std::process::Stdio::piped());
    let mut wait = wait.spawn().unwrap();
    let mut lines = std::io::BufReader::new(wait.stderr.take().unwrap()).lines();
    while !lines.next().unwrap().unwrap().contains("is requested") {}
    let id = wait.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let ended = wait.wait().unwrap();
    let said = lines.next().unwrap().unwrap();
    assert_eq!((ended.code(), said.contains("the run continues in the gateway")), (Some(130), true), "{said}");
    let pages = async || gateway.json("/harvests/upm").await["run"]["pages"].as_u64().unwrap();
    let at = pages().await;
    until("the run continues", async || pages().await > at).await;
}

#[tokio::test]
async fn harvest_made_at_one_node_runs_once_and_any_node_removes_it() {
    let repository = ScriptedRepository::start(15).await;
    let journal = SharedJournal::new(ALLOW);
    let (a, b) = (journal.node("a"), journal.node("b"));
    for name in ["one", "two", "three", "four"] {
        add(&a, definition(name, &repository)).await;
    }
    for name in ["one", "two", "three", "four"] {
        until_completed(&a, name, 1).await;
        until("the other node knows the harvest", async || {
            b.ask("GET", &format!("/harvests/{name}"), None).await.0 == 200
        })
        .await;
    }
    assert_eq!((a.head().await, repository.first_pages().len()), (15, 4));
    repository.put_now(&identifier(0), "Another title");
    assert_eq!(b.ask("POST", "/harvests/one/run", None).await.0, 202);
    until_completed(&b, "one", 2).await;
    // Whichever node has the duties, each node can remove a harvest, and none writes of it again.
    assert_eq!(a.ask("DELETE", "/harvests/one", None).await.0, 204);
    assert_eq!(b.ask("DELETE", "/harvests/two", None).await.0, 204);
    assert_eq!(a.ask("POST", "/harvests/three/pause", None).await.0, 204);
    assert_eq!(b.ask("POST", "/harvests/four/pause", None).await.0, 204);
    for node in [&a, &b] {
        until("the removal is known", async || {
            let harvests = node.json("/harvests").await;
            let names: Vec<_> = harvests["harvests"].as_array().unwrap().iter().map(|one| &one["source"]).collect();
            names == ["four", "three"]
        })
        .await;
    }
    assert_eq!(journal.query("SELECT count(*) FROM harvests"), "2");
    assert_eq!(journal.query("SELECT count(*) FROM harvest_runs WHERE source IN ('one', 'two')"), "0");
    for name in ["three", "four"] {
        until("the holder of the duty has paused the harvest", async || {
            let state = async |node: &Gateway| node.json(&format!("/harvests/{name}")).await["state"].clone();
            state(&a).await == "paused" || state(&b).await == "paused"
        })
        .await;
    }
}
