//! Configuration whose sources have a fake repository, and `tidings seed-registry` with that configuration.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    command_line::{CommandResult, ended},
    crawled_repository::{CrawledRepository, RestApi},
    fedora3_messages::BASE,
    gateway::{Gateway, command, free_address},
};

/// Base URL that Fedora 6 has in its messages.
pub(crate) const BASE_6: &str = "http://localhost:8080/fcrepo/rest";

/// Configuration with a repository, and the data folder of a gateway.
pub(crate) struct CrawlFixture {
    folder: TempDir,
    pub(crate) config: PathBuf,
    pub(crate) listen: String,
}

impl CrawlFixture {
    /// Gives both sources the same repository. Each source expects its own base URL in messages.
    pub(crate) fn of<T: RestApi>(repository: &CrawledRepository<T>) -> Self {
        Self::with(&repository.url(), "")
    }

    pub(crate) fn with(url: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("tidings.toml");
        let listen = free_address();
        let repository = |source: &str, base: &str| {
            format!("[sources.{source}.repository]\nurl = \"{url}\"\npublic_urls = [\"{base}\"]\n{more}")
        };
        let text =
            format!("[server]\nlisten = \"{listen}\"\n") + &repository("fedora3", BASE) + &repository("fedora", BASE_6);
        fs::write(&config, text).unwrap();
        Self { folder, config, listen }
    }

    pub(crate) fn gateway(&self) -> Gateway {
        Gateway::start_elsewhere(self.data(), &["--config", self.config.to_str().unwrap()], None)
    }

    pub(crate) fn data(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn command(&self, source: &str, more: &[&str]) -> Command {
        let mut command = command();
        command.args(["seed-registry", "--source", source, "--config"]).arg(&self.config).args(more);
        if !more.contains(&"--emit") {
            command.arg("--silent");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) async fn seed(&self, source: &str, more: &[&str]) -> CommandResult {
        let child = self.command(source, more).spawn().unwrap();
        // The fake repository runs on threads of this process, so this test must not block them.
        tokio::task::spawn_blocking(move || ended(child)).await.unwrap()
    }

    /// Runs the command, which must succeed; returns its summary.
    pub(crate) async fn seed_successfully(&self, source: &str, more: &[&str]) -> String {
        let (code, stdout, stderr) = self.seed(source, more).await;
        assert_eq!(code, 0, "{stdout}{stderr}");
        stdout
    }
}

pub(crate) async fn objects(gateway: &Gateway) -> Vec<Value> {
    let (mut after, mut all) = (String::new(), Vec::new());
    loop {
        let page = gateway.json(&format!("/snapshot?limit=1000{after}")).await;
        all.extend(page["objects"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next"].as_str() else { return all };
        after = format!("&after={next}");
    }
}

/// Posts one part of a crawl; returns the status and the response.
pub(crate) async fn post_part(gateway: &Gateway, source: &str, body: &Value) -> (u16, Value) {
    let url = format!("{}/sources/{source}/registry", gateway.url);
    let sent = gateway.http.post(url).json(body).send().await.unwrap();
    (sent.status().as_u16(), serde_json::from_slice(&sent.bytes().await.unwrap()).unwrap())
}
