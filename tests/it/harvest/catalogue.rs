//! What a repository offers and has: its sets and metadata formats, and the numbers of its records.

use serde_json::Value;

use crate::support::{
    command_line::{CommandResult, command, ended},
    gateway::Gateway,
    harvest_fixture::configuration,
    scripted_repository::{Misbehaviour, ScriptedRepository, identifier},
};

async fn run(arguments: &[&str]) -> CommandResult {
    let child = command(&[&["harvests"], arguments].concat()).spawn().unwrap();
    tokio::task::spawn_blocking(|| ended(child)).await.unwrap()
}

#[tokio::test]
async fn sets_are_listed_page_after_page() {
    let repository = ScriptedRepository::start(0).await;
    let url = repository.url();
    let (code, stdout, stderr) = run(&["sets", &url]).await;
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (0, "the repository has no sets\n", ""));
    repository.script().sets = (0..25).map(|number| format!("set{number}")).collect();
    // A passing failure is no failure.
    repository.misbehave(&[Misbehaviour::UnknownErrors(1)]);
    let (code, stdout, stderr) = run(&["sets", &url]).await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[25]), (26, "SET    NAME", "set24  Name of set24"));
    let (_, stdout, _) = run(&["sets", &url, "--json"]).await;
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(answer["sets"][24], serde_json::json!({ "spec": "set24", "name": "Name of set24" }));
    repository.misbehave(&[Misbehaviour::RepeatedPage]);
    let (code, stdout, stderr) = run(&["sets", &url]).await;
    let expected = format!("tidings: {url}: the list of sets does not end: a page leads to itself\n");
    assert_eq!((code, stdout.as_str(), stderr), (1, "", expected));
}

#[tokio::test]
async fn formats_of_a_source_or_a_url_are_listed() {
    let repository = ScriptedRepository::start(0).await;
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), &repository.url(), "");
    let expected = "\
PREFIX  NAMESPACE                                    SCHEMA
oai_dc  http://www.openarchives.org/OAI/2.0/oai_dc/  http://www.openarchives.org/OAI/2.0/oai_dc.xsd
";
    for arguments in [&["formats", "scripted", "--config", &config][..], &["formats", &repository.url()]] {
        let (code, stdout, stderr) = run(arguments).await;
        assert_eq!((code, stdout.as_str(), stderr.as_str()), (0, expected, ""));
    }
}

#[tokio::test]
async fn errors_of_a_catalogue_name_the_place_and_no_password() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), "http://h/oai", "");
    for (place, code, expected) in [
        (
            "other",
            2,
            "other is no source with the transport oai-pmh; give its name in the configuration, or the base URL",
        ),
        ("ftp://u:hush-hush@h/oai", 2, "ftp://h/oai: it is not the base URL of a repository: "),
        ("http://u:hush-hush@h/oai?verb=Identify", 2, "http://h/oai: it has the parameter verb; give the base URL"),
        ("http://u:hush-hush@127.0.0.1:9/oai", 1, "http://127.0.0.1:9/oai: "),
    ] {
        let (found, stdout, stderr) = run(&["sets", place, "--config", &config]).await;
        assert_eq!((found, stdout.as_str()), (code, ""), "{stderr}");
        assert!(stderr.contains(expected) && !stderr.contains("hush-hush"), "{stderr}");
    }
}

#[tokio::test]
async fn records_are_counted_by_set() {
    let repository = ScriptedRepository::start(30).await;
    for number in 0..30 {
        let sets = if number < 20 { vec!["a".to_owned()] } else { vec!["a".to_owned(), "b".to_owned()] };
        repository.script().records.get_mut(&identifier(number)).unwrap().sets = sets;
    }
    repository.delete_now(&identifier(3));
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), &repository.url(), "sets = [\"a\", \"b\"]");
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    let records = async || gateway.json("/harvests/scripted/records").await;
    let (code, _, stderr) = run(&["run", "scripted", "--wait", "--gateway", &gateway.url]).await;
    assert_eq!(code, 0, "{stderr}");
    let sets = serde_json::json!([
        { "set": "a", "live": 29, "deleted": 1 },
        { "set": "b", "live": 10, "deleted": 0 },
    ]);
    assert_eq!(records().await, serde_json::json!({ "live": 29, "waiting": 0, "sets": sets }));
    let (code, stdout, _) = run(&["records", "scripted", "--gateway", &gateway.url]).await;
    let expected = "\
SET    LIVE  DELETED  WAITING
a      29    1
b      10    0
(all)  29             0
";
    assert_eq!((code, stdout.as_str()), (0, expected));
    let (code, _, stderr) = run(&["records", "other", "--gateway", &gateway.url]).await;
    assert!(code == 1 && stderr.contains("here is no harvest of a source other"), "{stderr}");
}
