//! Contract tests of `Store` about jobs that archive datasets, and about results, for every store.

use serde_json::{Value, json};
use tidings::{
    journal::{
        harvest::{HarvestWrite, SourcePosition},
        ingest::{IngestJob, JobId, JobSelection, JobState},
        store::{NewChange, Store, StoreLimits, WriteBatch},
    },
    model::{JsonDocument, Report, Seq, SourceName, Timestamp, Uri},
};

use crate::support::tested_store::{STORES, change, empty_batch, every_store, object, write};

fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis).unwrap()
}

fn source() -> SourceName {
    SourceName::parse("s").unwrap()
}

fn job(dataset: &str, state: JobState, due: Option<i64>) -> IngestJob {
    IngestJob {
        id: JobId::mint(),
        source: source(),
        dataset: Uri::parse(dataset).unwrap(),
        host: dataset.split('/').nth(2).unwrap().to_owned(),
        request: JsonDocument::new(&json!({ "base_url": dataset })).unwrap(),
        state,
        due: due.map(time),
        attempts: 2,
        status: Some("timeout".to_owned()),
        message: None,
        requested: time(3),
        updated: time(4),
    }
}

fn write_jobs(store: &dyn Store, jobs: Vec<IngestJob>) {
    let positions = vec![SourcePosition { source: source(), position: "1".into() }];
    write(store, &WriteBatch { positions, jobs, ..empty_batch() }).unwrap();
}

#[test]
fn ingest_jobs_are_selected_by_time_state_and_identifier() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        let later = job("http://h/later", JobState::Waiting, Some(20));
        let soon = job("http://h/soon", JobState::Waiting, Some(10));
        let ended = job("http://h/ended", JobState::Failed, None);
        write_jobs(&*store, vec![later.clone(), soon.clone(), ended.clone()]);
        let select = |selection, limit| store.ingest_jobs(&selection, limit).unwrap();
        assert_eq!(select(JobSelection::Due(source(), time(19)), 9), std::slice::from_ref(&soon));
        assert_eq!(select(JobSelection::Due(source(), time(20)), 9), [soon.clone(), later.clone()]);
        assert_eq!(select(JobSelection::Due(source(), time(20)), 1), std::slice::from_ref(&soon));
        assert_eq!(store.next_ingest(&source()).unwrap(), Some(time(10)));
        let other = SourceName::parse("t").unwrap();
        assert_eq!(select(JobSelection::Due(other.clone(), time(20)), 9), []);
        assert_eq!(store.next_ingest(&other).unwrap(), None);
        assert_eq!(select(JobSelection::InState(source(), JobState::Failed), 9), std::slice::from_ref(&ended));
        assert_eq!(select(JobSelection::Some(vec![ended.id, JobId::mint()]), 9), std::slice::from_ref(&ended));
        let all = |before, state, limit| select(JobSelection::All { before, state }, limit);
        assert_eq!(all(None, None, 2), [ended.clone(), soon.clone()]);
        assert_eq!(all(Some(soon.id), None, 2), std::slice::from_ref(&later));
        assert_eq!(all(None, Some(JobState::Waiting), 9), [soon.clone(), later]);
        // A repeated request has the identifier of the first one.
        let again = IngestJob { attempts: 0, status: None, ..job("http://h/soon", JobState::Waiting, Some(5)) };
        write_jobs(&*store, vec![again.clone()]);
        assert_eq!(select(JobSelection::Some(vec![soon.id]), 1), [IngestJob { id: soon.id, ..again }]);
        store.write_harvest(&source(), &HarvestWrite::Remove).unwrap();
        assert_eq!(all(None, None, 9), []);
    });
}

/// The number is above that of the jobs of a page, and above each limit that a list of jobs in memory could have.
#[test]
fn due_ingest_jobs_of_one_host_do_not_hide_those_of_others() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        let many = (0..20_000).map(|number| job(&format!("http://large/{number}"), JobState::Waiting, Some(1)));
        let many: Vec<_> = many.collect();
        many.chunks(1000).for_each(|jobs| write_jobs(&*store, jobs.to_vec()));
        let first = job("http://large/first", JobState::Running, Some(0));
        let other = job("http://small/1", JobState::Waiting, Some(5));
        let later = job("http://small/2", JobState::Waiting, Some(6));
        let future = job("http://future/1", JobState::Waiting, Some(100));
        let ended = job("http://ended/1", JobState::Failed, None);
        let foreign =
            IngestJob { source: SourceName::parse("t").unwrap(), ..job("http://a/1", JobState::Waiting, Some(0)) };
        write_jobs(&*store, vec![first.clone(), other.clone(), later, future, ended, foreign]);
        let select = |limit| store.ingest_jobs(&JobSelection::DueByHost(source(), time(50)), limit).unwrap();
        assert_eq!(select(10), [first.clone(), other]);
        assert_eq!(select(1), [first]);
    });
}

/// Jobs that are archived or cancelled are not counted, and those that have failed long ago are told apart.
#[test]
fn ingest_jobs_are_counted_by_source_and_state() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        let of = |name: &str, dataset: u32, state, updated| IngestJob {
            source: SourceName::parse(name).unwrap(),
            updated: time(updated),
            ..job(&format!("http://h/{name}/{dataset}"), state, None)
        };
        let newest = of("s", 2, JobState::Failed, 20);
        let jobs = vec![
            of("s", 1, JobState::Failed, 10),
            newest.clone(),
            of("s", 3, JobState::Failed, 15),
            of("s", 4, JobState::Archived, 30),
            of("s", 5, JobState::Cancelled, 30),
            of("s", 6, JobState::Waiting, 9),
            of("t", 1, JobState::Blocked, 15),
        ];
        write_jobs(&*store, jobs);
        let mut counts = store.ingest_counts(time(15)).unwrap();
        counts.sort_by_key(|count| (count.source.to_string(), count.state.name()));
        let counts: Vec<_> =
            counts.iter().map(|count| (count.source.as_str(), count.state, count.jobs, count.recent)).collect();
        assert_eq!(
            counts,
            [("s", JobState::Failed, 3, 2), ("s", JobState::Waiting, 1, 0), ("t", JobState::Blocked, 1, 1)]
        );
        let select = |state| store.ingest_jobs(&JobSelection::InState(source(), state), 1).unwrap();
        assert_eq!(select(JobState::Failed), [newest]);
        assert_eq!(select(JobState::Blocked), []);
    });
}

#[test]
fn ingest_job_is_cancelled_unless_it_has_ended() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        let running = job("http://h/running", JobState::Running, Some(1));
        let watched = job("http://h/watched", JobState::Archived, Some(1000));
        let ended = job("http://h/ended", JobState::Failed, None);
        write_jobs(&*store, vec![running.clone(), watched.clone(), ended.clone()]);
        for job in [&running, &watched, &ended] {
            store.write_harvest(&source(), &HarvestWrite::CancelJob(job.id, time(50))).unwrap();
        }
        let state = |job: &IngestJob| {
            let found = store.ingest_jobs(&JobSelection::Some(vec![job.id]), 1).unwrap().remove(0);
            (found.state, found.due)
        };
        assert_eq!(state(&running), (JobState::Cancelling, Some(time(0))));
        assert_eq!(state(&watched), (JobState::Cancelling, Some(time(0))));
        // It has failed, and has nothing left to end.
        assert_eq!(state(&ended), (JobState::Cancelled, None));
        // The harvest begins a job that was cancelled in the same moment: it stays cancelled. An end counts.
        write_jobs(&*store, vec![running.clone()]);
        assert_eq!(state(&running).0, JobState::Cancelling);
        write_jobs(&*store, vec![IngestJob { state: JobState::Archived, due: None, ..running.clone() }]);
        assert_eq!(state(&running), (JobState::Archived, None));
    });
}

#[test]
fn ingest_job_of_an_archived_dataset_is_repeated_alone() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        let archived = job("http://h/archived", JobState::Archived, None);
        let watched = job("http://h/watched", JobState::Archived, Some(1000));
        let waiting = job("http://h/waiting", JobState::Waiting, Some(1000));
        let failed = job("http://h/failed", JobState::Failed, None);
        let jobs = [archived, watched, waiting, failed];
        write_jobs(&*store, jobs.to_vec());
        let due = jobs.each_ref().map(|job| {
            store.write_harvest(&source(), &HarvestWrite::RepeatJob(job.id, time(50))).unwrap();
            let found = store.ingest_jobs(&JobSelection::Some(vec![job.id]), 1).unwrap().remove(0);
            assert_eq!(found.state, job.state);
            found.due
        });
        assert_eq!(due, [Some(time(50)), Some(time(50)), Some(time(1000)), None]);
    });
}

/// Returns a change with a report.
fn reported(seq: u64, report: &Value) -> NewChange {
    let mut new = change(Seq(seq), seq);
    let document = JsonDocument::new(report).unwrap();
    new.change.modification.report = Some(Report::Result(document));
    new.json = serde_json::to_vec(&new.change).unwrap().into();
    new
}

#[test]
fn result_of_an_object_is_the_newest_one_and_ends_with_a_purge() {
    for store in STORES {
        let folder = tempfile::tempdir().unwrap();
        let open = (store.open)(folder.path(), StoreLimits::default());
        let result = |hit: bool| {
            json!({
                "hit": hit, "status": "success", "platform_name": "zenodo\0", "total_size": 49_095_370_137_u64,
                "file_count": 2, "request": { "ingest_type": "dataset", "base_url": "http://h/1" },
                "fileset_bundle": { "terminal": { "terminal_url": "http://h/b", "terminal_dt": "20260102030405" } },
                "manifest": [{ "path": "a" }],
            })
        };
        assert_eq!(open.object_result(&object()).unwrap(), None);
        let changes = vec![reported(1, &result(false)), reported(2, &result(true))];
        write(&*open, &WriteBatch { changes, ..empty_batch() }).unwrap();
        let found = open.object_result(&object()).unwrap().unwrap();
        assert_eq!(found.seq, Seq(2));
        let read: Value = serde_json::from_str(found.result.as_str()).unwrap();
        assert_eq!((&read["hit"], &read["platform_name"]), (&json!(true), &json!("zenodo\u{FFFD}")));
        let sql =
            "SELECT ingest_type || ' ' || base_url || ' ' || platform_name || ' ' || status || ' ' || total_size ||
            ' ' || file_count || ' ' || web_bundle_url || ' ' || web_bundle_dt FROM ingest_fileset_platform WHERE hit";
        let row = (store.query)(folder.path(), sql);
        let expected = "dataset http://h/1 zenodo\u{FFFD} success 49095370137 2 http://h/b 20260102030405";
        assert_eq!(row, expected, "{}", store.name);
        let findings = (store.verify)(folder.path());
        assert!(findings.iter().all(|finding| !finding.contains("result")), "{findings:?}");
        let mut purge = change(Seq(3), 3);
        purge.change.settlement.purge = true;
        write(&*open, &WriteBatch { changes: vec![purge], ..empty_batch() }).unwrap();
        assert_eq!(open.object_result(&object()).unwrap(), None);
    }
}
