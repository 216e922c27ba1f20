//! The published copy: files that a web server serves to readers of the feed.

mod copy;
mod journals;
mod kills;
mod places;
mod protocols;
mod segments;
mod target;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde_json::{Value, json};

use crate::support::{
    command_line::{CommandResult, command, ended},
    feed_reader::{Element, changes},
    gateway::{client, free_address},
    nginx::Nginx,
    views_fixture::{SECRET, ViewedGateway},
};

/// A web server with the copy in a folder.
struct WebServer {
    _nginx: Nginx,
    url: String,
    folder: PathBuf,
}

impl WebServer {
    /// Starts nginx as `docs/publish.md` configures it.
    fn start(folder: &Path) -> Self {
        let address = free_address();
        let (copy, place) = (folder.join("copy"), folder.join("nginx"));
        fs::create_dir_all(&copy).unwrap();
        fs::create_dir_all(&place).unwrap();
        let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/publish.md")).unwrap();
        let server = page.split("```nginx\n").nth(1).unwrap().split("```").next().unwrap();
        let server = server.replace("listen 80;", &format!("listen {address};"));
        let server = server.replace("/srv/www/tidings", copy.to_str().unwrap());
        let port = address.rsplit(':').next().unwrap().parse().unwrap();
        let nginx = Nginx::start(&place, &server, port);
        Self { _nginx: nginx, url: format!("http://{address}"), folder: copy }
    }

    /// Returns the lines of the gateway that publishes into the folder.
    fn lines(&self, more: &str) -> String {
        let Self { url, folder, .. } = self;
        format!("[publish]\nfolder = \"{}\"\nurl = \"{url}\"\ninterval_seconds = 3600\n{more}\n", folder.display())
    }

    /// Reads the copy from its start, as `docs/feed.md` says. Each document must be there. Returns the changes by their
    /// numbers, and the number of documents.
    async fn walk(&self) -> (BTreeMap<u64, Value>, usize) {
        let http = client();
        let (mut found, mut documents) = (BTreeMap::new(), 0);
        let mut next = Some(format!("{}/feed.atom", self.url));
        while let Some(link) = next {
            let response = http.get(&link).header("accept-encoding", "identity").send().await.unwrap();
            assert_eq!(response.status(), 200, "{link}");
            assert_eq!(response.headers()["content-type"], "application/atom+xml", "{link}");
            let feed = Element::parse(&response.text().await.unwrap());
            assert_eq!(feed.link("self"), Some(link.as_str()));
            assert_eq!(feed.link("current").unwrap(), format!("{}/feed.atom", self.url));
            for change in changes(&feed) {
                let seq = change["seq"].as_u64().unwrap();
                assert!(found.insert(seq, change).is_none(), "{seq} is there twice");
            }
            documents += 1;
            next = feed.link("prev-archive").map(str::to_owned);
        }
        (found, documents)
    }

    /// Returns all files with the times of their last change.
    fn files(&self) -> BTreeMap<String, SystemTime> {
        fn collect(root: &Path, folder: &Path, found: &mut BTreeMap<String, SystemTime>) {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
                if entry.file_type().unwrap().is_dir() {
                    collect(root, &entry.path(), found);
                } else {
                    let name = entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                    found.insert(name, entry.metadata().unwrap().modified().unwrap());
                }
            }
        }
        let mut found = BTreeMap::new();
        collect(&self.folder, &self.folder, &mut found);
        found
    }
}

/// Publishes now, and waits for the end.
fn publish(gateway: &ViewedGateway) -> CommandResult {
    let mut publish = command(&["publish", "--gateway", &gateway.gateway.url]);
    ended(publish.env("TIDINGS_TOKEN", "tdg_admin").spawn().unwrap())
}

/// Posts the change with this number: every third object is hidden, and every user is secret.
async fn post(gateway: &ViewedGateway, number: u64) {
    let object = format!("http://h/open/{number}");
    let (name, state) = if number.is_multiple_of(3) { (SECRET, "INACTIVE") } else { ("image", "ACTIVE") };
    let item = json!({ "uri": format!("{object}/{name}"), "change": "ADD", "stateAfter": state });
    gateway.post(&json!({ "object": object, "user": { "name": SECRET }, "items": [item] })).await;
}

/// Returns what a reader sees at the gateway, by numbers, as a reader of the feed reconstructs it.
async fn seen(gateway: &ViewedGateway, token: &str) -> BTreeMap<u64, Value> {
    let all = gateway.changes("", Some(token)).await;
    all.into_iter().map(|change| (change["seq"].as_u64().unwrap(), change)).collect()
}
