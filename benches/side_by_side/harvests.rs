//! Harvests over OAI-PMH, compared with a bare loop over the same HTTP client, which looks only for the resumption token,
//! and with Sickle (PyPI), which writes the same records into a file.
//!
//! The repository answers from memory, in the process of the benchmark. The gateway is the real program with its journal
//! on disk. Its time is that of the run, from the first request to the last page on disk.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{Router, extract::RawQuery, http::header::CONTENT_TYPE, response::IntoResponse, routing::get};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde_json::Value;
use tokio::{net::TcpListener, runtime::Runtime, time::sleep};

use super::{
    downloads::HarvestingGateway,
    journal::runtime,
    measure::{Contender, compare},
};

const RECORDS: usize = 100_000;

/// Number of records of a page: that of DSpace.
const PAGE: usize = 100;

const ROUNDS: usize = 3;

pub(crate) fn measure() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (runtime, folder) = (runtime(), tempfile::tempdir().unwrap());
    let url = repository(&runtime, RECORDS);
    let rates = compare(
        &format!("harvest of {RECORDS} records, {PAGE} a page"),
        "records",
        ROUNDS,
        vec![
            Contender::timed("reqwest in a bare loop", || runtime.block_on(bare_loop(&url))),
            Contender::timed("Sickle into a file", || sickle(&url, folder.path())),
            Contender::timed("Tidings, first run", || tidings(&runtime, &url).0),
            Contender::timed("Tidings, second run, nothing changed", || tidings(&runtime, &url).1),
        ],
    );
    println!("\nOf Sickle: first run {:.1}, second run {:.1}", rates[2] / rates[1], rates[3] / rates[1]);
}

/// Starts a repository with so many records, and returns its base URL.
pub(crate) fn repository(runtime: &Runtime, records: usize) -> String {
    let pages: Arc<[Bytes]> = (0..records / PAGE).map(|number| page(number, records)).collect();
    let answer = move |RawQuery(query): RawQuery| {
        let pages = Arc::clone(&pages);
        async move {
            let query = query.unwrap_or_default();
            let body = match query.split_once("resumptionToken=") {
                // The order of the arguments depends on the client.
                Some((_, rest)) => {
                    let token = rest.split('&').next().unwrap_or_default();
                    pages[token.parse::<usize>().unwrap()].clone()
                }
                None if query.contains("verb=Identify") => identify(),
                None => pages[0].clone(),
            };
            ([(CONTENT_TYPE, "text/xml;charset=UTF-8")], body).into_response()
        }
    };
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}/oai", listener.local_addr().unwrap());
    runtime.spawn(async move { axum::serve(listener, Router::new().route("/oai", get(answer))).await.unwrap() });
    url
}

fn document(verb: &str, attributes: &str, content: &str) -> Bytes {
    let now = Utc::now().format("%Y-%m-%dT%H:%M:%SZ");
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<OAI-PMH xmlns=\"http://www.openarchives.org/OAI/2.0/\">\
         <responseDate>{now}</responseDate><request verb=\"{verb}\"{attributes}>http://localhost/oai</request>\
         <{verb}>{content}</{verb}></OAI-PMH>"
    );
    text.into()
}

fn identify() -> Bytes {
    let content = "<repositoryName>Bench</repositoryName><baseURL>http://localhost/oai</baseURL>\
                   <protocolVersion>2.0</protocolVersion><adminEmail>a@example.org</adminEmail>\
                   <earliestDatestamp>2020-01-01T00:00:00Z</earliestDatestamp><deletedRecord>persistent</deletedRecord>\
                   <granularity>YYYY-MM-DDThh:mm:ssZ</granularity>";
    document("Identify", "", content)
}

fn page(number: usize, records: usize) -> Bytes {
    let now = Utc::now().format("%Y-%m-%dT%H:%M:%SZ");
    let record = |number: usize| {
        format!(
            "<record><header><identifier>oai:repository.example.org:{number}</identifier><datestamp>{now}</datestamp>\
             <setSpec>theses</setSpec></header><metadata>\
             <oai_dc:dc xmlns:oai_dc=\"http://www.openarchives.org/OAI/2.0/oai_dc/\" \
             xmlns:dc=\"http://purl.org/dc/elements/1.1/\"><dc:title>Thesis number {number} about the propagation of \
             changes in distributed collections</dc:title><dc:creator>Author, A. {number}</dc:creator>\
             <dc:subject>Digital libraries</dc:subject><dc:subject>Notification</dc:subject><dc:description>{}\
             </dc:description><dc:date>2024</dc:date><dc:type>thesis</dc:type><dc:format>application/pdf</dc:format>\
             <dc:identifier>https://repository.example.org/{number}/1/thesis.pdf</dc:identifier>\
             <dc:language>en</dc:language></oai_dc:dc></metadata></record>",
            "An abstract of some length. ".repeat(15)
        )
    };
    let text: String = (number * PAGE..(number + 1) * PAGE).map(record).collect();
    let next = if number + 1 < records / PAGE { (number + 1).to_string() } else { String::new() };
    let token = format!(
        "<resumptionToken completeListSize=\"{records}\" cursor=\"{}\">{next}</resumptionToken>",
        number * PAGE
    );
    document("ListRecords", " metadataPrefix=\"oai_dc\"", &(text + &token))
}

/// Requests all pages.
async fn bare_loop(url: &str) -> (u64, Duration) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let began = Instant::now();
    let mut query = "verb=ListRecords&metadataPrefix=oai_dc".to_owned();
    loop {
        let body = client.get(format!("{url}?{query}")).send().await.unwrap().bytes().await.unwrap();
        // The token is at the end.
        let end = std::str::from_utf8(&body[body.len().saturating_sub(200)..]).unwrap();
        let (_, token) = end.split_once("<resumptionToken").unwrap();
        let token = token.split_once('>').unwrap().1.split_once('<').unwrap().0;
        if token.is_empty() {
            return (RECORDS as u64, began.elapsed());
        }
        query = format!("verb=ListRecords&resumptionToken={token}");
    }
}

const SICKLE: &str = "
import sys, time
from sickle import Sickle
began = time.monotonic()
count = 0
with open(sys.argv[2], 'w') as out:
    for record in Sickle(sys.argv[1]).ListRecords(metadataPrefix='oai_dc'):
        out.write(record.raw)
        count += 1
print(count, time.monotonic() - began)
";

fn sickle(url: &str, folder: &Path) -> (u64, Duration) {
    let venv = Command::new("scripts/venv").arg("sickle").output().unwrap();
    assert!(venv.status.success(), "{}", String::from_utf8_lossy(&venv.stderr));
    let python = format!("{}/bin/python", String::from_utf8(venv.stdout).unwrap().trim());
    let run = Command::new(python).args(["-c", SICKLE, url]).arg(folder.join("sickle.xml")).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let output = String::from_utf8(run.stdout).unwrap();
    let (count, seconds) = output.trim().split_once(' ').unwrap();
    assert_eq!(count, RECORDS.to_string());
    (RECORDS as u64, Duration::from_secs_f64(seconds.parse().unwrap()))
}

/// Harvests the repository twice with an empty journal.
fn tidings(runtime: &Runtime, url: &str) -> ((u64, Duration), (u64, Duration)) {
    let folder = tempfile::tempdir().unwrap();
    let gateway = HarvestingGateway::start(folder.path(), &source(url));
    runtime.block_on(async {
        let first = run(&gateway, 1).await;
        assert_eq!(first.changes, RECORDS as u64);
        gateway.post("/harvests/bench/run").await;
        let second = run(&gateway, 2).await;
        assert_eq!(second.changes, 0);
        ((RECORDS as u64, first.duration), (RECORDS as u64, second.duration))
    })
}

/// Returns the table of the source, which is harvested once after the start.
pub(crate) fn source(url: &str) -> String {
    format!(
        "[sources.bench]\ntransport = \"oai-pmh\"\ndialect = \"oai-pmh\"\nurl = \"{url}\"\nevery = \"366d\"\n\
         overlap = \"30d\"\n"
    )
}

/// A complete run.
struct CompleteRun {
    changes: u64,
    duration: Duration,
}

/// Waits until a source has this number of complete runs, and returns the newest one.
async fn run(gateway: &HarvestingGateway, runs: usize) -> CompleteRun {
    loop {
        let harvest = gateway.json("/harvests/bench").await;
        let newest = &harvest["runs"][0];
        assert_ne!(newest["state"], "failed", "{newest}");
        if harvest["runs"].as_array().map_or(0, Vec::len) == runs && newest["state"] == "completed" {
            return CompleteRun { changes: newest["changes"].as_u64().unwrap(), duration: duration(newest) };
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Returns the duration of a run.
pub(crate) fn duration(run: &Value) -> Duration {
    let time = |name: &str| DateTime::parse_from_rfc3339(run[name].as_str().unwrap()).unwrap();
    (time("updated") - time("started")).to_std().unwrap()
}

/// Writes the configuration of a gateway.
pub(crate) fn write_config(folder: &Path, lines: &str) -> std::path::PathBuf {
    let path = folder.join("tidings.toml");
    fs::write(&path, lines).unwrap();
    path
}
