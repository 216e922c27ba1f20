//! Ingests of datasets: the files in the store, the web archive, and each way in which a file is not what its manifest says.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::Stdio,
};

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use tidings::filesets::{
    IngestSettings, Ingested, RetryRule,
    platform::{DatasetLimits, Thresholds},
};

use crate::support::{
    command_line::{command, ended},
    gateway::PATIENCE,
    ingest_fixture::{IngestFixture, defaults, md5, sha256, table},
    python,
    scripted_platform::Answer,
};

#[tokio::test(flavor = "multi_thread")]
async fn fileset_ingest_writes_a_web_archive_that_others_read() {
    let ingest = IngestFixture::start(|_, _| {}).await;
    let big = "0123456789".repeat(30_000);
    ingest.publish(&[
        ("a b.csv", table("one"), json!({ "size": 3, "checksum": "md5:f97c5d29941bfb1b2fdab0874906ab82" })),
        ("deep/er/big.txt", table(&big), json!({})),
    ]);
    ingest.server.put("/doi/17", Answer::redirect("/records/17"));
    let Ingested { result, retry, .. } = ingest.ingest_at("/doi/17").await;
    assert_eq!((result.status.as_str(), result.hit, retry), ("success", true, None), "{:?}", result.error_message);
    let manifest = result.manifest.as_ref().unwrap();
    assert_eq!(manifest[0].sha1.as_deref(), Some("fe05bcdcdc4928012781a5f1a2a77cbb5398e106"));
    assert_eq!(manifest[0].archive_url, Some(format!("https://t.example/files/{}", sha256(b"one"))));
    assert_eq!((result.total_size, result.file_count), (Some(300_003), Some(2)));
    assert_eq!(result.ingest_strategy.unwrap().name(), "web-fileset");
    let stored = |digest: &str| ingest.folder.path().join(format!("sha256/{}/{digest}", &digest[..2]));
    let (warc, index) = (result.warc_sha256.clone().unwrap(), result.cdx_sha256.clone().unwrap());
    let (warc_file, index) = (stored(&warc), fs::read_to_string(stored(&index)).unwrap());
    let named = ingest.folder.path().join(format!("{warc}.warc.gz"));
    fs::copy(&warc_file, &named).unwrap();
    let judged = tokio::task::spawn_blocking(move || python::read_warc(&named)).await.unwrap();
    let records = judged["records"].as_array().unwrap();
    let kinds: Vec<_> = records.iter().map(|record| record["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["warcinfo", "response", "response", "response", "response"]);
    assert_eq!(judged["digests"], json!(true), "warcio checks block and payload digests");
    let bodies: Vec<_> = records[1..].iter().map(|record| record["sha256"].as_str().unwrap().to_owned()).collect();
    let page = sha256(b"<html><title>A dataset</title></html>");
    assert_eq!(bodies, [sha256(b""), page, sha256(b"one"), sha256(big.as_bytes())], "the redirection first");
    assert!(records.iter().all(|record| !record.to_string().contains("secret")));
    let lines = |text: &str| {
        let parse = |line: &str| {
            let (key, fields) = line.split_once(" {").unwrap();
            (key.to_owned(), serde_json::from_str::<Value>(&format!("{{{fields}")).unwrap())
        };
        let mut lines: Vec<_> = text.lines().map(parse).collect();
        lines.sort_by(|one, other| one.0.cmp(&other.0));
        lines
    };
    assert_eq!(lines(&index), lines(judged["cdxj"].as_str().unwrap()), "the index is the one that cdxj-indexer makes");
}

#[tokio::test]
async fn fileset_ingest_of_a_large_dataset_fills_an_item() {
    let ingest = IngestFixture::start(|settings, _| settings.thresholds.web_files = 1).await;
    let Ingested { result, .. } =
        ingest.ingest(&[("a.csv", table("one"), json!({})), ("deep/er/b.csv", table("two"), json!({}))]).await;
    assert_eq!((result.status.as_str(), result.ingest_strategy.unwrap().name()), ("success", "archiveorg-fileset"));
    let item = result.archiveorg_item_name.unwrap();
    let paths = ingest.stored();
    assert!(paths.contains(&format!("items/{item}/a.csv")) && paths.contains(&format!("items/{item}/deep/er/b.csv")));
    let others = paths.iter().filter(|path| path.starts_with("work/") && path.ends_with("/result"));
    let page = [&result.warc_sha256, &result.cdx_sha256].into_iter().flatten().count();
    assert_eq!((page, paths.iter().filter(|path| path.starts_with("owners/")).count()), (2, 1), "{paths:?}");
    assert_eq!((paths.len(), others.count()), (8, 1), "each file under its digest and in the item: {paths:?}");
    let Ingested { result, .. } = ingest.ingest(&[("a.csv", table("one"), json!({}))]).await;
    assert_eq!(result.status.as_str(), "success-file");
    let file = result.fileset_file.unwrap();
    assert_eq!((file.file_meta.unwrap().size_bytes, file.cdx.is_some()), (3, true));
}

#[tokio::test]
async fn fileset_ingest_tells_how_a_file_differs() {
    let ingest = IngestFixture::start(|settings, _| settings.max_file_bytes = 100).await;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(b"one").unwrap();
    let wrong = "0".repeat(32);
    for (answer, facts, status) in [
        (table("one"), json!({ "size": 4 }), "mismatch-size"),
        (table("one more"), json!({ "size": 4 }), "mismatch-size"),
        (table("one"), json!({ "checksum": format!("md5:{wrong}") }), "mismatch-md5"),
        (table("one"), json!({ "checksum": format!("sha1:{wrong}00000000") }), "mismatch-sha1"),
        (table("one"), json!({ "checksum": format!("sha256:{wrong}{wrong}") }), "mismatch-sha256"),
        (table(&"x".repeat(101)), json!({}), "too-large-size"),
        (Answer::new(404, "{}"), json!({}), "error-platform-download"),
        (Answer::new(401, "{}"), json!({}), "platform-restricted"),
        (Answer::redirect("http://10.0.0.1/"), json!({}), "error-platform-download"),
        (Answer::redirect("file:///etc/passwd"), json!({}), "error-platform-download"),
    ] {
        let Ingested { result, retry, .. } =
            ingest.ingest(&[("good.csv", table("good"), json!({})), ("x.csv", answer.clone(), facts)]).await;
        assert_eq!((result.status.as_str(), result.hit), (status, false), "{answer:?} {:?}", result.error_message);
        let manifest = result.manifest.unwrap();
        assert_eq!(manifest[1].status, Some(result.status), "{answer:?}");
        assert!(result.error_message.unwrap().contains("x.csv"), "the message names the file");
        assert_eq!(retry, Some(RetryRule::Never), "{answer:?}");
    }
    let Ingested { result, retry, .. } = ingest.ingest(&[("x.csv", Answer::new(500, "x"), json!({}))]).await;
    assert_eq!((result.status.as_str(), retry), ("error-platform-download", Some(RetryRule::Backoff(None))));
    let good = sha256(b"good");
    assert!(
        ingest.stored().iter().all(|path| path.ends_with(&good)),
        "only the good file is left: {:?}",
        ingest.stored()
    );
}

/// The command archives datasets of which one does not exist, named as arguments and on standard input.
#[tokio::test(flavor = "multi_thread")]
async fn fileset_ingest_is_a_command() {
    let ingest = IngestFixture::start(|_, _| {}).await;
    ingest.ingest(&[("a b.csv", table("one"), json!({ "size": 3 }))]).await;
    ingest.server.put("/api/records/18", Answer::new(404, "{}"));
    let (url, folder) = (ingest.server.url.clone(), tempfile::tempdir().unwrap());
    let config = folder.path().join("tidings.toml");
    let text = format!("[delivery]\nallow = [\"127.0.0.1\"]\n[filesets.platforms]\nzenodo = [\"{url}\"]\n");
    fs::write(&config, text).unwrap();
    let store = folder.path().join("archive");
    let good = format!("{url}/records/17");
    let lines = format!(
        "{good}\n\n{}\n",
        json!({ "ingest_type": "dataset", "base_url": format!("{url}/records/18"), "ext_ids": {} })
    );
    let run = move |arguments: &[&str], input: Option<&str>| {
        let options = ["ingest", "--config", config.to_str().unwrap(), "--folder", store.to_str().unwrap()];
        let mut command = command(&[&options[..], arguments].concat());
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.unwrap_or_default().as_bytes()).unwrap();
        drop(stdin);
        ended(child)
    };
    let (code, output, errors) = run(&[&good], None);
    assert_eq!((code, errors.as_str()), (0, ""), "{output}");
    assert!(output.starts_with(&format!("success-file {good}\n")) && output.contains(&sha256(b"one")), "{output}");
    let (code, output, errors) = run(&["--json"], Some(&lines));
    assert_eq!((code, errors.contains("1 of 2 datasets are archived")), (1, true), "{errors}");
    let results: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&results[0]["status"], &results[1]["status"]), (&json!("success-existing"), &json!("platform-404")));
    assert_eq!(results[1]["request"]["ext_ids"], json!({}), "the result repeats the whole request");
    let (code, _, errors) = run(&["my data"], None);
    assert!(code == 2 && errors.contains("write an http or https URL, or a DOI"), "{errors}");
    let (code, _, errors) = run(&[], Some("{\"ingest_type\": \"pdf\", \"base_url\": \"https://h.example/1\"}"));
    assert!(code == 1 && errors.contains("only \"dataset\" is archived"), "{errors}");
    // A bad line does not end the list.
    let (code, output, errors) = run(&[], Some(&format!("no dataset\n{good}\n")));
    assert!(code == 1 && errors.contains("no dataset: ") && output.starts_with("success-"), "{errors} {output}");
}

/// Presses Ctrl-C after the first dataset, while the command waits for the next line.
#[tokio::test(flavor = "multi_thread")]
async fn fileset_ingest_ends_while_it_waits_for_input() {
    let ingest = IngestFixture::start(|_, _| {}).await;
    ingest.publish(&[("a.csv", table("one"), json!({}))]);
    let (url, folder) = (ingest.server.url.clone(), tempfile::tempdir().unwrap());
    let config = folder.path().join("tidings.toml");
    let text = format!("[delivery]\nallow = [\"127.0.0.1\"]\n[filesets.platforms]\nzenodo = [\"{url}\"]\n");
    fs::write(&config, text).unwrap();
    let store = folder.path().join("archive");
    let options = ["ingest", "--config", config.to_str().unwrap(), "--folder", store.to_str().unwrap()];
    let mut child = command(&options).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{url}/records/17").unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let interrupted = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(line.starts_with("success-file"), "{line}");
        let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let (code, _, errors) = ended(child);
        (code, errors)
    });
    let interrupted = tokio::time::timeout(PATIENCE, interrupted).await;
    let (code, errors) = interrupted.expect("the command ends before its input").unwrap();
    drop(stdin);
    assert!(code == 1 && errors.contains("interrupted"), "{code} {errors}");
}

/// The second attempt continues the first one, whose files it counts as new.
#[tokio::test]
async fn fileset_ingest_after_a_failure_counts_the_files_of_the_first_attempt() {
    // One file after the other: a failure ends the downloads beside it.
    let ingest = IngestFixture::start(|settings, _| settings.concurrency = 1).await;
    let facts = json!({ "size": 3, "checksum": format!("sha256:{}", sha256(b"one")) });
    let good = ("a.csv", table("one"), facts);
    let Ingested { retry, .. } = ingest.ingest(&[good.clone(), ("b.csv", Answer::new(500, "x"), json!({}))]).await;
    assert_eq!(retry, Some(RetryRule::Backoff(None)));
    let Ingested { result, new_bytes, .. } = ingest.ingest(&[good, ("b.csv", table("more"), json!({}))]).await;
    assert_eq!((result.status.as_str(), new_bytes), ("success", 7), "{:?}", result.error_message);
    let manifest = result.manifest.unwrap();
    assert_eq!(manifest[0].md5, Some(md5(b"one")));
    assert!(manifest.iter().all(|file| file.status.as_ref().unwrap().as_str() == "success"), "{manifest:?}");
    let requests = ingest.server.requests();
    assert_eq!(requests.iter().filter(|request| request.place == "/f/0").count(), 1);
}

#[test]
fn fileset_ingest_defaults_are_those_of_the_configuration() {
    let IngestSettings { limits, thresholds, .. } = defaults();
    assert_eq!((limits, thresholds), (DatasetLimits::default(), Thresholds::default()));
}
