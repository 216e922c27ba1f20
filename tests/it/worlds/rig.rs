//! Gateway of a world with subscribers in every format and a harvester, which can be killed at any time.

use std::{
    collections::BTreeMap,
    fs,
    process::Stdio,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    support::{
        gateway::{Gateway, PATIENCE, command},
        http_receiver::{Receiver, Reply},
        oai_pmh_fixture::REPOSITORY,
        oai_pmh_harvester::{HarvestClient, HarvestedCopy, Harvester, Relations},
        shifted_clock::shift_clock,
        webhook_fixture::SECRET,
        websub_fixture::LOCAL,
    },
    worlds::copies::SubscriberCopy,
};

/// Response of the gateway to a message.
#[derive(Debug)]
pub(crate) struct HookResponse {
    /// HTTP status.
    pub(crate) status: u16,
    /// JSON of the body.
    pub(crate) body: Value,
    /// True if the message was sent again because the first response was lost, so that it can be a duplicate.
    pub(crate) repeated: bool,
}

impl HookResponse {
    /// Returns `outcome`, or an empty text.
    pub(crate) fn outcome(&self) -> &str {
        self.body["outcome"].as_str().unwrap_or_default()
    }
}

/// Returns the time after which something counts as one that does not happen. A long run may have what other work leaves of a
/// machine.
pub(crate) fn patience() -> Duration {
    let is_long_run = std::env::var_os("TIDINGS_TEST_WORLDS").is_some();
    if is_long_run { 20 * PATIENCE } else { PATIENCE }
}

/// Looks for something that is going to happen, with waits that grow, so that a look costs little of what it waits for.
pub(crate) struct Looks {
    end: Instant,
    wait: Duration,
}

impl Looks {
    const FIRST_WAIT: Duration = Duration::from_millis(3);
    const LONGEST_WAIT: Duration = Duration::from_millis(150);

    /// Begins to look, for no longer than this time.
    pub(crate) fn new(patience: Duration) -> Self {
        Self { end: Instant::now() + patience, wait: Self::FIRST_WAIT }
    }

    /// Waits until the next look; returns false if the time is over.
    pub(crate) async fn wait(&mut self) -> bool {
        tokio::time::sleep(self.wait).await;
        self.wait = (self.wait * 3 / 2).min(Self::LONGEST_WAIT);
        Instant::now() < self.end
    }
}

/// Harvesters that no gateway uses at the moment, because the start of one takes longer than a harvest.
static HARVESTERS: Mutex<Vec<Harvester>> = Mutex::new(Vec::new());

/// Gateway with its journal, its subscribers and its harvester.
pub(crate) struct Rig {
    folder: TempDir,
    gateway: Gateway,
    /// Days by which the clock of the gateway is ahead.
    days: i64,
    kill_after: Option<Duration>,
    /// Whether the last run of a harvest was interrupted by a kill.
    pub(crate) was_interrupted: bool,
    copies: Arc<Mutex<Vec<SubscriberCopy>>>,
    harvested_copy: HarvestedCopy,
    _receiver: Receiver,
}

impl Rig {
    /// Starts a gateway with these settings and a subscriber for each kind of copy.
    pub(crate) async fn start(settings: &str) -> Self {
        let copies = Arc::new(Mutex::new(SubscriberCopy::of_every_kind()));
        let receiver = Receiver::start({
            let copies = Arc::clone(&copies);
            move |_, request| {
                let mut copies = copies.lock().unwrap();
                let copy = copies.iter_mut().find(|copy| request.path == format!("/{}", copy.name)).unwrap();
                copy.apply(request.header("webhook-id"), &request.body);
                Reply::of(204)
            }
        })
        .await;
        let folder = tempfile::tempdir().unwrap();
        let mut configuration = format!("{REPOSITORY}page = 3\n{LOCAL}{settings}\n");
        for copy in copies.lock().unwrap().iter() {
            configuration += &format!(
                "[subscriptions.{name}]\ndelivery = \"webhook\"\nformat = \"{format}\"\nstart = \"beginning\"\n\
                 url = \"http://{address}/{name}\"\nsecrets = [\"{SECRET}\"]\nfilter = {{ visibility = {visibility} }}\n",
                name = copy.name,
                format = copy.format.name(),
                address = receiver.address,
                visibility = copy.visibility,
            );
        }
        fs::write(folder.path().join("tidings.toml"), configuration).unwrap();
        let gateway = gateway(&folder, 0);
        let harvested_copy = HarvestedCopy::default();
        Self {
            folder,
            gateway,
            days: 0,
            kill_after: None,
            was_interrupted: false,
            copies,
            harvested_copy,
            _receiver: receiver,
        }
    }

    /// Returns the running gateway.
    pub(crate) fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Kills the gateway like a power cut, and starts it again.
    pub(crate) fn kill(&mut self) {
        self.gateway.kill();
        self.gateway = gateway(&self.folder, self.days);
    }

    /// Lets so many days go by for the gateway, which is killed and started again.
    pub(crate) fn let_days_go_by(&mut self, days: i64) {
        self.days += days;
        self.kill();
    }

    /// Kills the gateway this long after the next message has been sent.
    pub(crate) fn kill_during_next_request(&mut self, after: Duration) {
        self.kill_after = Some(after);
    }

    /// Posts a message to a hook, again and again until the gateway has answered.
    pub(crate) async fn post(&mut self, source: &str, headers: &[(&str, String)], body: &[u8]) -> HookResponse {
        let mut repeated = false;
        loop {
            if let Some((status, body)) = self.try_post(source, headers, body).await {
                return HookResponse { status, body, repeated };
            }
            repeated = true;
        }
    }

    /// Posts a message once; returns nothing if the gateway has been killed before the response.
    async fn try_post(&mut self, source: &str, headers: &[(&str, String)], body: &[u8]) -> Option<(u16, Value)> {
        let mut request = self.gateway.http.post(format!("{}/hooks/{source}", self.gateway.url)).body(body.to_vec());
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let response = tokio::spawn(async move {
            let response = request.send().await?;
            let status = response.status().as_u16();
            Ok::<_, reqwest::Error>((status, response.bytes().await?))
        });
        if let Some(after) = self.kill_after.take() {
            tokio::time::sleep(after).await;
            self.kill();
        }
        let (status, body) = response.await.unwrap().ok()?;
        Some((status, serde_json::from_slice(&body).unwrap()))
    }

    /// Requests a run of a harvest, waits until it has ended, and returns it.
    pub(crate) async fn harvest(&mut self, name: &str) -> Value {
        self.run(name, "").await
    }

    /// Requests a run that lists everything, waits until it has ended, and returns it.
    pub(crate) async fn harvest_everything(&mut self, name: &str) -> Value {
        self.run(name, "?full=true").await
    }

    /// Checks that the last runs have made no change after this one.
    pub(crate) async fn no_changes_after(&self, head: u64) -> Result<(), String> {
        let changes = self.gateway().changes().await;
        let new: Vec<_> = changes.iter().filter(|change| change["seq"].as_u64() > Some(head)).collect();
        if new.is_empty() { Ok(()) } else { Err(format!("runs without news make changes: {new:#?}")) }
    }

    /// Waits until no run of a harvest goes on.
    pub(crate) async fn end_run(&self, name: &str) {
        self.harvest_when(&format!("/harvests/{name}"), ended).await;
    }

    async fn run(&mut self, name: &str, query: &str) -> Value {
        let path = format!("/harvests/{name}");
        let first = self.harvest_when(&path, ended).await;
        let requested = self.gateway.http.post(format!("{}{path}/run{query}", self.gateway.url)).send().await.unwrap();
        assert_eq!(requested.status(), reqwest::StatusCode::ACCEPTED);
        self.was_interrupted = self.kill_after.is_some();
        if let Some(after) = self.kill_after.take() {
            tokio::time::sleep(after).await;
            self.kill();
        }
        let before = first["run"]["id"].clone();
        let last = self.harvest_when(&path, |harvest| ended(harvest) && harvest["run"]["id"] != before).await;
        last["run"].clone()
    }

    /// Waits until a harvest meets a condition.
    async fn harvest_when(&self, path: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let mut looks = Looks::new(patience());
        loop {
            let harvest = self.gateway.json(path).await;
            if condition(&harvest) {
                return harvest;
            }
            assert!(looks.wait().await, "{harvest:#}");
        }
    }

    /// Harvests the gateway over OAI-PMH with Sickle, after the first time only what has changed since. Returns the
    /// records that Sickle holds.
    pub(crate) async fn harvested_records(&mut self) -> &BTreeMap<String, Relations> {
        let free = HARVESTERS.lock().unwrap().pop();
        let harvester = free.unwrap_or_else(|| Harvester::start(HarvestClient::Sickle));
        let url = format!("{}/oai", self.gateway.url);
        let (copy, harvester) = std::mem::take(&mut self.harvested_copy).renew(harvester, url).await;
        HARVESTERS.lock().unwrap().push(harvester);
        self.harvested_copy = copy;
        &self.harvested_copy.records
    }

    /// Waits until every subscriber has confirmed the newest change, and returns the copies.
    pub(crate) async fn copies(&mut self) -> Vec<SubscriberCopy> {
        let mut looks = Looks::new(patience());
        loop {
            // A watch can make changes meanwhile.
            let head = self.gateway.head().await;
            let list = self.gateway.json("/subscriptions").await;
            let subscriptions = list["subscriptions"].as_array().unwrap();
            if subscriptions.iter().all(|one| one["cursor"].as_u64() == Some(head)) {
                return self.copies.lock().unwrap().clone();
            }
            if !looks.wait().await {
                let changes = self.gateway.changes().await;
                let newest = changes.iter().rev().take(3).collect::<Vec<_>>();
                panic!("the subscribers are not at change {head}: {list:#}\nThe newest changes are {newest:#?}");
            }
        }
    }
}

/// Returns whether the newest run of a harvest has ended.
fn ended(harvest: &Value) -> bool {
    harvest["run"]["state"].as_str().is_some_and(|state| state != "running")
}

/// Starts the gateway of a world with its configuration and journal, and with a clock that is so many days ahead.
fn gateway(folder: &TempDir, days: i64) -> Gateway {
    const SECONDS_OF_A_DAY: i64 = 24 * 60 * 60;
    let (data, configuration) = (folder.path().join("data"), folder.path().join("tidings.toml"));
    let mut serve = command();
    serve.stderr(Stdio::null());
    if days > 0 {
        shift_clock(&mut serve, days * SECONDS_OF_A_DAY);
    }
    Gateway::start_as(serve, &data, &["--listen", "127.0.0.1:0", "--config", configuration.to_str().unwrap()])
}
