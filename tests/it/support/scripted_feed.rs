//! Server with a feed whose documents and responses a test scripts.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use serde_json::Value;
use tidings::{
    harvest::{
        Mode, Schedule, Timeouts,
        feed::{EntryMeaning, FeedSettings},
        status::{HarvestState, HarvestStatus},
    },
    http_client::{OutboundPolicy, OutboundUrl},
    journal::harvest::{HarvestRun, RunState},
    model::{Seq, Timestamp},
};
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate, matchers::any};

use super::{
    harvest_fixture::{changes_after, run_once, run_until, source, stop_at},
    journal_fixture::OpenJournal,
};

/// Documents by path and query, and the requests so far.
#[derive(Default)]
pub(crate) struct FeedScript {
    /// Documents, each with its validator.
    pub(crate) documents: BTreeMap<String, ScriptedDocument>,
    /// Statuses of the next responses, each with headers, instead of a document.
    pub(crate) statuses: VecDeque<(u16, Vec<(&'static str, String)>)>,
    pub(crate) requests: Vec<ScriptedRequest>,
}

#[derive(Clone, Default)]
pub(crate) struct ScriptedDocument {
    pub(crate) body: Vec<u8>,
    pub(crate) etag: Option<String>,
    pub(crate) status: Option<u16>,
    /// Time until the response.
    pub(crate) response_time: Duration,
    pub(crate) headers: Vec<(&'static str, String)>,
}

#[derive(Clone, Debug)]
pub(crate) struct ScriptedRequest {
    pub(crate) path: String,
    pub(crate) if_none_match: Option<String>,
    pub(crate) if_modified_since: Option<String>,
    pub(crate) is_delta_accepted: bool,
    pub(crate) body: String,
}

/// Harvest of a scripted feed into a journal.
pub(crate) struct FeedFixture {
    server: MockServer,
    script: Arc<Mutex<FeedScript>>,
    pub(crate) journal: OpenJournal,
    pub(crate) settings: FeedSettings,
    pub(crate) max_record_bytes: usize,
    status: Arc<HarvestStatus>,
    _folder: tempfile::TempDir,
}

struct Handler(Arc<Mutex<FeedScript>>);

impl Respond for Handler {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let mut script = self.0.lock().unwrap();
        let header = |name: &str| request.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let path = match request.url.query() {
            Some(query) => format!("{}?{query}", request.url.path()),
            None => request.url.path().to_owned(),
        };
        let if_none_match = header("if-none-match");
        let if_modified_since = header("if-modified-since");
        let is_delta_accepted = header("a-im").as_deref() == Some("feed");
        script.requests.push(ScriptedRequest {
            path: path.clone(),
            if_none_match: if_none_match.clone(),
            if_modified_since: if_modified_since.clone(),
            is_delta_accepted,
            body: String::from_utf8_lossy(&request.body).into_owned(),
        });
        if let Some((status, headers)) = script.statuses.pop_front() {
            let response = ResponseTemplate::new(status);
            return headers
                .into_iter()
                .fold(response, |response, (name, value)| response.insert_header(name, value.as_str()));
        }
        let Some(document) = script.documents.get(&path) else { return ResponseTemplate::new(404) };
        let last_modified = document.headers.iter().find(|(name, _)| *name == "last-modified");
        let is_unmodified = last_modified.is_some_and(|(_, date)| if_modified_since.as_ref() == Some(date));
        let response = match &document.etag {
            _ if is_unmodified => ResponseTemplate::new(304),
            Some(etag) if if_none_match.as_ref() == Some(etag) => ResponseTemplate::new(304),
            Some(etag) => ResponseTemplate::new(200).insert_header("etag", etag.as_str()),
            None => ResponseTemplate::new(document.status.unwrap_or(200)),
        };
        let response = document
            .headers
            .iter()
            .fold(response, |response, (name, value)| response.insert_header(*name, value.as_str()));
        response.set_body_bytes(document.body.clone()).set_delay(document.response_time)
    }
}

impl FeedFixture {
    /// Starts a server with this feed at `/feed.xml`, and an empty journal.
    pub(crate) async fn start(feed: &str) -> Self {
        let (folder, server) = (tempfile::tempdir().unwrap(), MockServer::start().await);
        let script = Arc::new(Mutex::new(FeedScript::default()));
        Mock::given(any()).respond_with(Handler(Arc::clone(&script))).mount(&server).await;
        let settings = FeedSettings {
            url: OutboundUrl::parse(&format!("{}/feed.xml", server.uri()), &OutboundPolicy::unrestricted()).unwrap(),
            ca: None,
            page_bytes: 1 << 20,
            timeouts: Timeouts { busy: Duration::from_millis(10), ..Timeouts::default() },
            entries: EntryMeaning::Objects,
            websub: true,
        };
        let journal = OpenJournal::at(folder.path());
        let (max_record_bytes, status) = (1 << 20, Arc::default());
        let fixture = Self { server, script, journal, settings, max_record_bytes, status, _folder: folder };
        fixture.put(feed, None);
        fixture
    }

    pub(crate) fn url(&self) -> String {
        self.server.uri()
    }

    pub(crate) fn script(&self) -> MutexGuard<'_, FeedScript> {
        self.script.lock().unwrap()
    }

    /// Replaces the feed, with this validator.
    pub(crate) fn put(&self, feed: &str, etag: Option<&str>) {
        self.put_bytes(feed.as_bytes(), etag);
    }

    /// Puts a document at a path, with its query.
    pub(crate) fn put_at(&self, path: &str, feed: &str) {
        let document = ScriptedDocument { body: feed.as_bytes().to_vec(), ..ScriptedDocument::default() };
        self.script().documents.insert(path.to_owned(), document);
    }

    /// Puts a document at a path that arrives after an hour.
    pub(crate) fn hold(&self, path: &str) {
        let document = ScriptedDocument { response_time: Duration::from_secs(3600), ..ScriptedDocument::default() };
        self.script().documents.insert(path.to_owned(), document);
    }

    /// Begins a run, and stops it when the stored position contains a text.
    pub(crate) async fn stop_at(&self, text: &str) {
        stop_at(&self.journal, &self.settings, text).await;
    }

    /// Puts a document with another status than 200 at a path.
    pub(crate) fn put_status(&self, path: &str, status: u16, feed: &str) {
        let body = feed.as_bytes().to_vec();
        let document = ScriptedDocument { body, status: Some(status), ..ScriptedDocument::default() };
        self.script().documents.insert(path.to_owned(), document);
    }

    /// Returns all that the journal has stored about the harvest.
    pub(crate) async fn positions(&self) -> String {
        format!("{:?}", self.journal.journal.harvest(source()).await.unwrap())
    }

    /// Returns the paths of the requests since the last call.
    pub(crate) fn take_paths(&self) -> Vec<String> {
        let requests = std::mem::take(&mut self.script().requests);
        requests.into_iter().map(|request| request.path).collect()
    }

    /// Replaces the feed by bytes, with this validator.
    pub(crate) fn put_bytes(&self, feed: &[u8], etag: Option<&str>) {
        let document =
            ScriptedDocument { body: feed.to_vec(), etag: etag.map(str::to_owned), ..ScriptedDocument::default() };
        self.script().documents.insert("/feed.xml".to_owned(), document);
    }

    /// Executes one run to its end, and returns it.
    pub(crate) async fn run(&self) -> HarvestRun {
        run_once(&self.journal, &self.settings, self.max_record_bytes, &self.status).await
    }

    /// Executes one run of a harvest with a run each second; returns the time of the next run.
    pub(crate) async fn next_run(&self) -> Timestamp {
        let schedule = Schedule::new(Mode::Periodic, Duration::from_secs(1), Duration::ZERO);
        let next = Mutex::new(None);
        run_until(&self.journal, &self.settings, self.max_record_bytes, &Arc::default(), schedule, |status| {
            let view = status.view();
            *next.lock().unwrap() = view.next.filter(|_| view.state == HarvestState::Waiting);
            next.lock().unwrap().is_some()
        })
        .await;
        next.into_inner().unwrap().expect("the harvest waits for a run")
    }

    /// Executes one run, which must complete.
    pub(crate) async fn complete(&self) -> HarvestRun {
        let run = self.run().await;
        assert_eq!(run.state, RunState::Completed, "{run:?}");
        run
    }

    /// Returns the remarks of the newest run.
    pub(crate) fn remarks(&self) -> String {
        self.status.view().remarks.join("\n")
    }

    /// Executes one run, which must fail; returns the reason and the run.
    pub(crate) async fn fail(&self) -> (String, HarvestRun) {
        let run = self.run().await;
        assert_eq!(run.state, RunState::Failed, "{run:?}");
        (run.reason.clone().unwrap().into(), run)
    }

    /// Returns the position as JSON.
    pub(crate) async fn position(&self) -> Value {
        let stored = self.journal.journal.harvest(source()).await.unwrap().unwrap();
        serde_json::from_str(&stored.position).unwrap()
    }

    /// Returns all changes after a number: the kind of change and the URI of each item.
    pub(crate) async fn changes_after(&self, seq: Seq) -> Vec<(String, String)> {
        changes_after(&self.journal, seq).await
    }

    /// Returns the validators of the requests so far.
    pub(crate) fn validators(&self) -> Vec<Option<String>> {
        self.script().requests.iter().map(|request| request.if_none_match.clone()).collect()
    }
}

/// Returns an RSS feed with these items.
pub(crate) fn rss(items: &[String]) -> String {
    format!(
        "<?xml version='1.0'?><rss version='2.0'><channel><title>News</title><link>http://h.example/</link>{}</channel></rss>",
        items.concat()
    )
}

/// Returns an item of RSS with the id `urn:entry:NUMBER`.
pub(crate) fn item(number: u32, title: &str) -> String {
    format!(
        "<item><guid isPermaLink='false'>urn:entry:{number}</guid><link>http://h.example/{number}</link><title>{title}</title></item>"
    )
}
