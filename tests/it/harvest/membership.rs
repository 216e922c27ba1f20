//! Records in several sets, records that cannot be read, and records of former settings.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use chrono::{SecondsFormat, TimeDelta, Utc};
use tidings::{
    harvest::{full_list_request, oai_pmh::OaiPmhSettings, retirement_request},
    journal::harvest::{HarvestRun, RunState, SourcePosition},
};

use crate::support::{
    harvest_fixture::{run_once, settings, source},
    http_receiver::{Receiver, Reply},
    journal_fixture::OpenJournal,
};

/// Name of the list that incremental runs get, if a test writes it.
pub(super) const RECENT: &str = "recent";

/// Repository whose lists a test writes, by set; the whole repository is the set without a name.
pub(super) struct Lists {
    lists: Arc<Mutex<BTreeMap<String, String>>>,
    single: Arc<Mutex<BTreeMap<String, String>>>,
    pub(super) journal: OpenJournal,
    pub(super) settings: OaiPmhSettings,
    server: Receiver,
    _folder: tempfile::TempDir,
}

pub(super) fn ago(hours: i64) -> String {
    (Utc::now() - TimeDelta::hours(hours)).to_rfc3339_opts(SecondsFormat::Secs, true)
}

pub(super) fn live(identifier: &str, date: &str, title: &str) -> String {
    format!(
        "<record><header><identifier>{identifier}</identifier><datestamp>{date}</datestamp></header>\
         <metadata><t>{title}</t></metadata></record>"
    )
}

/// A record whose metadata has two roots.
pub(super) fn broken(identifier: &str, date: &str) -> String {
    live(identifier, date, "x").replace("</t>", "</t><t/>")
}

fn tombstone(identifier: &str, date: &str) -> String {
    format!(
        "<record><header status=\"deleted\"><identifier>{identifier}</identifier><datestamp>{date}</datestamp></header></record>"
    )
}

impl Lists {
    pub(super) async fn start(deleted: &'static str, sets: &[&str]) -> Self {
        let lists = Arc::<Mutex<BTreeMap<String, String>>>::default();
        let single = Arc::<Mutex<BTreeMap<String, String>>>::default();
        let server = Receiver::start({
            let (lists, single) = (Arc::clone(&lists), Arc::clone(&single));
            move |_, request| {
                let url = url::Url::parse(&format!("http://h{}", request.path)).unwrap();
                let query: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
                let argument = |name: &str| query.get(name).cloned().unwrap_or_default();
                let none = |code: &str| format!("<error code=\"{code}\">none</error>");
                let content = match argument("verb").as_str() {
                    "Identify" => format!(
                        "<Identify><baseURL>http://h/oai</baseURL><earliestDatestamp>2001-01-01T00:00:00Z</earliestDatestamp>\
                         <deletedRecord>{deleted}</deletedRecord><granularity>YYYY-MM-DDThh:mm:ssZ</granularity></Identify>"
                    ),
                    "ListSets" => "<ListSets><set><setSpec>economics</setSpec></set></ListSets>".to_owned(),
                    "GetRecord" => match single.lock().unwrap().get(&argument("identifier")) {
                        Some(record) => format!("<GetRecord>{record}</GetRecord>"),
                        None => none("idDoesNotExist"),
                    },
                    _ => {
                        let lists = lists.lock().unwrap();
                        let key = format!("{}{}", argument("set"), argument("resumptionToken"));
                        let recent = lists.get(RECENT).filter(|_| query.contains_key("from"));
                        match recent.or_else(|| lists.get(&key)) {
                            Some(records) => format!("<ListRecords>{records}</ListRecords>"),
                            None => none("noRecordsMatch"),
                        }
                    }
                };
                let body = format!(
                    "<OAI-PMH xmlns=\"http://www.openarchives.org/OAI/2.0/\"><responseDate>{}</responseDate>{content}</OAI-PMH>",
                    ago(0)
                );
                Reply::Answer(200, vec![("content-type", "text/xml".to_owned())], body)
            }
        })
        .await;
        let folder = tempfile::tempdir().unwrap();
        let journal = OpenJournal::at(folder.path());
        let mut settings = settings(&format!("http://{}/oai", server.address));
        settings.sets = sets.iter().map(|set| (*set).to_owned()).collect();
        Self { lists, single, journal, settings, server, _folder: folder }
    }

    pub(super) fn list(&self, set: &str, records: &[String]) {
        self.lists.lock().unwrap().insert(set.to_owned(), records.concat());
    }

    pub(super) async fn run(&self) -> HarvestRun {
        run_once(&self.journal, &self.settings, 1 << 20, &Arc::default()).await
    }

    pub(super) async fn complete(&self) -> HarvestRun {
        let run = self.run().await;
        assert_eq!(run.state, RunState::Completed, "{run:?}");
        run
    }

    /// Makes the next run compare the numbers of records.
    async fn a_day_later(&self) {
        let stored = self.journal.journal.harvest(source()).await.unwrap().unwrap().position;
        let mut position: serde_json::Value = serde_json::from_str(&stored).unwrap();
        position["counted"] = "2026-01-01T00:00:00.000Z".into();
        let position = SourcePosition { source: source(), position: position.to_string().into() };
        self.journal.journal.append_positioned(Vec::new(), position).await.unwrap();
    }

    /// Returns the identifiers at the ends of the URIs of the live objects.
    pub(super) async fn live(&self) -> Vec<String> {
        let objects = self.journal.journal.registry(None, 1000).await.unwrap();
        let live = objects.into_iter().filter(|(_, state)| state.live_items().next().is_some());
        live.map(|(uri, _)| uri.as_str().split("identifier=").last().unwrap().to_owned()).collect()
    }
}

#[tokio::test]
async fn a_record_lives_while_any_set_has_it() {
    for deleted in ["persistent", "transient"] {
        for sets in [["a", "b"], ["b", "a"]] {
            let repository = Lists::start(deleted, &sets).await;
            for set in sets {
                repository.list(set, &[live("r", &ago(50), "t")]);
            }
            assert_eq!(repository.complete().await.counts.changes, 1);
            repository.list("b", &[tombstone("r", &ago(0))]);
            assert_eq!(repository.complete().await.counts.changes, 0, "{deleted} {sets:?}");
            assert_eq!(repository.live().await, ["r"]);
            // It moves to the other set.
            repository.list("a", &[tombstone("r", &ago(0))]);
            repository.list("b", &[live("r", &ago(0), "t")]);
            assert_eq!(repository.complete().await.counts.changes, 0, "{deleted} {sets:?}");
            repository.list("b", &[tombstone("r", &ago(0))]);
            assert_eq!(repository.complete().await.counts.changes, 1);
            assert!(repository.live().await.is_empty());
            assert_eq!(repository.complete().await.counts.changes, 0);
        }
    }
}

#[tokio::test]
async fn an_older_tombstone_on_a_later_page_deletes_nothing() {
    let repository = Lists::start("persistent", &[]).await;
    repository.list("", &[live("r", &ago(1), "t"), "<resumptionToken>2</resumptionToken>".to_owned()]);
    repository.list("2", &[tombstone("r", &ago(50))]);
    assert_eq!(repository.complete().await.counts.changes, 1);
    assert_eq!(repository.live().await, ["r"]);
}

#[tokio::test]
async fn unreadable_records_are_requested_until_they_can_be_read() {
    let repository = Lists::start("persistent", &[]).await;
    repository.list("", &[live("r1", &ago(90), "t")]);
    repository.complete().await;
    repository.list("", &[broken("r2", &ago(30)), broken("r3", &ago(10))]);
    let run = repository.run().await;
    assert_eq!((run.state, run.counts.quarantined), (RunState::Failed, 2), "nothing of it can be read");
    // They stay unreadable.
    let still = [live("r4", &ago(5), "t"), broken("r3", &ago(10))];
    repository.list("", &still);
    repository.single.lock().unwrap().insert("r2".to_owned(), broken("r2", &ago(30)));
    let run = repository.complete().await;
    assert!(run.reason.unwrap().as_str().contains("2 records cannot be read"));
    let quarantined = repository.journal.journal.quarantined_before(None, None, 100).await.unwrap();
    assert_eq!(quarantined.len(), 2, "each of them is there once");
    // They are mended without new datestamps.
    repository.list("", &[live("r4", &ago(5), "t")]);
    for record in ["r2", "r3"] {
        repository.single.lock().unwrap().insert(record.to_owned(), live(record, &ago(30), "t"));
    }
    assert_eq!(repository.complete().await.counts.changes, 2);
    assert_eq!(repository.live().await, ["r1", "r2", "r3", "r4"]);
    assert_eq!(repository.complete().await.reason, None);
}

#[tokio::test]
async fn mended_record_counts_whatever_sets_its_header_names() {
    let in_other_set = |record: String| record.replace("</header>", "<setSpec>a</setSpec></header>");
    let repository = Lists::start("persistent", &["A"]).await;
    repository.list("A", &[in_other_set(live("r1", &ago(90), "t"))]);
    repository.complete().await;
    repository.list("A", &[in_other_set(live("r3", &ago(5), "t")), in_other_set(broken("r2", &ago(30)))]);
    repository.complete().await;
    // It is mended without a new datestamp.
    repository.list("A", &[in_other_set(live("r3", &ago(5), "t"))]);
    repository.single.lock().unwrap().insert("r2".to_owned(), in_other_set(live("r2", &ago(30), "t")));
    repository.complete().await;
    assert_eq!(repository.live().await, ["r1", "r2", "r3"]);
}

#[tokio::test]
async fn an_unknown_set_is_remarked() {
    let repository = Lists::start("no", &["econ"]).await;
    let reason = repository.complete().await.reason.unwrap();
    assert_eq!(reason.as_str(), "the repository has no set econ; it has economics");
}

#[tokio::test]
async fn records_of_former_settings_are_told_and_retired() {
    let mut repository = Lists::start("persistent", &[]).await;
    repository.list("", &[live("r1", &ago(50), "t"), live("r2", &ago(50), "t")]);
    repository.complete().await;
    let url = format!("http://{}/oai?db=maps", repository.server.address);
    repository.settings.url = settings(&url).url;
    let run = repository.complete().await;
    let reason = run.reason.unwrap();
    assert!(reason.as_str().starts_with("2 records of former settings (oai_dc of http://"), "{reason:?}");
    assert_eq!(repository.live().await.len(), 4, "the query is part of the URIs");
    assert!(repository.complete().await.reason.unwrap().as_str().contains("tidings harvests retire scripted"));
    repository.journal.journal.request_harvest(retirement_request(&source())).await.unwrap();
    let run = repository.complete().await;
    assert_eq!((run.counts.changes, run.reason.unwrap().as_str()), (2, "2 records of former settings are deleted"));
    let objects = repository.journal.journal.registry(None, 1000).await.unwrap();
    let live = objects.into_iter().filter(|(_, state)| state.live_items().next().is_some());
    assert!(live.into_iter().all(|(uri, _)| uri.as_str().contains("/oai?db=maps&verb=GetRecord")));
    assert_eq!(repository.complete().await.reason, None);
}

#[tokio::test]
async fn a_repository_that_has_moved_keeps_its_uris() {
    let mut repository = Lists::start("persistent", &[]).await;
    repository.list("", &[live("r1", &ago(50), "t")]);
    repository.complete().await;
    let former = repository.settings.url.expose().to_string();
    repository.settings.url = settings(&format!("http://{}/new", repository.server.address)).url;
    repository.settings.formerly = Some(former);
    repository.list("", &[live("r1", &ago(0), "other"), live("r2", &ago(0), "t")]);
    assert_eq!(repository.complete().await.counts.changes, 2);
    let objects = repository.journal.journal.registry(None, 10).await.unwrap();
    assert_eq!(objects.len(), 2);
    let (uri, state) = &objects[0];
    assert!(uri.as_str().contains("/oai?verb="));
    let content = state.content(uri).unwrap();
    assert!(content.json().contains("/new?verb=GetRecord"), "the content is where the repository is");
}

#[tokio::test]
async fn backdated_records_are_found_by_their_number_once_a_day() {
    let repository = Lists::start("persistent", &[]).await;
    repository.list("", &[live("r1", &ago(50), "t")]);
    repository.complete().await;
    repository.list("", &[live("r1", &ago(50), "t"), live("r2", &ago(5000), "t"), tombstone("r3", &ago(5000))]);
    repository.list(RECENT, &[]);
    assert_eq!(repository.complete().await.counts.changes, 0);
    repository.a_day_later().await;
    let run = repository.complete().await;
    let reason = run.reason.unwrap();
    assert_eq!(reason.as_str(), "the repository announces 3 records, and the journal knows 1; all records are listed");
    assert_eq!(repository.live().await, ["r1", "r2"]);
    assert_eq!(repository.complete().await.reason, None);
}

#[tokio::test]
async fn the_number_of_records_is_compared_for_each_set() {
    let repository = Lists::start("persistent", &["a", "b"]).await;
    repository.list("a", &[live("r1", &ago(50), "t"), tombstone("r2", &ago(50))]);
    repository.list("b", &[live("r1", &ago(50), "t"), live("r3", &ago(50), "t")]);
    repository.complete().await;
    repository.list(RECENT, &[]);
    repository.a_day_later().await;
    assert_eq!(repository.complete().await.reason, None);
    repository.list("b", &[live("r1", &ago(50), "t"), live("r3", &ago(50), "t"), live("r4", &ago(5000), "t")]);
    repository.a_day_later().await;
    let reason = repository.complete().await.reason.unwrap();
    let expected = "the repository announces 3 records of the set b, and the journal knows 2; all records are listed";
    assert_eq!(reason.as_str(), expected);
    assert_eq!(repository.live().await, ["r1", "r3", "r4"]);
    repository.a_day_later().await;
    assert_eq!(repository.complete().await.reason, None);
}

#[tokio::test]
async fn all_records_are_listed_on_request() {
    let repository = Lists::start("persistent", &[]).await;
    repository.list("", &[live("r1", &ago(50), "t")]);
    repository.complete().await;
    repository.list("", &[live("r1", &ago(50), "other")]);
    repository.list(RECENT, &[]);
    assert_eq!(repository.complete().await.counts.changes, 0, "the datestamp is the same");
    repository.journal.journal.request_harvest(full_list_request(&source())).await.unwrap();
    assert_eq!(repository.complete().await.counts.changes, 1);
    assert_eq!(repository.complete().await.counts.records, 0, "once");
}
