//! Lists of the repository with OAI-PMH: pages at the beginning, in the middle and at the end of a long list, and a
//! harvest of the whole list, compared with nginx, which serves the same pages from files.
//!
//! The gateway is the real program with its journal on disk. `TIDINGS_BENCH_RECORDS` sets another number of records.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::runtime::Runtime;

use super::{
    harvests::write_config,
    http::{require, servers::Nginx},
    journal::{SENDERS, append_batches, close, draft_of, open, runtime},
    measure::{Contender, compare},
    streams::Server,
};

/// Number of records, unless the variable says another one.
const RECORDS: u64 = 100_000;

/// Number of records of a page: the default of the gateway.
const PAGE: usize = 100;

/// Number of records appended in a round while the journal is filled.
const FILL: u64 = 10_000;

/// Number of requests for the same page in a turn.
const REQUESTS: u64 = 50;

/// Number of turns of each page.
const TURNS: usize = 21;

/// Number of harvests.
const ROUNDS: usize = 3;

/// Name of the file with the first page, which has no token.
const FIRST: &str = "first";

pub(crate) fn measure() {
    require(&[("nginx", "nginx-light")]);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let records = std::env::var("TIDINGS_BENCH_RECORDS").map_or(RECORDS, |number| number.parse().unwrap());
    let (runtime, folder) = (runtime(), tempfile::tempdir().unwrap());
    // If root starts nginx, its workers run as another user.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fill(&runtime, &folder.path().join("data"), records);
    let gateway = gateway(folder.path());
    let list =
        List { client: reqwest::Client::builder().no_proxy().build().unwrap(), url: format!("{}/oai", gateway.url) };
    let pages = folder.path().join("pages");
    fs::create_dir(&pages).unwrap();
    let tokens = runtime.block_on(list.save(&pages));
    measure_pages(&runtime, &list, &tokens, records);
    let nginx = Nginx::of_pages(&pages);
    let saved_list = List { client: list.client.clone(), url: nginx.url.clone() };
    let first = format!("verb=ListRecords&resumptionToken={FIRST}");
    compare(
        &format!("harvest of a repository with {records} records, {PAGE} a page"),
        "records",
        ROUNDS,
        vec![
            Contender::timed("nginx, the same pages from files", || runtime.block_on(saved_list.harvest(&first))),
            Contender::timed("Tidings", || runtime.block_on(list.harvest(ALL))),
        ],
    );
}

/// Fills a new journal with objects.
fn fill(runtime: &Runtime, folder: &Path, records: u64) {
    let (journal, writer) = open(folder);
    for from in (0..records).step_by(FILL as usize) {
        let drafts = (from..records.min(from + FILL)).map(|number| draft_of(number, records)).collect();
        append_batches(runtime, &journal, drafts, SENDERS);
    }
    close(journal, writer);
}

/// Starts the gateway as a repository.
fn gateway(folder: &Path) -> Server {
    let config = write_config(folder, "[oai_pmh]\nadmin_email = \"admin@repository.example.org\"\n");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_tidings"));
    serve.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(config);
    serve.arg("--data").arg(folder.join("data"));
    Server::start(serve)
}

/// Compares pages at three places of the list.
fn measure_pages(runtime: &Runtime, list: &List, tokens: &[String], records: u64) {
    // The last page can have fewer records.
    let [beginning, middle, end] = [0, tokens.len() / 2, tokens.len().saturating_sub(2)].map(|place| &tokens[place]);
    let rates = compare(
        &format!("a page of {PAGE} records of {records}"),
        "pages",
        TURNS,
        vec![
            Contender::timed("at the beginning of the list", || runtime.block_on(list.repeat(beginning))),
            Contender::timed("in the middle", || runtime.block_on(list.repeat(middle))),
            Contender::timed("at the end", || runtime.block_on(list.repeat(end))),
        ],
    );
    let times: Vec<_> = rates.iter().map(|rate| 1000.0 / rate).collect();
    println!(
        "\nA page takes {:.2} ms at the beginning, {:.2} ms in the middle and {:.2} ms at the end, {:.2} of the first.",
        times[0],
        times[1],
        times[2],
        times[2] / times[0]
    );
}

/// Query of the first page of all records.
const ALL: &str = "verb=ListRecords&metadataPrefix=oai_dc";

/// List of records at a URL.
struct List {
    client: reqwest::Client,
    url: String,
}

impl List {
    async fn get(&self, query: &str) -> Bytes {
        let response = self.client.get(format!("{}?{query}", self.url)).send().await.unwrap();
        assert_eq!(response.status(), 200, "{query}");
        response.bytes().await.unwrap()
    }

    /// Requests a page with a token again and again.
    async fn repeat(&self, token: &str) -> (u64, Duration) {
        let query = format!("verb=ListRecords&resumptionToken={token}");
        let began = Instant::now();
        for _ in 0..REQUESTS {
            assert_eq!(records_of(&self.get(&query).await), PAGE);
        }
        (REQUESTS, began.elapsed())
    }

    /// Writes each page into a file with the name of its token; returns the tokens.
    async fn save(&self, folder: &Path) -> Vec<String> {
        let (mut tokens, mut name, mut page) = (Vec::new(), FIRST.to_owned(), self.get(ALL).await);
        loop {
            fs::write(folder.join(&name), &page).unwrap();
            let Some(token) = token_of(&page) else { return tokens };
            page = self.get(&format!("verb=ListRecords&resumptionToken={token}")).await;
            tokens.push(token.clone());
            name = token;
        }
    }

    /// Reads all pages from a first one; returns the number of records and the time.
    async fn harvest(&self, first: &str) -> (u64, Duration) {
        let began = Instant::now();
        let (mut records, mut page) = (0, self.get(first).await);
        loop {
            records += records_of(&page) as u64;
            let Some(token) = token_of(&page) else { return (records, began.elapsed()) };
            page = self.get(&format!("verb=ListRecords&resumptionToken={token}")).await;
        }
    }
}

/// Returns the number of records of a page.
fn records_of(page: &[u8]) -> usize {
    std::str::from_utf8(page).unwrap().matches("<record>").count()
}

/// Returns the token of a page, unless it is the last one.
fn token_of(page: &[u8]) -> Option<String> {
    let (_, element) = std::str::from_utf8(page).unwrap().rsplit_once("<resumptionToken")?;
    let token = element.split_once('>').unwrap().1.split('<').next().unwrap();
    (!token.trim().is_empty()).then(|| token.to_owned())
}
