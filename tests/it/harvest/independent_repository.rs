//! A repository by another implementation of OAI-PMH (oaipmh of PyPI), whose records change during the harvest, and kills
//! of the gateway and of the repository.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{
    gateway::{Gateway, PATIENCE, client, free_address},
    harvest_fixture::run_to_end,
    journal_fixture::{configuration, journal_file, verify_ok},
    python,
    run_length::lengthened,
};

const KILLS: u64 = 10;

struct Provider {
    python: PathBuf,
    address: String,
    state: PathBuf,
    child: Child,
}

impl Provider {
    async fn start(folder: &Path) -> Self {
        let python = python::environment("oaipmh");
        let (address, state) = (free_address(), folder.join("records.json"));
        let child = Self::spawn(&python, &address, &state);
        let provider = Self { python, address, state, child };
        provider.wait().await;
        provider
    }

    fn spawn(python: &Path, address: &str, state: &Path) -> Child {
        let mut command = Command::new(python);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/oaipmh_repository.py"));
        command.arg(address.rsplit(':').next().unwrap()).arg(state).stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().unwrap()
    }

    async fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = Self::spawn(&self.python, &self.address, &self.state);
        self.wait().await;
    }

    async fn wait(&self) {
        let began = Instant::now();
        while client().get(format!("http://{}/records", self.address)).send().await.is_err() {
            assert!(began.elapsed() < PATIENCE, "the repository does not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn freeze(&self) {
        assert!(client().post(format!("http://{}/freeze", self.address)).send().await.unwrap().status().is_success());
    }

    /// Returns the identifiers of the records.
    async fn records(&self) -> BTreeSet<String> {
        let answer = client().get(format!("http://{}/records", self.address)).send().await.unwrap();
        let titles: BTreeMap<String, String> = answer.json().await.unwrap();
        titles.into_keys().collect()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until the harvest has written more pages, or is finished.
async fn wait_for_pages(gateway: &Gateway, more: u64) {
    let began = Instant::now();
    let pages = async || {
        let harvest = gateway.json("/harvests/oaipmh").await;
        let runs = harvest["runs"].as_array().unwrap().iter();
        runs.map(|run| run["pages"].as_u64().unwrap()).sum::<u64>()
    };
    let before = pages().await;
    while pages().await < before + more {
        assert!(began.elapsed() < PATIENCE, "the harvest does not continue");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Follows the changes of each record: the last digest of those that exist. Asserts that no change is repeated.
fn replay(changes: &[Value]) -> BTreeMap<String, String> {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for change in changes {
        let item = &change["items"][0];
        let identifier = item["uri"].as_str().unwrap().rsplit('=').next().unwrap().replace("%3A", ":");
        let digest = item["content"]["digest"]["value"].as_str().unwrap_or_default().to_owned();
        let before = known.get(&identifier);
        match item["change"].as_str().unwrap() {
            "ADD" => assert_eq!(before, None, "{identifier} is there twice"),
            "UPDATE" => assert!(before.is_some_and(|before| *before != digest), "{identifier} has not changed"),
            "DELETE" => assert!(before.is_some(), "{identifier} is deleted twice"),
            other => panic!("{other}"),
        }
        if digest.is_empty() {
            known.remove(&identifier)
        } else {
            known.insert(identifier, digest)
        };
    }
    known
}

#[tokio::test]
async fn changing_repository_and_registry_agree_after_kills_of_both() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let mut provider = Provider::start(folder.path()).await;
    let source = format!(
        "[sources.oaipmh]\ntransport = \"oai-pmh\"\ndialect = \"oai-pmh\"\nurl = \"http://{}/oai\"\n\
         every = \"1s\"\njitter = \"1s\"\nfull_every = \"1s\"\nmax_deleted_percent = 50\n",
        provider.address
    );
    let config = configuration(folder.path(), &source);
    for kill in 0..lengthened(KILLS) {
        let mut gateway = Gateway::start_with(folder.path(), &["--config", &config]);
        wait_for_pages(&gateway, 4 + 5 * (kill % 4)).await;
        if kill % 2 == 0 {
            gateway.kill();
            provider.restart().await;
        } else {
            provider.restart().await;
            wait_for_pages(&gateway, 2).await;
            gateway.kill();
        }
    }
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    provider.freeze().await;
    // A run that had begun before, and one from the beginning.
    run_to_end(&gateway, "oaipmh").await;
    run_to_end(&gateway, "oaipmh").await;
    let known = replay(&gateway.changes().await);
    let records = provider.records().await;
    assert_eq!(known.keys().cloned().collect::<BTreeSet<_>>(), records);
    let deleted = gateway.changes().await.iter().filter(|change| change["items"][0]["change"] == "DELETE").count();
    assert!(deleted > 50, "{deleted}");
    let head = gateway.head().await;
    run_to_end(&gateway, "oaipmh").await;
    assert_eq!(gateway.head().await, head);
    assert!(gateway.stop().success());
    verify_ok(&journal_file(folder.path()));
}
