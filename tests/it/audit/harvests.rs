//! An audit of a harvest finds what its runs have missed.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{audit_at, report_at};
use crate::support::{
    folder_fixture::{put, python},
    gateway::{Gateway, PATIENCE, free_address},
    harvest_fixture::{configuration, run_to_end},
    journal_fixture,
    scripted_repository::{Misbehaviour, ScriptedRecord, ScriptedRepository},
};

/// Waits until the first run of a harvest is complete.
pub(super) async fn until_harvested(gateway: &Gateway, name: &str) {
    let began = Instant::now();
    loop {
        let harvest = gateway.json(&format!("/harvests/{name}")).await;
        if harvest["run"]["state"] == "completed" {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{harvest}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(super) async fn post(gateway: &Gateway, path: &str) {
    let answer = gateway.http.post(format!("{}{path}", gateway.url)).send().await.unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
}

/// Returns the differences of a report, each as its kind and the end of its item.
pub(super) fn found(report: &Value) -> Vec<String> {
    let one = |difference: &Value| {
        let item = difference["item"].as_str().unwrap();
        let end = item.rsplit(['/', '=', '#']).next().unwrap();
        format!("{} {end}", difference["kind"].as_str().unwrap())
    };
    let mut all: Vec<_> = report["differences"].as_array().unwrap().iter().map(one).collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn oai_pmh_differences_are_found_and_corrected() {
    let repository = ScriptedRepository::start(60).await;
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), &repository.url(), "");
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    until_harvested(&gateway, "scripted").await;
    let (code, report) = report_at(&gateway.url, "scripted", &[]).await;
    assert_eq!((code, found(&report), &report["objects"]), (0, Vec::new(), &json!(60)), "{report}");

    post(&gateway, "/harvests/scripted/pause").await;
    let names = {
        let mut script = repository.script();
        let names: Vec<_> = script.records.keys().take(3).cloned().collect();
        script.records.remove(&names[0]);
        script.records.get_mut(&names[1]).unwrap().title = Some("another title".to_owned());
        script.records.get_mut(&names[2]).unwrap().title = None;
        let new = ScriptedRecord {
            datestamp: 1_577_836_900,
            title: Some("new".to_owned()),
            sets: vec![],
            about: String::new(),
        };
        script.records.insert("oai:scripted:new".to_owned(), new);
        names
    };
    let end = |name: &str| name.replace(':', "%3A");
    let (code, report) = report_at(&gateway.url, "scripted", &["--sample", "100"]).await;
    let mut expected =
        [("different", 1), ("extra", 0), ("extra", 2)].map(|(kind, n)| format!("{kind} {}", end(&names[n])));
    expected.sort();
    assert_eq!((code, found(&report)), (1, expected.to_vec()), "{report}");
    assert_eq!((&report["objects"], &report["registered"]), (&json!(60), &json!(60)), "{report}");
    assert!(report["atMostPercent"].as_f64() > Some(5.0), "three of sixty: {report}");
    let (code, report) = report_at(&gateway.url, "scripted", &[]).await;
    let mut expected = vec![
        format!("different {}", end(&names[1])),
        format!("extra {}", end(&names[0])),
        format!("extra {}", end(&names[2])),
        "missing oai%3Ascripted%3Anew".to_owned(),
    ];
    expected.sort();
    assert_eq!((code, found(&report)), (1, expected), "{report}");
    let head = gateway.head().await;

    let (code, report) = report_at(&gateway.url, "scripted", &["--repair", "--yes"]).await;
    assert_eq!((code, &report["corrections"]), (0, &json!(4)), "{report}");
    let changes = gateway.changes().await;
    let new: Vec<_> = changes.iter().filter(|change| change["seq"].as_u64() > Some(head)).collect();
    assert_eq!(new.len(), 4);
    assert!(new.iter().all(|change| change["description"] == "corrected by an audit"), "{new:?}");
    let (code, report) = report_at(&gateway.url, "scripted", &[]).await;
    assert_eq!((code, found(&report)), (0, Vec::new()), "{report}");

    // The next run has nothing to add.
    post(&gateway, "/harvests/scripted/resume").await;
    post(&gateway, "/harvests/scripted/run?full=true").await;
    run_to_end(&gateway, "scripted").await;
    assert_eq!(gateway.changes().await.len(), changes.len());
}

/// A record that cannot be read is no extra object, and the audit says that it is not complete.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_records_are_no_extra_objects() {
    for (list, misbehaviour) in
        [("", Misbehaviour::BrokenRecords), ("list = \"identifiers\"", Misbehaviour::RecordsUnknown)]
    {
        let repository = ScriptedRepository::start(30).await;
        let folder = tempfile::tempdir().unwrap();
        let config = configuration(folder.path(), &repository.url(), list);
        let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
        until_harvested(&gateway, "scripted").await;
        repository.script().misbehaviours = vec![misbehaviour];
        let (code, report) = report_at(&gateway.url, "scripted", &[]).await;
        assert_eq!((code, found(&report)), (2, Vec::new()), "{report}");
        assert!(report["unanswered"].as_u64() > Some(0), "{report}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_differences_are_found_and_corrected() {
    let folder = tempfile::tempdir().unwrap();
    let share = folder.path().join("share");
    let age = Duration::from_secs(3600);
    for name in ["a.txt", "b.txt", "c.txt", "d.txt"] {
        put(&share.join(name), name, age);
    }
    let lines = format!(
        "[sources.share]\ntransport = \"folder\"\ndialect = \"folder\"\npath = \"{}\"\nmode = \"once\"\n",
        share.display()
    );
    let config = journal_fixture::configuration(folder.path(), &lines);
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    until_harvested(&gateway, "share").await;
    // It watches its folder.
    post(&gateway, "/harvests/share/pause").await;
    let (code, report) = report_at(&gateway.url, "share", &[]).await;
    assert_eq!((code, found(&report), &report["objects"]), (0, Vec::new(), &json!(4)), "{report}");
    // A change that keeps the time and the size, which no run notices.
    put(&share.join("b.txt"), "B.TXT", age);
    put(&share.join("e.txt"), "e", age);
    fs::remove_file(share.join("c.txt")).unwrap();
    let (code, report) = report_at(&gateway.url, "share", &["--sample", "9"]).await;
    assert_eq!((code, found(&report)), (1, ["different b.txt", "extra c.txt"].map(String::from).to_vec()), "{report}");
    let (code, report) = report_at(&gateway.url, "share", &[]).await;
    assert_eq!(
        (code, found(&report)),
        (1, ["different b.txt", "extra c.txt", "missing e.txt"].map(String::from).to_vec())
    );
    assert_eq!(report_at(&gateway.url, "share", &["--repair", "--yes"]).await.0, 0);
    assert_eq!(report_at(&gateway.url, "share", &[]).await.0, 0);
}

/// A share that is not mounted has no file, and a file that cannot be read exists.
#[tokio::test(flavor = "multi_thread")]
async fn empty_folders_and_unreadable_files_delete_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (share, archive) = (folder.path().join("share"), folder.path().join("archive.zip"));
    put(&share.join("a.txt"), "a", Duration::from_secs(3600));
    let write_archive = |method: &str| {
        let code = "import sys, zipfile\n\
                    with zipfile.ZipFile(sys.argv[1], 'w', getattr(zipfile, sys.argv[2])) as file:\n    \
                    file.writestr('a.txt', 'a' * 100)";
        python(code, &[&archive, Path::new(method)]);
    };
    write_archive("ZIP_DEFLATED");
    let lines = |name: &str, path: &Path| {
        format!(
            "[sources.{name}]\ntransport = \"folder\"\ndialect = \"folder\"\npath = {path:?}\nmode = \"once\"\n\
             watch = false\n"
        )
    };
    let lines = lines("share", &share) + &lines("archive", &archive);
    let config = journal_fixture::configuration(folder.path(), &lines);
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    until_harvested(&gateway, "share").await;
    until_harvested(&gateway, "archive").await;
    fs::remove_file(share.join("a.txt")).unwrap();
    write_archive("ZIP_LZMA");
    for source in ["share", "archive"] {
        let (code, report) = report_at(&gateway.url, source, &["--sample", "5"]).await;
        assert_eq!((code, found(&report), &report["unanswered"]), (2, Vec::new(), &json!(1)), "{source}: {report}");
        let (code, report) = report_at(&gateway.url, source, &["--repair", "--yes"]).await;
        assert_eq!((code, found(&report), &report["unanswered"]), (2, Vec::new(), &json!(1)), "{source}: {report}");
    }
    assert_eq!(gateway.changes().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_differences_are_found_and_corrected() {
    let folder = tempfile::tempdir().unwrap();
    let upper_address = free_address();
    for name in ["upper", "lower"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let publisher = "[sources.repo]\ntransport = \"http\"\ndialect = \"content-change\"\n";
    let config = journal_fixture::configuration(&folder.path().join("upper"), publisher);
    let upper = Gateway::start_elsewhere(
        &folder.path().join("upper/data"),
        &["--listen", &upper_address, "--config", &config],
        None,
    );
    let report = async |number: u32, change: &str| {
        let uri = format!("http://h/{number}");
        let body = json!({ "object": uri, "items": [{ "uri": uri, "change": change }] }).to_string();
        let (status, answer) = upper.post("repo", "application/json", body).await;
        assert_eq!(status, 201, "{answer}");
    };
    for number in 1..=4 {
        report(number, "ADD").await;
    }
    // An object with items of different times, of which the newer one is deleted later.
    let item = async |change: &str| {
        let body = json!({ "object": "http://h/1", "items": [{ "uri": "http://h/1/part", "change": change }] });
        assert_eq!(upper.post("repo", "application/json", body.to_string()).await.0, 201);
    };
    item("ADD").await;
    let lines = format!(
        "[sources.upper]\ntransport = \"gateway\"\ndialect = \"gateway\"\nurl = \"http://{upper_address}\"\nmode = \"once\"\n"
    );
    let config = journal_fixture::configuration(&folder.path().join("lower"), &lines);
    let lower = Gateway::start_with(&folder.path().join("lower/data"), &["--config", &config]);
    until_harvested(&lower, "upper").await;
    let (code, result) = report_at(&lower.url, "upper", &[]).await;
    assert_eq!((code, found(&result)), (0, Vec::new()), "{result}");
    post(&lower, "/harvests/upper/pause").await;
    report(5, "ADD").await;
    report(2, "DELETE").await;
    item("DELETE").await;
    let (code, result) = report_at(&lower.url, "upper", &["--sample", "100"]).await;
    assert_eq!((code, found(&result)), (1, ["extra 2", "extra part"].map(String::from).to_vec()), "{result}");
    assert_eq!((&result["objects"], &result["registered"]), (&json!(4), &json!(4)), "{result}");
    let (code, result) = report_at(&lower.url, "upper", &[]).await;
    let expected = ["extra 2", "extra part", "missing 5"].map(String::from).to_vec();
    assert_eq!((code, found(&result)), (1, expected), "{result}");
    let (code, _, stderr) = audit_at(&lower.url, "upper", &["--repair", "--yes"]).await;
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(report_at(&lower.url, "upper", &[]).await.0, 0);

    // The limit holds for the deletions that the other gateway reports.
    for number in 10..40 {
        report(number, "ADD").await;
    }
    assert_eq!(audit_at(&lower.url, "upper", &["--repair", "--yes"]).await.0, 0);
    let head = lower.head().await;
    for number in 10..40 {
        report(number, "DELETE").await;
    }
    let (code, _, stderr) = audit_at(&lower.url, "upper", &["--repair", "--yes"]).await;
    assert_eq!((code, lower.head().await), (1, head), "{stderr}");
    assert!(stderr.contains("nothing was deleted, because --max-deleted-percent is 20"), "{stderr}");
}
