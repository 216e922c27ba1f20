//! Pages that are written in parts.

use crate::support::{
    gateway::{Gateway, PATIENCE},
    harvest_fixture::{HarvestFixture, configuration},
    nodes_fixture::until,
    scripted_repository::ScriptedRepository,
};
use tidings::harvest::oai_pmh::ListVerb;

#[tokio::test]
async fn kill_within_a_page_repeats_the_page_and_no_change() {
    const RECORDS: usize = 5000;
    let repository = ScriptedRepository::start(RECORDS).await;
    repository.script().page_size = RECORDS;
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), &repository.url(), "");
    let mut gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    let began = std::time::Instant::now();
    let head = loop {
        match gateway.head().await {
            0 => assert!(began.elapsed() < PATIENCE, "no part is on disk"),
            head => break head,
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    };
    gateway.kill();
    assert!(head < RECORDS as u64, "the page is one transaction");
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    until("the run is complete", async || gateway.json("/harvests/scripted").await["run"]["state"] == "completed")
        .await;
    let run = gateway.json("/harvests/scripted").await["run"].clone();
    assert_eq!(
        (&run["pages"], &run["records"], &run["changes"]),
        (&1.into(), &RECORDS.into(), &RECORDS.into()),
        "{run}"
    );
    assert_eq!(gateway.head().await, RECORDS as u64);
    assert_eq!(repository.first_pages().len(), 2);
    assert!(gateway.stop().success());
}

#[tokio::test]
async fn large_records_of_a_page_of_identifiers_are_written_meanwhile() {
    let mut fixture = HarvestFixture::start(0).await;
    for number in 0..12 {
        fixture.repository.put(&format!("oai:large:{number:02}"), &"x".repeat(700_000), number);
    }
    fixture.settings.list = ListVerb::Identifiers;
    let run = fixture.complete().await;
    fixture.assert_equal().await;
    assert_eq!((run.counts.records, run.counts.changes), (12, 12));
    let identifier = |request: &std::collections::BTreeMap<String, String>| request.get("identifier").cloned();
    let requested: Vec<_> = fixture.repository.script().requests.iter().filter_map(identifier).collect();
    assert_eq!(requested.len(), 12, "each record is requested once: {requested:?}");
    assert!(fixture.repository.first_pages().len() > 1, "the page is written in one piece");
}
