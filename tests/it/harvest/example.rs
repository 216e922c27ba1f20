//! The examples of the README: `examples/oai_pmh_repository.py`, harvested with `examples/oai_pmh.toml`, and
//! `examples/dataset_repository.py`, archived with `examples/filesets.toml`.

use std::{fs, path::Path, time::Instant};

use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, PATIENCE, command, free_address},
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
async fn example_of_the_readme_harvests_records_and_files() {
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
    let run = command().args(["harvests", "run", "theses", "--wait", "--gateway", &gateway.url]).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    let page = gateway.json("/changes?after=2&limit=2").await;
    let end = |item: &Value| {
        json!([item["change"], &item["uri"].as_str().unwrap()[item["uri"].as_str().unwrap().len() - 6..]])
    };
    let line = |change: &Value| {
        let items = change["items"].as_array().unwrap().iter().map(end);
        Value::from_iter([change["seq"].clone(), change["source"].clone()].into_iter().chain(items)).to_string()
    };
    let lines: Vec<_> = page["changes"].as_array().unwrap().iter().map(line).collect();
    assert_eq!(lines, printed_after("records/18"), "the output in README.md is another one");
}

/// Returns the lines of JSON that README.md prints after the block with this command.
fn printed_after(command: &str) -> Vec<String> {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let output = readme.split("```sh\n").find(|block| block.contains(command)).unwrap().split("```\n").nth(2).unwrap();
    output.lines().filter(|line| line.starts_with('[')).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn example_of_the_readme_archives_a_dataset() {
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let port = address.rsplit(':').next().unwrap();
    let _repository = Example::repository("dataset_repository.py", port, folder.path()).await;
    let lines = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/filesets.toml")).unwrap();
    let config = configuration(folder.path(), &lines.replace("data = \"./datasets\"\n", ""));
    let dataset = format!("http://{address}/datasets/1");
    let ingest = || {
        let archive = folder.path().join("archive");
        let mut ingest = command();
        ingest.args(["ingest", "--config", &config, "--folder", archive.to_str().unwrap(), &dataset]);
        let output = ingest.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let summary = ingest();
    assert!(summary.starts_with(&format!("success {dataset}\n")) && summary.contains("readings.csv"), "{summary}");
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    let request = json!({ "ingest_type": "dataset", "base_url": dataset }).to_string();
    let (status, answer) = gateway.post("requests", "application/json", request).await;
    assert_eq!(status, 201, "{answer}");
    let began = Instant::now();
    while gateway.json("/filesets").await["filesets"][0]["state"] != "archived" {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let copies = gateway.json("/changes?after=1").await["changes"][0]["items"].clone();
    let copies: Vec<_> = copies.as_array().unwrap().iter().map(|item| item["change"].clone()).collect();
    // The request has made the dataset itself known.
    assert_eq!(copies, ["UPDATE", "ADD", "ADD"]);
}

/// The block is pasted as a whole, so its commands follow each other without a pause.
#[tokio::test(flavor = "multi_thread")]
async fn block_of_the_readme_archives_a_dataset() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let blocks = readme.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let block = blocks.filter(|block| block.contains("tidings ingest")).collect::<Vec<_>>();
    assert_eq!(block.len(), 1, "one block archives a dataset: {block:?}");
    for _ in 0..3 {
        let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
        std::os::unix::fs::symlink(root.join("examples"), folder.path().join("examples")).unwrap();
        let port = address.rsplit(':').next().unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_tidings")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        // The shell of the reader stays; this one ends, and takes the repository with it.
        let script = format!("trap 'kill $!' EXIT\n{}", block[0].replace("8091", port));
        let mut shell = std::process::Command::new("bash");
        shell.args(["-ec", &script]).env("PATH", path).current_dir(folder.path());
        let output = shell.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains(&format!("success http://{address}/datasets/1")), "{text}");
    }
}
