//! The examples of the README with servers that start late: `examples/oai_pmh_repository.py`, harvested with
//! `examples/oai_pmh.toml`, and `examples/dataset_repository.py`, archived with `examples/filesets.toml`. `scripts/walk` runs
//! them as the README prints them.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    time::Instant,
};

use serde_json::{Value, json};

use crate::support::{
    command_line::{command, ended},
    gateway::{Gateway, PATIENCE, free_address},
    journal_fixture::configuration,
    python::Example,
};

/// Waits until a harvest meets a condition, and returns it.
async fn wait_for(gateway: &Gateway, source: &str, condition: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let harvest = gateway.json(&format!("/harvests/{source}")).await;
        if condition(&harvest) {
            return harvest;
        }
        assert!(began.elapsed() < PATIENCE, "{harvest}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Returns the source of each change after a number, with the change and the last part of the URI of each item.
async fn changes(gateway: &Gateway, after: u64) -> Vec<Value> {
    let page = gateway.json(&format!("/changes?after={after}")).await;
    let end = |item: &Value| item["uri"].as_str().unwrap().rsplit(['/', 'A']).next().unwrap().to_owned();
    let items = |change: &Value| {
        let items = change["items"].as_array().unwrap().iter();
        items.map(|item| json!([item["change"], end(item)])).collect::<Vec<_>>()
    };
    page["changes"].as_array().unwrap().iter().map(|change| json!([change["source"], items(change)])).collect()
}

#[tokio::test]
async fn example_repository_is_harvested_with_its_files() {
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let port = address.rsplit(':').next().unwrap();
    let lines = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/oai_pmh.toml")).unwrap();
    let config = configuration(folder.path(), &lines.replace("8090", port).replace("data = \"./theses\"\n", ""));
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    // The harvest waits for a repository that is not there yet.
    wait_for(&gateway, "theses", |harvest| harvest["lastError"]["reason"].is_string()).await;
    let _repository = Example::repository("oai_pmh_repository.py", port, folder.path()).await;
    // The run is on disk a moment before the harvest waits for the next one.
    let is_over = |harvest: &Value| harvest["run"]["state"] == "completed" && harvest["state"] == "waiting";
    let harvest = wait_for(&gateway, "theses", is_over).await;
    assert_eq!(harvest["lastError"], Value::Null, "{harvest}");
    wait_for(&gateway, "theses-files", |harvest| harvest["run"]["changes"] == 1).await;
    let first = changes(&gateway, 0).await;
    let expected =
        [json!(["theses", [["ADD", "17"], ["ADD", "17.pdf"]]]), json!(["theses-files", [["UPDATE", "17.pdf"]]])];
    assert_eq!(first, expected);
    let copy = gateway.json("/changes?after=1").await["changes"][0]["items"][0]["content"].clone();
    let path = copy["url"].as_str().unwrap().strip_prefix(&gateway.url).unwrap().to_owned();
    let file = gateway.http.get(format!("{}{path}", gateway.url)).send().await.unwrap().text().await.unwrap();
    assert_eq!(file, "%PDF-1.4\n% On learning of changes\n%%EOF\n");

    let record = |number: u32| format!("http://{address}/records/{number}");
    assert!(gateway.http.delete(record(17)).send().await.unwrap().status().is_success());
    assert!(gateway.http.put(record(18)).body("On forgetting").send().await.unwrap().status().is_success());
    let run = command(&["harvests", "run", "theses", "--wait", "--gateway", &gateway.url]).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    let expected = [
        json!(["theses", [["ADD", "18"], ["ADD", "18.pdf"]]]),
        json!(["theses", [["DELETE", "17.pdf"], ["DELETE", "17"]]]),
    ];
    assert_eq!(changes(&gateway, 2).await[..2], expected);
}

/// The repository starts after the command, and the files of its dataset are copied out under their names.
#[tokio::test(flavor = "multi_thread")]
async fn ingest_waits_for_a_repository_that_starts() {
    let (folder, address, nobody) = (tempfile::tempdir().unwrap(), free_address(), free_address());
    let (archive, copies) = (folder.path().join("archive"), folder.path().join("copies"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ingest = |address: &str| {
        let config = root.join("examples/filesets.toml");
        let [config, archive, copies] = [&config, &archive, &copies].map(|path| path.to_str().unwrap());
        let dataset = format!("http://{address}/datasets/1");
        command(&["ingest", "--config", config, "--folder", archive, "--copy-to", copies, &dataset]).spawn().unwrap()
    };
    let failing = ingest(&nobody);
    let mut waiting = ingest(&address);
    let mut line = String::new();
    BufReader::new(waiting.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("Connection refused") && line.contains("trying again for 10 seconds"), "{line}");
    let port = address.rsplit(':').next().unwrap();
    let _repository = Example::repository("dataset_repository.py", port, folder.path()).await;
    let (code, output) = tokio::task::spawn_blocking(move || {
        let output = waiting.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    })
    .await
    .unwrap();
    assert!(code == Some(0) && output.starts_with(&format!("success http://{address}/datasets/1\n")), "{output}");
    let readings = copies.join("readings.csv");
    let content = "day,degrees\n2026-11-01,8.2\n2026-11-02,7.9\n";
    assert_eq!(fs::read_to_string(&readings).unwrap(), content);
    assert_eq!(fs::read_dir(&copies).unwrap().count(), 2);

    let (code, _, errors) = ended(ingest(&address));
    assert!(code == 0 && errors.contains("2 files of the dataset are in "), "a copy may be there already: {errors}");
    fs::write(&readings, "mine").unwrap();
    let (code, _, errors) = ended(ingest(&address));
    assert!(code == 1 && errors.contains("readings.csv: another file has this name"), "{errors}");
    assert_eq!(fs::read_to_string(&readings).unwrap(), "mine");

    let (code, output, errors) = ended(failing);
    assert!(code == 1 && output.starts_with("platform-error "), "{output}");
    assert_eq!(errors.matches("trying again").count(), 1, "{errors}");
    let usage = command(&["ingest", "--copy-to", "x", "10.5072/1", "10.5072/2"]).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
}
