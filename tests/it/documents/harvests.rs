//! Harvests of repositories, feeds and other gateways, one document from several hosts at once.

use serde_json::{Value, json};
use wiremock::{Mock, MockServer, Request, ResponseTemplate, matchers::any};

use super::many;
use crate::support::resource_watch::WatchedGateway;

/// Number of harvests at work, each from a host of its own, because a host gets one request at a time.
pub(super) const HARVESTS: usize = 8;

/// Number of harvests of a document of which 20 000 records are written, unless the documents are made larger.
const FEW_HARVESTS: usize = 2;

/// Protocol of a harvest.
#[derive(Clone, Copy)]
pub(super) enum Protocol {
    OaiPmh,
    Feed,
    Gateway,
}

/// Result that a harvest must have with a document.
#[derive(Clone, Copy)]
pub(super) enum Outcome {
    /// Refuse it, for a reason that contains this text.
    Refused(&'static str),
    /// Refuse its end, for a reason that contains this text, after thousands of records were read.
    Cut(&'static str),
    /// Read this number of records or more.
    Read(u64),
}
use Outcome::{Cut, Read, Refused};

const OAI: &str = "http://www.openarchives.org/OAI/2.0/";

/// Returns a page of `ListRecords` with attributes of its root, and this content of the list.
pub(super) fn list(attributes: &str, content: &str) -> Vec<u8> {
    format!(
        "<OAI-PMH xmlns='{OAI}'{attributes}><responseDate>2026-01-01T00:00:00Z</responseDate><ListRecords>{content}\
         </ListRecords></OAI-PMH>"
    )
    .into_bytes()
}

pub(super) fn record(number: usize, metadata: &str) -> String {
    format!(
        "<record><header><identifier>oai:h:{number}</identifier><datestamp>2026-01-01</datestamp></header>\
         <metadata>{metadata}</metadata></record>\n"
    )
}

pub(super) fn atom(attributes: &str, content: &str) -> Vec<u8> {
    format!("<feed xmlns='http://www.w3.org/2005/Atom'{attributes}><id>f</id>{content}</feed>").into_bytes()
}

pub(super) fn snapshot(objects: &str) -> Vec<u8> {
    format!(
        "{{\"journal\":\"00000000-0000-0000-0000-000000000001\",\"head\":0,\"seeds\":0,\"next\":null,\"objects\":[{objects}]}}"
    )
    .into_bytes()
}

/// Harvests of one document that are at work.
pub(super) struct Harvests<'g> {
    gateway: &'g WatchedGateway,
    document: &'static str,
    outcome: Outcome,
    names: Vec<String>,
    _hosts: Vec<MockServer>,
    /// Runs that have ended.
    ended: Vec<Value>,
}

impl<'g> Harvests<'g> {
    /// Starts the harvests of a document, which each host sends compressed.
    pub(super) async fn start(
        gateway: &'g WatchedGateway,
        document: &'static str,
        (protocol, outcome): (Protocol, Outcome),
        compressed: Vec<u8>,
    ) -> Self {
        let kind = match protocol {
            Protocol::OaiPmh => "oai-pmh",
            Protocol::Feed => "feed",
            Protocol::Gateway => "gateway",
        };
        let few = matches!(outcome, Cut(_)) && many(1) == 1;
        let (mut names, mut hosts) = (Vec::new(), Vec::new());
        for number in 0..if few { FEW_HARVESTS } else { HARVESTS } {
            let host = host(compressed.clone()).await;
            let name = format!("{kind}-{number}");
            let definition =
                json!({ "name": name, "transport": kind, "dialect": kind, "url": host.uri(), "every": "1h" });
            let (status, answer) = gateway.ask("POST", "/harvests", Some(definition)).await;
            assert_eq!(status, 201, "{answer}");
            names.push(name);
            hosts.push(host);
        }
        Self { gateway, document, outcome, names, _hosts: hosts, ended: Vec::new() }
    }

    /// Returns whether all harvests have ended.
    pub(super) async fn have_ended(&mut self) -> bool {
        self.ended.clear();
        for harvest in &self.names {
            let (_, found) = self.gateway.ask("GET", &format!("/harvests/{harvest}"), None).await;
            let run = found["runs"][0].clone();
            if matches!(run["state"].as_str(), Some("completed" | "failed")) {
                self.ended.push(run);
            } else if matches!(self.outcome, Refused(reason) if found["lastError"].to_string().contains(reason)) {
                // It will be tried again.
                self.ended.push(json!({ "reason": found["lastError"] }));
            }
        }
        self.ended.len() == self.names.len()
    }

    /// Returns the number of harvests that have not ended.
    pub(super) fn at_work(&self) -> usize {
        self.names.len() - self.ended.len()
    }

    /// Checks the outcome, and removes the harvests.
    pub(super) async fn finish(self) {
        for run in &self.ended {
            match self.outcome {
                Refused(reason) | Cut(reason) => {
                    assert!(run["reason"].to_string().contains(reason), "{}: {run}", self.document);
                }
                Read(least) => assert!(run["records"].as_u64() >= Some(least), "{}: {run}", self.document),
            }
        }
        for harvest in &self.names {
            assert_eq!(self.gateway.ask("DELETE", &format!("/harvests/{harvest}"), None).await.0, 204);
        }
    }
}

/// Starts a host that answers each list with a document, compressed.
async fn host(compressed: Vec<u8>) -> MockServer {
    let server = MockServer::start().await;
    let respond = move |request: &Request| {
        let query = request.url.query().unwrap_or_default();
        if query.contains("verb=Identify") {
            // Without earlier dates, so that the list cannot be divided.
            let today = chrono::Utc::now().format("%Y-%m-%d");
            return ResponseTemplate::new(200).set_body_string(format!(
                "<OAI-PMH xmlns='{OAI}'><Identify><baseURL>http://h/</baseURL><granularity>YYYY-MM-DD</granularity>\
                 <deletedRecord>no</deletedRecord><earliestDatestamp>{today}</earliestDatestamp></Identify></OAI-PMH>"
            ));
        }
        if query.contains("verb=GetRecord") || request.url.path().ends_with("/changes") {
            return ResponseTemplate::new(404);
        }
        ResponseTemplate::new(200).insert_header("content-encoding", "gzip").set_body_bytes(compressed.clone())
    };
    Mock::given(any()).respond_with(respond).mount(&server).await;
    server
}
