//! Clients of others: `resync-sync`, the reference client, copies the resources of a host whose changes the gateway knows.

use std::{
    collections::BTreeMap,
    fs,
    process::Command,
    sync::{Arc, Mutex},
};

use fastrand::Rng;
use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    gateway::{Gateway, command},
    http_receiver::{Receiver, Reply},
    journal_fixture::configuration,
    python,
    resourcesync_reader::Destination,
    shifted_clock::{seconds_to_noon, shift_clock},
    views_fixture::token,
};

/// Path of the resources.
const PATH: &str = "/in/resources/";

/// Resources of the host by their paths, each with its content.
type Resources = Arc<Mutex<BTreeMap<String, String>>>;

/// A host with resources, whose changes the gateway gets, and a copy of it.
struct Mirror {
    host: Receiver,
    resources: Resources,
    gateway: Gateway,
    folder: TempDir,
}

impl Mirror {
    async fn start() -> Self {
        let resources = Resources::default();
        let served = Arc::clone(&resources);
        let host = Receiver::start(move |_, request| match served.lock().unwrap().get(&request.path) {
            Some(content) => Reply::Answer(200, vec![], content.clone()),
            None => Reply::of(404),
        })
        .await;
        let folder = tempfile::tempdir().unwrap();
        let config = configuration(folder.path(), &token("admin", "admin", ""));
        // The client follows one change list, and the next day has another one.
        let mut serve = command();
        shift_clock(&mut serve, seconds_to_noon());
        let arguments = ["--listen", "127.0.0.1:0", "--config", &config];
        let gateway = Gateway::start_as(serve, &folder.path().join("data"), &arguments);
        fs::create_dir(folder.path().join("copy")).unwrap();
        Self { host, resources, gateway, folder }
    }

    /// Creates or updates a resource, or deletes it.
    async fn change(&self, number: usize, content: Option<String>) {
        let path = format!("{PATH}{number}");
        let uri = format!("http://{}{path}", self.host.address);
        let item = match &content {
            Some(content) => {
                let content = json!({ "url": uri, "size": content.len(), "mediaType": "text/plain" });
                let is_known = self.resources.lock().unwrap().contains_key(&path);
                let kind = if is_known { "UPDATE" } else { "ADD" };
                json!({ "uri": uri, "change": kind, "content": content })
            }
            None => json!({ "uri": uri, "change": "DELETE" }),
        };
        match content {
            Some(content) => self.resources.lock().unwrap().insert(path, content),
            None => self.resources.lock().unwrap().remove(&path),
        };
        let event = json!({ "object": uri, "items": [item] }).to_string();
        let request = self.gateway.http.post(format!("{}/hooks/content-change", self.gateway.url));
        let request = request.bearer_auth("tdg_admin").header("content-type", "application/json").body(event);
        assert_eq!(request.send().await.unwrap().status(), 201);
    }

    /// Changes the first resource, so that the newest change is an update. The client passes over the deletion of a resource
    /// whose creation was the newest change of the run before: it reads that again, and takes both for no change.
    async fn mark(&self, content: usize) {
        self.change(0, Some(format!("mark {content}"))).await;
    }

    /// Runs the client to its end, and returns what it says.
    async fn sync(&self, arguments: &[&str]) -> String {
        let python = python::environment("resync");
        let mut client = Command::new(&python);
        client.arg(python.with_file_name("resync-sync")).args(arguments).current_dir(self.folder.path());
        client.args(["--delete", "--noauth", "--ignore-failures", "--access-token", "tdg_admin"]);
        client.arg(format!("http://{}=copy", self.host.address));
        let done = tokio::task::spawn_blocking(move || client.output().unwrap()).await.unwrap();
        let log = [done.stdout, done.stderr].map(|output| String::from_utf8_lossy(&output).into_owned()).concat();
        // It ends with success when it fails.
        assert!(done.status.success() && !log.contains("Error:") && !log.contains("FatalError"), "{log}");
        log
    }

    /// Returns the copy: paths with their contents.
    fn copy(&self) -> BTreeMap<String, String> {
        let folder = self.folder.path().join("copy").join(PATH.trim_start_matches('/'));
        let file = |file: std::io::Result<fs::DirEntry>| {
            let file = file.unwrap();
            let path = format!("{PATH}{}", file.file_name().to_str().unwrap());
            (path, fs::read_to_string(file.path()).unwrap())
        };
        fs::read_dir(&folder).unwrap().map(file).collect()
    }

    fn assert_is_copied(&self) {
        let expected = self.resources.lock().unwrap().clone();
        assert_eq!(self.copy(), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resync_sync_has_the_resources_after_an_incremental_run() {
    let mirror = Arc::new(Mirror::start().await);
    for number in 0..60 {
        mirror.change(number, Some(format!("first {number}"))).await;
    }
    let capabilities = format!("{}/resourcesync/capabilitylist.xml", mirror.gateway.url);
    let destination = Destination::new(Some("tdg_admin"), "");
    let at = destination.baseline(&mirror.gateway).await.at.to_string();
    // The client cannot read an index of change lists: it takes its entries for changes without a kind.
    let index = destination.capability(&mirror.gateway, "changelist").await;
    let changes = index.entries().pop().unwrap().loc;

    // The copy is made while resources are created, updated and deleted.
    let changing = {
        let mirror = Arc::clone(&mirror);
        tokio::spawn(async move {
            for number in 1..40 {
                mirror.change(number, (number % 3 != 0).then(|| format!("second {number}"))).await;
                mirror.change(number + 100, Some(format!("new {number}"))).await;
            }
        })
    };
    let log = mirror.sync(&["--baseline", "--capabilitylist", &capabilities]).await;
    changing.await.unwrap();
    assert!(mirror.copy().len() > 30, "{:?}: {log}", mirror.copy());
    mirror.mark(0).await;
    // The client stores no time after a baseline, because the resources have no lastmod.
    mirror.sync(&["--incremental", "--changelist-uri", &changes, "--from", &at]).await;
    mirror.assert_is_copied();

    // From now on it knows the time itself.
    let mut rng = Rng::with_seed(4);
    for round in 1..4 {
        for step in 0..30 {
            let number = rng.usize(1..60);
            let exists = mirror.resources.lock().unwrap().contains_key(&format!("{PATH}{number}"));
            let is_deleted = exists && rng.usize(..3) == 0;
            mirror.change(number, (!is_deleted).then(|| format!("round {round} {step}"))).await;
        }
        mirror.mark(round).await;
        mirror.sync(&["--incremental", "--changelist-uri", &changes]).await;
        mirror.assert_is_copied();
    }
    // A baseline alone, from the description of the host, corrects every difference.
    fs::remove_file(mirror.folder.path().join(format!("copy{PATH}0"))).unwrap();
    fs::write(mirror.folder.path().join(format!("copy{PATH}extra")), "x").unwrap();
    mirror.sync(&["--baseline", "--capabilitylist", &capabilities]).await;
    mirror.assert_is_copied();
}
