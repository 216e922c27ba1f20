//! Repositories that are harvested or looked up.

use std::path::Path;

use rusqlite::Connection;

use super::{ObservedGateway, until};
use crate::{
    lookups::{
        failures::{SOON, modified, repository, url},
        fedora3::repository_config,
    },
    support::{
        breakable_proxy::{BreakableProxy, Link},
        fake_fedora3::PATH,
        fake_repository::Behaviour,
        journal_fixture::journal_file,
        scripted_repository::{Misbehaviour, ScriptedRepository},
    },
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_repository_is_a_problem_and_overdue_until_a_run_is_complete() {
    let repository = ScriptedRepository::start(3).await;
    let address: reqwest::Url = repository.url().parse().unwrap();
    let proxy = BreakableProxy::start(address.port().unwrap());
    proxy.set_link(Link::Refusing);
    let observed = ObservedGateway::start(&format!(
        "[sources.upm]\ntransport = \"oai-pmh\"\ndialect = \"oai-pmh\"\nurl = \"http://127.0.0.1:{}{}\"\nevery = \"1h\"\n\
         overdue_after = \"1s\"\n",
        proxy.port,
        address.path()
    ));
    observed.shows("harvest-fails", "source/upm", "").await;
    observed.shows("harvest-overdue", "source/upm", "").await;
    proxy.set_link(Link::Open);
    observed.ends("harvest-fails", "source/upm").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookups_that_ask_nobody_or_get_no_answer_are_problems() {
    let repository = repository().await;
    let upstream: reqwest::Url = url(&repository).parse().unwrap();
    let proxy = BreakableProxy::start(upstream.port().unwrap());
    let through = format!("http://127.0.0.1:{}{PATH}", proxy.port);
    let config = repository_config("best-effort", &through, SOON);
    let observed = ObservedGateway::start(&config);
    let post = async |message: String| observed.gateway.post("fedora3", "application/atom+xml", message).await;
    let foreign = modified(1).replace(crate::support::fedora3_messages::BASE, "http://other.example/fedora");
    assert_eq!(post(foreign).await.0, 201);
    observed.shows("lookup-foreign", "source/fedora3", "other.example").await;
    assert_eq!(post(modified(2)).await.0, 201);
    observed.ends("lookup-foreign", "source/fedora3").await;
    proxy.set_link(Link::Refusing);
    // After five failures the gateway asks no more for a while.
    for second in 3..10 {
        assert_eq!(post(modified(second)).await.0, 201);
    }
    observed.shows("lookup-unanswered", "source/fedora3", "").await;
    proxy.set_link(Link::Open);
    observed.ends("lookup-unanswered", "source/fedora3").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_without_the_facts_of_a_repository_that_answers_nonsense_are_a_problem() {
    let repository = repository().await;
    let observed = ObservedGateway::start(&repository_config("best-effort", &url(&repository), SOON));
    repository.set_behaviour(Behaviour::Nonsense);
    assert_eq!(observed.gateway.post("fedora3", "application/atom+xml", modified(1)).await.0, 201);
    observed.shows("lookup-incomplete", "source/fedora3", "1 change, ").await;
    repository.set_behaviour(Behaviour::Normal);
    observed.ends("lookup-incomplete", "source/fedora3").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn differences_that_an_audit_finds_are_a_problem_until_they_are_corrected() {
    let repository = ScriptedRepository::start(30).await;
    let observed = ObservedGateway::start(&harvest(&repository));
    until("the first run is complete", async || is_complete(&observed).await).await;
    let lost = repository.script().records.keys().next().unwrap().clone();
    repository.lose(&lost);
    let audit = async |settings| assert_eq!(observed.gateway.ask("POST", "/sources/upm/audit", settings).await.0, 202);
    audit(None).await;
    observed.shows("audit-differs", "source/upm", "0 missing, 0 different and 1 extra items").await;
    audit(Some(serde_json::json!({ "restart": true, "repair": true }))).await;
    observed.ends("audit-differs", "source/upm").await;
}

/// Returns the configuration of a harvest.
fn harvest(repository: &ScriptedRepository) -> String {
    format!(
        "[sources.upm]\ntransport = \"oai-pmh\"\ndialect = \"oai-pmh\"\nurl = \"{}\"\nevery = \"1h\"\n",
        repository.url()
    )
}

/// Returns something when the last run of the harvest is complete.
async fn is_complete(observed: &ObservedGateway) -> Option<()> {
    let harvests = observed.gateway.json("/harvests").await;
    (harvests["harvests"][0]["run"]["state"] == "completed").then_some(())
}

/// Lets a harvest compare its number of records with the repository in its next run, as if a day had passed.
fn pass_a_day(journal: &Path) {
    let sql = "UPDATE harvests SET position = json_set(position, '$.counted', '2026-01-01T00:00:00.000Z')";
    assert_eq!(Connection::open(journal).unwrap().execute(sql, []).unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_that_differ_from_the_repository_are_a_problem() {
    crate::support::needs_sqlite();
    let repository = ScriptedRepository::start(30).await;
    let lines = harvest(&repository);
    let data = tempfile::tempdir().unwrap();
    let observed = ObservedGateway::start_in(tempfile::tempdir().unwrap(), data.path(), &lines);
    until("the first run is complete", async || is_complete(&observed).await).await;
    assert!(observed.gateway.stop().success());
    pass_a_day(&journal_file(data.path()));
    repository.misbehave(&[Misbehaviour::Announces(33)]);
    let observed = ObservedGateway::start_in(tempfile::tempdir().unwrap(), data.path(), &lines);
    let run = format!("{}/harvests/upm/run", observed.gateway.url);
    let request = async || assert!(observed.gateway.http.post(&run).send().await.unwrap().status().is_success());
    request().await;
    observed.shows("count-differs", "source/upm", "by 3").await;
    // The complete list has changed nothing, so the next run compares again.
    repository.misbehave(&[]);
    request().await;
    observed.ends("count-differs", "source/upm").await;
}
