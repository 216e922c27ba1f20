//! `tidings export`: files for analysts, which DuckDB and pyarrow read, and which are complete whenever they are there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
    time::{Instant, SystemTime},
};

use serde_json::{Value, json};
use tidings::model::Timestamp;

use crate::support::{
    command_line::{CommandResult, command, ended},
    gateway::{Gateway, PATIENCE},
    journal_fixture::{OpenJournal, configuration, journal_file},
    python::environment,
    small_disk::SmallDisk,
    subscription_fixture::{post, post_event},
    views_fixture::{SECRET, ViewedGateway},
};

fn export(gateway: &str, folder: &Path, options: &[&str]) -> CommandResult {
    let folder = folder.to_str().unwrap();
    ended(command(&[&["export", folder, "--gateway", gateway], options].concat()).spawn().unwrap())
}

/// Reads the files with DuckDB and pyarrow.
fn read(folder: &Path, pattern: &str) -> Value {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut script = Command::new(environment("analysis"));
    // A day ahead of UTC, so that a day in the time zone of the session differs.
    script.env("TZ", "Pacific/Kiritimati").arg(here.join("tests/it/support/read_export.py")).arg(folder).arg(pattern);
    let done = script.arg(here.join("docs/export.md")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

/// Returns the names of the files of changes, with the times of their last change.
fn files(folder: &Path) -> BTreeMap<String, SystemTime> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let named =
        entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().modified().unwrap()));
    named.filter(|(name, _)| name != "tidings-export.json").collect()
}

fn names(folder: &Path) -> Vec<String> {
    files(folder).into_keys().collect()
}

/// Returns the changes of the files, as values.
fn exported(found: &Value) -> Vec<Value> {
    let lines = found["json"].as_array().unwrap().iter();
    lines.map(|line| serde_json::from_str(line.as_str().unwrap()).unwrap()).collect()
}

/// Returns the JSON of each change, octet by octet, as the gateway writes it on lines.
async fn lines(gateway: &Gateway) -> Vec<String> {
    let request = gateway.http.get(format!("{}/changes?limit=1000", gateway.url));
    let lines = request.header("accept", "application/x-ndjson").send().await.unwrap().text().await.unwrap();
    lines.lines().map(str::to_owned).collect()
}

fn full_event() -> Value {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/content-change/synthetic-json-full.json");
    serde_json::from_slice(&fs::read(fixture).unwrap()).unwrap()
}

#[tokio::test]
async fn duckdb_and_pyarrow_read_every_change() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(&folder.path().join("data"));
    post_event(&gateway, &full_event()).await;
    for number in 2..=25 {
        post(&gateway, number).await;
    }
    let (changes, lines) = (gateway.changes().await, lines(&gateway).await);

    let out = folder.path().join("parquet");
    let (code, stdout, stderr) = export(&gateway.url, &out, &["--parquet", "--rows", "10"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.starts_with("25 changes up to number 25 written to 3 files in "), "{stdout}");
    assert_eq!(names(&out), [1, 11, 21].map(|first| format!("changes-{first:020}.parquet")));
    let found = read(&out, "*.parquet");
    assert_eq!((&found["rows"], &found["arrow_rows"]), (&json!(25), &json!(25)));
    assert_eq!(found["arrow_seqs"], json!((1..=25).collect::<Vec<_>>()));
    assert_eq!(found["json"], json!(lines), "the column has the JSON of the gateway");
    let items: usize = changes.iter().map(|change| change["items"].as_array().unwrap().len()).sum();
    assert_eq!(found["arrow_items"], items);
    assert_eq!(found["journals"], json!([gateway.json("/changes?limit=1").await["journal"]]));
    assert_eq!(found["kinds"], json!({ "add": 24, "mixed": 1 }));
    assert_eq!(found["media_types"]["image/png"], 24);
    let answers = found["answers"].as_array().unwrap();
    assert_eq!(answers.iter().filter(|answer| !answer.as_array().unwrap().is_empty()).count(), 4, "{answers:?}");
    assert_eq!(answers.len(), 5, "nothing was deleted");
    insta::assert_json_snapshot!("export_columns", found["types"]);
    let days: BTreeSet<_> = changes.iter().map(|change| change["time"].as_str().unwrap()[..10].to_owned()).collect();
    let found_days = answers[0].as_array().unwrap().iter().map(|row| row[0].as_str().unwrap().to_owned()).collect();
    assert_eq!(days, found_days, "the days are those of UTC");
    // The values of the first change, whose event has every member.
    let first = &changes[0];
    let millis = |member: &str| Timestamp::parse(first[member].as_str().unwrap()).unwrap().datetime();
    let row = found["first"].as_array().unwrap();
    for (index, expected) in [
        (0, "1".to_owned()),
        (1, first["id"].as_str().unwrap().to_owned()),
        (2, millis("received").format("%Y-%m-%d %H:%M:%S").to_string()),
        (3, millis("time").format("%Y-%m-%d %H:%M:%S").to_string()),
        (5, "content-change".to_owned()),
        (6, first["sourceEventId"].as_str().unwrap().to_owned()),
        (8, "curator".to_owned()),
        (10, first["object"].as_str().unwrap().to_owned()),
        (11, first["parent"].as_str().unwrap().to_owned()),
    ] {
        assert!(row[index].as_str().unwrap().starts_with(&expected), "{index}: {} is not {expected}", row[index]);
    }
    let columns: Value = serde_json::from_str(found["items"].as_str().unwrap()).unwrap();
    let (item, of_gateway) = (&columns[0], &first["items"][0]);
    for (column, member) in [
        ("id", "/id"),
        ("uri", "/uri"),
        ("change", "/change"),
        ("contentUrl", "/content/url"),
        ("mediaType", "/content/mediaType"),
        ("size", "/content/size"),
        ("digest", "/content/digest/value"),
        ("digestAlgorithm", "/content/digest/algorithm"),
        ("generatedBy", "/content/generatedBy"),
        ("stateAfter", "/stateAfter"),
    ] {
        assert_eq!(Some(&item[column]), of_gateway.pointer(member), "{column}");
    }
    assert_eq!((&columns[1]["change"], &columns[1]["stateAfter"]), (&Value::Null, &json!("DELETED")));

    for (compression, extension) in [(None, "ndjson"), (Some("zst"), "ndjson.zst"), (Some("gz"), "ndjson.gz")] {
        let out = folder.path().join(extension);
        let compress = compression.map_or(vec![], |how| vec!["--compress", how]);
        let (code, _, stderr) = export(&gateway.url, &out, &[&["--ndjson", "--rows", "7"], &compress[..]].concat());
        assert_eq!((code, stderr.as_str()), (0, ""), "{extension}");
        assert_eq!(names(&out).len(), 4);
        let found = read(&out, &format!("*.{extension}"));
        assert_eq!((&found["rows"], &found["json"]), (&json!(25), &json!(lines)), "{extension}");
    }
    let plain = names(&folder.path().join("ndjson")).into_iter();
    let plain: String =
        plain.map(|name| fs::read_to_string(folder.path().join("ndjson").join(name)).unwrap()).collect();
    assert_eq!(plain.lines().collect::<Vec<_>>(), lines);
}

#[tokio::test]
async fn each_run_continues_after_the_last_complete_span() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(&folder.path().join("data"));
    let out = folder.path().join("out");
    let options = ["--parquet", "--rows", "10"];
    let (code, stdout, _) = export(&gateway.url, &out, &options);
    assert_eq!((code, names(&out).len()), (0, 0), "an empty journal has no files: {stdout}");
    for number in 1..=15 {
        post(&gateway, number).await;
    }
    assert_eq!(export(&gateway.url, &out, &options).0, 0);
    let before = files(&out);
    assert_eq!(before.len(), 2);
    // Nothing is new.
    let (code, stdout, _) = export(&gateway.url, &out, &options);
    assert!(code == 0 && stdout.starts_with("0 changes up to number 15 written to 0 files"), "{stdout}");
    assert_eq!(files(&out), before);
    for number in 16..=34 {
        post(&gateway, number).await;
    }
    let (code, stdout, _) = export(&gateway.url, &out, &options);
    assert!(code == 0 && stdout.ends_with("; 1 file of earlier runs\n"), "{stdout}");
    let after = files(&out);
    let (complete, open) = (format!("changes-{:020}.parquet", 1), format!("changes-{:020}.parquet", 11));
    assert_eq!(after[&complete], before[&complete], "the file of a complete span stays");
    assert_ne!(after[&open], before[&open]);
    assert_eq!(exported(&read(&out, "*.parquet")), gateway.changes().await);
    // A filter that selects nothing has no files, and continues all the same.
    let none = folder.path().join("none");
    let filtered = ["--ndjson", "--filter", "change=DELETE"];
    assert_eq!(export(&gateway.url, &none, &filtered).0, 0);
    assert_eq!(names(&none).len(), 0);
    let note: Value = serde_json::from_slice(&fs::read(none.join("tidings-export.json")).unwrap()).unwrap();
    assert_eq!(note["through"], 34);
}

#[tokio::test]
async fn retention_between_two_runs_loses_nothing_that_was_exported() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("data"), folder.path().join("out"));
    let gateway = Gateway::start(&data);
    for number in 1..=15 {
        post(&gateway, number).await;
    }
    let options = ["--ndjson", "--rows", "10"];
    assert_eq!(export(&gateway.url, &out, &options).0, 0);
    let mut all = lines(&gateway).await;
    for number in 16..=18 {
        post(&gateway, number).await;
    }
    assert!(gateway.stop().success());
    let config = configuration(folder.path(), "[journal]\nkeep_changes = 4\n");
    let gateway = Gateway::start_with(&data, &["--config", &config]);
    let began = Instant::now();
    while gateway.json("/changes").await["changes"][0]["seq"] != 15 {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let (code, stdout, stderr) = export(&gateway.url, &out, &options);
    assert!(code == 0 && stdout.starts_with("3 changes up to number 18"), "{stdout}{stderr}");
    assert_eq!(names(&out), [1, 11, 16].map(|first| format!("changes-{first:020}.ndjson")));
    all.extend(lines(&gateway).await.into_iter().skip(1));
    let found = read(&out, "*.ndjson");
    assert_eq!(found["json"], json!(all));
    for number in 19..=30 {
        post(&gateway, number).await;
    }
    while gateway.json("/changes").await["changes"][0]["seq"] != 27 {
        assert!(began.elapsed() < 2 * PATIENCE);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let (code, _, stderr) = export(&gateway.url, &out, &options);
    assert!(code == 1 && stderr.contains("goes up to number 18, and the changes after it are lost"), "{stderr}");
    assert_eq!(read(&out, "*.ndjson")["json"], json!(all), "what was exported stays");
}

#[tokio::test]
async fn another_journal_and_other_options_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let gateway = Gateway::start(&folder.path().join("data"));
    post(&gateway, 1).await;
    assert_eq!(export(&gateway.url, &out, &["--ndjson"]).0, 0);
    for (options, expected) in [
        (&["--ndjson", "--rows", "5"][..], "was exported with the options --ndjson --rows 100000; give the same"),
        (&["--ndjson", "--compress", "gz"], "was exported with the options --ndjson"),
        (&["--parquet"], "was exported with the options --ndjson"),
        (&["--ndjson", "--filter", "change=ADD"], "was exported with the options --ndjson"),
    ] {
        let (code, _, stderr) = export(&gateway.url, &out, options);
        assert!(code == 1 && stderr.contains(expected), "{options:?}: {stderr}");
    }
    for options in
        [&["--ndjson", "--filter", "after=3"][..], &["--parquet", "--ndjson"], &[], &["--ndjson", "--rows", "0"]]
    {
        assert_eq!(export(&gateway.url, &folder.path().join("usage"), options).0, 2, "{options:?}");
    }
    let other = Gateway::start(&folder.path().join("other"));
    let before = files(&out);
    let (code, _, stderr) = export(&other.url, &out, &["--ndjson"]);
    assert!(code == 1 && stderr.contains("was restored from a backup or by a failover"), "{stderr}");
    assert_eq!(files(&out), before);
    fs::remove_file(out.join("tidings-export.json")).unwrap();
    let (code, _, stderr) = export(&gateway.url, &out, &["--ndjson"]);
    assert!(code == 1 && stderr.contains("without their note"), "{stderr}");
}

#[tokio::test]
async fn reader_of_a_part_exports_this_part() {
    let view = "view = { objects = [\"http://h/open/\"], public = true }";
    let gateway = ViewedGateway::start(&crate::support::views_fixture::token("partner", "read", view));
    for (object, name) in [("http://h/open/1", "open"), ("http://h/closed/1", SECRET)] {
        gateway
            .post(&json!({ "object": object, "user": { "name": SECRET },
            "items": [{ "uri": format!("{object}/{name}"), "change": "ADD" }] }))
            .await;
    }
    let run = |token: Option<&str>, out: &str| {
        let out = gateway.folder.path().join(out);
        let mut export = command(&["export", out.to_str().unwrap(), "--ndjson", "--gateway", &gateway.gateway.url]);
        export.envs(token.map(|token| ("TIDINGS_TOKEN", format!("tdg_{token}"))));
        (ended(export.spawn().unwrap()), out)
    };
    let ((code, _, stderr), out) = run(Some("partner"), "part");
    assert_eq!((code, stderr.as_str()), (0, ""));
    let found = read(&out, "*.ndjson");
    assert_eq!(found["rows"], 1);
    assert!(!found.to_string().contains(SECRET), "{found}");
    let ((_, _, _), out) = run(Some("admin"), "all");
    assert_eq!(read(&out, "*.ndjson")["rows"], 2);
    let ((code, _, stderr), _) = run(None, "denied");
    assert!(code == 1 && stderr.contains("give a token with the scope read in TIDINGS_TOKEN"), "{stderr}");
}

#[tokio::test]
async fn gateway_with_small_pages_and_a_damaged_change_is_exported() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let opened = OpenJournal::at(&data);
    opened.append(1..=60).await;
    opened.close();
    let journal = rusqlite::Connection::open(journal_file(&data)).unwrap();
    let sql = "UPDATE changes SET json = replace(json, 'localhost', 'elsewhere') WHERE seq IN (31, 59)";
    assert_eq!(journal.execute(sql, []).unwrap(), 2);
    drop(journal);
    let config = configuration(folder.path(), "[limits]\npage = 20\n[journal]\ntail_changes = 5\n");
    let gateway = Gateway::start_with(&data, &["--config", &config]);
    for options in [&["--ndjson"][..], &["--parquet"]] {
        let out = folder.path().join(options[0]);
        let (code, stdout, stderr) = export(&gateway.url, &out, options);
        assert_eq!(code, 0, "{stdout}{stderr}");
        assert!(stdout.starts_with("58 changes up to number 60 written"), "{stdout}");
        assert!(stdout.ends_with("; 2 unreadable changes skipped\n"), "{stdout}");
        assert!(stderr.contains("change 31 is skipped: it is damaged in the journal"), "{stderr}");
        let found = read(&out, if options[0] == "--ndjson" { "*.ndjson" } else { "*.parquet" });
        assert_eq!(found["rows"], 58);
    }
}

#[tokio::test]
async fn full_disk_leaves_complete_files() {
    let disk = SmallDisk::of(2);
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(&folder.path().join("data"));
    let text: String = std::iter::repeat_with(fastrand::alphanumeric).take(4000).collect();
    for number in 1..=700 {
        let object = format!("http://h.example/{number}");
        post_event(
            &gateway,
            &json!({ "object": object, "description": text, "items": [{ "uri": object, "change": "ADD" }] }),
        )
        .await;
    }
    for options in [&["--ndjson", "--rows", "100"][..], &["--parquet", "--rows", "100"]] {
        let out = disk.path().join(options[0]);
        let filling = if options[0] == "--parquet" { Some(disk.fill()) } else { None };
        let (code, _, stderr) = export(&gateway.url, &out, options);
        assert_eq!(code, 1);
        if filling.is_none() {
            assert!(stderr.ends_with("make room, and give the command again to continue\n"), "{stderr}");
            let complete = names(&out).len() as u64;
            assert!((1..7).contains(&complete), "{complete}");
            assert_eq!(read(&out, "*.ndjson")["rows"], complete * 100);
            fs::remove_dir_all(&out).unwrap();
        } else {
            assert!(stderr.contains("No space left on device"), "{stderr}");
        }
    }
}

/// Whenever the command ends, files under their names are complete, and the next run continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_run_leaves_complete_files_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(&folder.path().join("data"));
    for number in 1..=400 {
        post(&gateway, number).await;
    }
    let out = folder.path().join("out");
    let all = lines(&gateway).await;
    for (signal, wait) in [("KILL", 3), ("KILL", 8), ("KILL", 15), ("INT", 12), ("KILL", 25), ("INT", 30)] {
        let options = ["export", out.to_str().unwrap(), "--ndjson", "--rows", "5", "--gateway", &gateway.url];
        let export = command(&options).spawn().unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
        let _ = Command::new("kill").args([&format!("-{signal}"), &export.id().to_string()]).status();
        export.wait_with_output().unwrap();
        if !out.is_dir() {
            continue;
        }
        for name in names(&out).iter().filter(|name| name.starts_with("changes-")) {
            let text = fs::read_to_string(out.join(name)).unwrap();
            let first: usize = name["changes-".len()..].split('.').next().unwrap().parse().unwrap();
            let lines: Vec<_> = text.lines().collect();
            assert!(!lines.is_empty() && text.ends_with('\n') && lines == all[first - 1..][..lines.len()], "{name}");
        }
    }
    assert_eq!(export(&gateway.url, &out, &["--ndjson", "--rows", "5"]).0, 0);
    assert_eq!(names(&out).len(), 80, "no unfinished file is left");
    assert_eq!(read(&out, "*.ndjson")["json"], json!(all));
}
