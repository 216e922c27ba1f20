//! Harvests of a scripted repository, in the process of the test.

use std::{collections::BTreeMap, net::Ipv4Addr, path::Path, sync::Arc, time::Duration};

use serde_json::Value;
use tidings::{
    files::{FileLinks, FileStoreLocation},
    format::{Headers, Limits, Message, ParsedMessage, dialect, oai_pmh},
    harvest::{
        Engine, HarvesterContext, HarvesterSettings, HarvestsHandle, Mode, Schedule, SharedClients, Timeouts, Waits,
        oai_pmh::{ListVerb, OaiPmhSettings, RecordKeeping},
        status::HarvestStatus,
    },
    http_client::{NameResolver, OutboundPolicy, OutboundUrl, ResolveFuture, SystemResolver},
    intake::Source,
    journal::harvest::{HarvestRun, RunState},
    model::{DraftItems, ItemChange, Seq, SourceName},
    transfer::{HarvestBudget, Hosts},
};
use tokio_util::sync::CancellationToken;

use super::{
    gateway::{Gateway, PATIENCE},
    journal_fixture::OpenJournal,
    scripted_repository::{ScriptedRepository, record_xml},
};

/// Harvest of a scripted repository into a journal.
pub(crate) struct HarvestFixture {
    pub(crate) repository: ScriptedRepository,
    pub(crate) journal: OpenJournal,
    pub(crate) settings: OaiPmhSettings,
    pub(crate) max_record_bytes: usize,
    pub(crate) status: Arc<HarvestStatus>,
    _folder: tempfile::TempDir,
}

pub(crate) fn source() -> SourceName {
    SourceName::parse("scripted").unwrap()
}

impl HarvestFixture {
    /// Starts a repository with this number of records, and an empty journal.
    pub(crate) async fn start(records: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let repository = ScriptedRepository::start(records).await;
        let journal = OpenJournal::at(folder.path());
        let settings = settings(&repository.url());
        let (max_record_bytes, status) = (1 << 20, Arc::default());
        Self { repository, journal, settings, max_record_bytes, status, _folder: folder }
    }

    /// Executes one run to its end, and returns it.
    pub(crate) async fn run(&self) -> HarvestRun {
        run_once(&self.journal, &self.settings, self.max_record_bytes, &self.status).await
    }

    /// Executes one run, which must complete.
    pub(crate) async fn complete(&self) -> HarvestRun {
        let run = self.run().await;
        assert_eq!(run.state, RunState::Completed, "{run:?}");
        run
    }

    /// Returns the position as JSON; null before the first page.
    pub(crate) async fn position(&self) -> Value {
        let stored = self.journal.journal.harvest(source()).await.unwrap();
        stored.map_or(Value::Null, |stored| serde_json::from_str(&stored.position).unwrap_or_default())
    }

    /// Returns the existing records of the registry, each with the digest of its metadata.
    pub(crate) async fn registered(&self) -> BTreeMap<String, String> {
        let objects = self.journal.journal.registry(None, 100_000).await.unwrap();
        let mut records = BTreeMap::new();
        for (object, state) in objects {
            for (item, _) in state.live_items() {
                assert_eq!(item, &object);
                let content = state.content(item).unwrap();
                let content: Value = serde_json::from_str(content.json()).unwrap();
                assert_eq!(content["mediaType"], "text/xml");
                assert_eq!(content["url"], object.as_str());
                records.insert(object.to_string(), content["digest"]["value"].as_str().unwrap().to_owned());
            }
        }
        records
    }

    /// Returns the records of the repository, as they should be in the registry.
    pub(crate) fn expected(&self) -> BTreeMap<String, String> {
        expected(&self.repository)
    }

    /// Asserts that registry and repository are equal.
    pub(crate) async fn assert_equal(&self) {
        let (registered, expected) = (self.registered().await, self.expected());
        assert_eq!(registered, expected);
    }
}

/// Executes one run of a harvest to its end, and returns it.
pub(crate) async fn run_once(
    journal: &OpenJournal,
    settings: &dyn HarvesterSettings,
    max_record_bytes: usize,
    status: &Arc<HarvestStatus>,
) -> HarvestRun {
    let schedule = Schedule::new(Mode::Once, Duration::from_secs(3600), Duration::ZERO);
    run_until(journal, settings, max_record_bytes, status, schedule, |_| true).await
}

/// Executes runs of a harvest on this schedule, the first one on request, until one has ended and the status meets a
/// condition; returns the newest run.
pub(crate) async fn run_until(
    journal: &OpenJournal,
    settings: &dyn HarvesterSettings,
    max_record_bytes: usize,
    status: &Arc<HarvestStatus>,
    schedule: Schedule,
    condition: impl Fn(&HarvestStatus) -> bool,
) -> HarvestRun {
    let runs = async || journal.journal.harvest_runs(source(), None, 1).await.unwrap().pop();
    let newest = runs().await;
    let is_interrupted = newest.as_ref().is_some_and(|run| run.state == RunState::Running);
    let before = newest.filter(|_| !is_interrupted).map(|run| run.id);
    if !is_interrupted {
        status.hurry();
        journal.journal.request_harvest(source()).await.unwrap();
    }
    let engine = engine(journal, settings, max_record_bytes, status, schedule).await;
    let stop = CancellationToken::new();
    let task = tokio::spawn(engine.run(stop.clone()));
    let ended = async {
        loop {
            match runs().await.filter(|run| Some(run.id) != before && run.state != RunState::Running) {
                Some(run) if condition(status) => return run,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let run = tokio::time::timeout(PATIENCE, ended).await.expect("the run ends");
    stop.cancel();
    task.await.unwrap();
    run
}

/// Begins a run, and stops it when the stored position contains a text.
pub(crate) async fn stop_at(journal: &OpenJournal, settings: &dyn HarvesterSettings, text: &str) {
    journal.journal.request_harvest(source()).await.unwrap();
    let schedule = Schedule::new(Mode::Once, Duration::from_secs(3600), Duration::ZERO);
    let status = Arc::<HarvestStatus>::default();
    status.hurry();
    let engine = engine(journal, settings, 1 << 20, &status, schedule).await;
    let stop = CancellationToken::new();
    let task = tokio::spawn(engine.run(stop.clone()));
    let reached = async {
        while !journal.journal.harvest(source()).await.unwrap().unwrap().position.contains(text) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.expect("the run gets there");
    stop.cancel();
    task.await.unwrap();
}

/// Returns all changes after a number: the kind of change and the URI of each item.
pub(crate) async fn changes_after(journal: &OpenJournal, seq: Seq) -> Vec<(String, String)> {
    let changes = journal.journal.after(seq, 10_000).await.unwrap();
    let items = changes.iter().flat_map(|change| {
        let change = change.change().unwrap();
        let items = change.modification.items.iter();
        items.map(|item| (kind_of(&item.change), item.uri.as_str().to_owned())).collect::<Vec<_>>()
    });
    items.collect()
}

fn kind_of(change: &ItemChange) -> String {
    let text = format!("{change:?}");
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// Resolver that leads some names to the loopback address, as their owners could.
struct LoopbackNames;

impl NameResolver for LoopbackNames {
    fn find(&self, host: &str) -> ResolveFuture {
        if host.ends_with(".partner.example") || host.ends_with(".internal") {
            return Box::pin(async { Ok(vec![Ipv4Addr::LOCALHOST.into()]) });
        }
        SystemResolver::default().find(host)
    }
}

/// Returns the engine of a harvest.
async fn engine(
    journal: &OpenJournal,
    settings: &dyn HarvesterSettings,
    max_record_bytes: usize,
    status: &Arc<HarvestStatus>,
    schedule: Schedule,
) -> Engine {
    let context = HarvesterContext {
        hosts: Hosts::default(),
        budget: HarvestBudget::new(64 << 20, &std::env::temp_dir()),
        clients: SharedClients::with_resolver(Arc::new(LoopbackNames)),
        is_configured: true,
        redirects: OutboundPolicy::restricted(Default::default()),
        max_record_bytes,
        limits: Limits::default(),
        journal: journal.journal.clone(),
        files: FileStoreLocation::Folder(std::env::temp_dir()),
        file_links: FileLinks::Gateway,
        public_url: "http://gateway.example".into(),
        file_policy: OutboundPolicy::public_files(Default::default()),
        harvests: HarvestsHandle::default(),
        callbacks: Some("http://gateway.example".into()),
    };
    let kind = dialect(settings.dialect()).unwrap();
    let budget = context.budget.clone();
    Engine {
        budget,
        journal: journal.journal.clone(),
        source: Arc::new(Source::new(source(), kind, Value::Null, false, Limits::default()).unwrap()),
        harvester: settings.build(source(), context).await.unwrap(),
        schedule,
        waits: Waits { first_retry: Duration::from_millis(5), longest_retry: Duration::from_millis(20) },
        status: Arc::clone(status),
    }
}

/// Requests a run of a gateway's harvest, waits until it is complete, and returns the harvest.
pub(crate) async fn run_to_end(gateway: &Gateway, name: &str) -> Value {
    let path = format!("/harvests/{name}");
    let before = gateway.json(&path).await["runs"].as_array().unwrap().len();
    let requested = gateway.http.post(format!("{}{path}/run", gateway.url)).send().await.unwrap();
    assert_eq!(requested.status(), reqwest::StatusCode::ACCEPTED);
    let began = std::time::Instant::now();
    loop {
        let harvest = gateway.json(&path).await;
        if harvest["runs"].as_array().unwrap().len() > before && harvest["run"]["state"] == "completed" {
            return harvest;
        }
        assert!(began.elapsed() < PATIENCE, "{harvest}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the records of a repository, as they should be in the registry.
pub(crate) fn expected(repository: &ScriptedRepository) -> BTreeMap<String, String> {
    let dialect = (dialect("oai-pmh").unwrap().build)(Value::Null, Limits::default()).unwrap();
    let url = repository.url();
    let headers: Headers =
        [(oai_pmh::BASE_URL, url.as_str()), (oai_pmh::METADATA_PREFIX, "oai_dc")].into_iter().collect();
    let mut records = BTreeMap::new();
    for (identifier, record) in &repository.script().records {
        let xml =
            record_xml(identifier, record).replacen("<record>", &format!("<record xmlns='{}'>", oai_pmh::NAMESPACE), 1);
        let message = Message { content_type: None, headers: &headers, body: xml.as_bytes() };
        let ParsedMessage::Drafts(drafts) = dialect.read(&message).unwrap() else { panic!("{xml}") };
        let DraftItems::Complete(items) = &drafts[0].items else { panic!("{xml}") };
        if let Some(content) = items.first().and_then(|item| item.change.content()) {
            let digest = content.digest.as_ref().unwrap().hex().to_owned();
            records.insert(drafts[0].object.to_string(), digest);
        }
    }
    records
}

pub(crate) fn settings(url: &str) -> OaiPmhSettings {
    OaiPmhSettings {
        url: OutboundUrl::parse(url, &OutboundPolicy::unrestricted()).unwrap(),
        ca: None,
        contact: None,
        formerly: None,
        secret_parameters: Vec::new(),
        metadata_prefix: "oai_dc".to_owned(),
        sets: Vec::new(),
        overlap: None,
        window: None,
        list: ListVerb::Records,
        full_every: None,
        max_deleted_percent: 10,
        records: RecordKeeping::Registry,
        total_bytes: 0,
        page_bytes: 1 << 20,
        timeouts: Timeouts { busy: Duration::from_millis(10), ..Timeouts::default() },
    }
}

/// Writes the configuration of a gateway that harvests a repository, and returns its path.
pub(crate) fn configuration(folder: &Path, url: &str, more: &str) -> String {
    let lines = format!(
        "[sources.scripted]\ntransport = \"oai-pmh\"\ndialect = \"oai-pmh\"\nurl = \"{url}\"\nmode = \"once\"\n{more}\n"
    );
    super::journal_fixture::configuration(folder, &lines)
}
