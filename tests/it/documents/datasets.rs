//! Jobs that archive datasets, as many at once as the default configuration allows: each of them reads a document of the
//! table, and the next one follows as soon as it has ended.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{
    gzip,
    table::{DOCUMENTS, Partner},
};
use crate::support::{
    gateway::Gateway,
    resource_watch::WatchedGateway,
    scripted_platform::{Answer, PlatformServer},
};

/// Number of jobs at once, each at a server with an address of its own, because a host has one place among the jobs.
pub(super) const JOBS: usize = 4;

/// Configuration of the source that archives datasets.
pub(super) const SOURCES: &str = "[sources.requests]\ntransport = \"http\"\ndialect = \"fileset-request\"\n\
     [sources.archive]\ntransport = \"fileset\"\ndialect = \"fileset-result\"\nof = [\"requests\"]\n";

/// Returns a text that repeats a piece up to a size.
pub(super) fn filled(start: &str, piece: &str, bytes: usize, end: &str) -> Vec<u8> {
    let count = bytes.saturating_sub(start.len() + end.len()) / piece.len();
    [start, &piece.repeat(count), end].concat().into_bytes()
}

/// Returns a text with numbered pieces.
pub(super) fn numbered(start: &str, count: usize, piece: impl Fn(usize) -> String, end: &str) -> Vec<u8> {
    let mut content = start.to_owned();
    (0..count).for_each(|n| content += &piece(n));
    (content + end).into_bytes()
}

/// A document of a platform.
struct Row {
    path: &'static str,
    /// Status with which an attempt must end.
    status: &'static str,
    answer: Answer,
}

/// Requests of datasets, one for each document and server in turn.
pub(super) struct Datasets<'g> {
    gateway: &'g WatchedGateway,
    servers: Vec<PlatformServer>,
    rows: Vec<Row>,
    /// Number of requests so far.
    requested: usize,
    /// Jobs that have not ended: the URL of each dataset, with the status that it must get.
    at_work: HashMap<String, &'static str>,
    /// Number of jobs that have run at the same time.
    pub(super) most_running: usize,
}

impl<'g> Datasets<'g> {
    /// Starts the servers.
    pub(super) async fn start(gateway: &'g WatchedGateway) -> Self {
        let rows = DOCUMENTS.iter().filter_map(|document| {
            let Partner::Platform(path, status) = document.partner else { return None };
            let media_type = if path.ends_with(".json") { "application/json" } else { "text/html" };
            let answer = Answer::new(200, gzip(&(document.make)()));
            let answer = answer.with("content-type", media_type).with("content-encoding", "gzip");
            Some(Row { path, status, answer })
        });
        let (rows, servers) = (rows.collect(), servers().await);
        Self { gateway, servers, rows, requested: 0, at_work: HashMap::new(), most_running: 0 }
    }

    /// Returns the number of documents.
    pub(super) fn documents(&self) -> usize {
        self.rows.len()
    }

    /// Returns the number of jobs that have ended.
    pub(super) fn ended(&self) -> usize {
        self.requested - self.at_work.len()
    }

    /// Checks the jobs that have ended. Returns the number of jobs that run.
    pub(super) async fn observe(&mut self) -> usize {
        let jobs = self.gateway.json("/filesets?limit=100").await;
        let mut running = 0;
        for job in jobs["filesets"].as_array().unwrap() {
            running += usize::from(job["state"] == "running");
            let dataset = job["dataset"].as_str().unwrap();
            if has_ended(job)
                && let Some(status) = self.at_work.remove(dataset)
            {
                assert_eq!(job["status"], status, "{job}");
            }
        }
        self.most_running = self.most_running.max(running);
        running
    }

    /// Requests further datasets, so that each server has two: one whose job runs, and one that waits.
    pub(super) async fn request_more(&mut self) {
        while self.at_work.len() < 2 * JOBS {
            let (number, rows, servers) = (self.requested, self.rows.len(), self.servers.len());
            let (row, server) = (&self.rows[number % rows], &self.servers[number % servers]);
            // A path of its own, because a dataset has one job.
            let path = format!("/{number}{}", row.path);
            server.put(&path, row.answer.clone());
            let dataset = format!("{}{path}", server.url);
            request(self.gateway, &dataset).await;
            self.at_work.insert(dataset, row.status);
            self.requested += 1;
        }
    }
}

/// Returns whether the first attempt of a job has ended.
fn has_ended(job: &Value) -> bool {
    job["attempts"].as_u64() > Some(0) || !matches!(job["state"].as_str(), Some("waiting" | "running"))
}

/// Starts as many servers as jobs can run at once.
pub(super) async fn servers() -> Vec<PlatformServer> {
    let mut servers = Vec::new();
    for number in 1..=JOBS {
        servers.push(PlatformServer::start_at(&format!("127.0.0.{number}")).await);
    }
    servers
}

/// Requests that a dataset is archived.
pub(super) async fn request(gateway: &Gateway, dataset: &str) {
    let request = json!({ "ingest_type": "dataset", "base_url": dataset, "link_source": "doi",
        "ext_ids": { "doi": "10.5072/x.1" } });
    let (status, answer) = gateway.post("requests", "application/json", request.to_string()).await;
    assert_eq!(status, 201, "{answer}");
}
