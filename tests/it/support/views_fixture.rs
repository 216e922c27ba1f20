//! Gateway whose journal has visible, hidden, withdrawn and deleted items, for readers who may see only a part of it.

use std::{collections::BTreeSet, fs, path::PathBuf};

use fastrand::Rng;
use reqwest::{RequestBuilder, header::ACCEPT};
use serde_json::{Value, json};
use tempfile::TempDir;
use tidings::web::Secret;

use crate::support::gateway::Gateway;

/// Word in everything that the public must not see.
pub(crate) const SECRET: &str = "s3cret";

/// Beginning of the URIs of the objects that everybody may see.
pub(crate) const OPEN: &str = "http://h/open/";

/// Surfaces of the public.
pub(crate) const SURFACES: &str =
    r#"["feed", "changes", "stream", "live", "objects", "snapshot", "oai", "iiif", "ldes", "resourcesync"]"#;

/// A response, read completely.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Headers and body, in which a test searches for secrets.
    pub(crate) everything: String,
    pub(crate) body: String,
    pub(crate) etag: Option<String>,
    pub(crate) cache_control: String,
    pub(crate) vary: String,
}

impl Answer {
    pub(crate) async fn of(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let all = |name: &str| -> Vec<String> {
            headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
        };
        let (cache_control, vary) = (all("cache-control").join(", "), all("vary").join(", ").to_ascii_lowercase());
        let body = String::from_utf8(response.bytes().await.unwrap().to_vec()).unwrap();
        let everything = format!("{headers:?}\n{body}");
        Self { status, everything, body, etag: all("etag").pop(), cache_control, vary }
    }

    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.everything);
        serde_json::from_str(&self.body).unwrap()
    }
}

/// The gateway, with the tokens `admin`, `reader`, and those of the test.
pub(crate) struct ViewedGateway {
    pub(crate) gateway: Gateway,
    pub(crate) config: PathBuf,
    pub(crate) folder: TempDir,
}

/// Returns the table of a token named `name`, whose value is `tdg_NAME`.
pub(crate) fn token(name: &str, scope: &str, more: &str) -> String {
    let digest = Secret::new(format!("tdg_{name}")).digest().to_hex();
    format!("[access.tokens.{name}]\nsha256 = \"{digest}\"\nscopes = [\"{scope}\"]\n{more}\n")
}

impl ViewedGateway {
    /// Starts a gateway with further lines of the configuration.
    pub(crate) fn start(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("tidings.toml");
        fs::write(&config, configuration(more)).unwrap();
        let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", config.to_str().unwrap()]);
        Self { gateway, config, folder }
    }

    /// Replaces these lines of the configuration.
    pub(crate) fn configure(&self, more: &str) {
        fs::write(&self.config, configuration(more)).unwrap();
    }

    pub(crate) fn request(&self, path: &str, token: Option<&str>) -> RequestBuilder {
        let request = self.gateway.http.get(format!("{}{path}", self.gateway.url));
        match token {
            Some(token) => request.bearer_auth(format!("tdg_{token}")),
            None => request,
        }
    }

    pub(crate) async fn get(&self, path: &str, token: Option<&str>) -> Answer {
        Answer::of(self.request(path, token)).await
    }

    pub(crate) async fn get_as(&self, path: &str, token: Option<&str>, accept: &str) -> Answer {
        Answer::of(self.request(path, token).header(ACCEPT, accept)).await
    }

    pub(crate) async fn post(&self, change: &Value) {
        let url = format!("{}/hooks/content-change", self.gateway.url);
        let request = self.gateway.http.post(url).bearer_auth("tdg_admin").header("content-type", "application/json");
        let response = request.body(change.to_string()).send().await.unwrap();
        assert!(response.status().is_success(), "{change}: {}", response.text().await.unwrap());
    }

    /// Returns all changes that a reader gets from `/changes` with a query, from the oldest one on.
    pub(crate) async fn changes(&self, query: &str, token: Option<&str>) -> Vec<Value> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let from = after.map_or_else(String::new, |after| format!("&after={after}"));
            let page = self.get(&format!("/changes?limit=70{query}{from}"), token).await.json();
            all.extend(page["changes"].as_array().unwrap().iter().cloned());
            let next = page["next"].as_u64();
            if next == after {
                return all;
            }
            after = next;
        }
    }
}

fn configuration(more: &str) -> String {
    [&token("admin", "admin", ""), &token("reader", "read", ""), more].concat()
}

/// What the public sees after a history.
#[derive(Default)]
pub(crate) struct Truth {
    /// URIs of the items.
    pub(crate) visible: BTreeSet<String>,
    /// URIs of all objects, hidden ones included.
    pub(crate) objects: BTreeSet<String>,
}

/// Posts a random history. The environment variable `SEED` repeats a failed one.
#[expect(clippy::print_stderr, reason = "prints the seed, with which a failed run can be repeated")]
pub(crate) async fn live_through(gateway: &ViewedGateway, objects: usize) -> Truth {
    let seed = std::env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    eprintln!("SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let mut truth = Truth::default();
    let mut lives: Vec<Vec<Value>> = (0..objects).map(|number| life(&mut rng, number, &mut truth)).collect();
    lives.push(vec![large(&mut truth)]);
    lives.iter_mut().for_each(|life| life.reverse());
    let mut number = 0;
    while !lives.is_empty() {
        let at = rng.usize(..lives.len());
        let Some(mut change) = lives[at].pop() else {
            lives.swap_remove(at);
            continue;
        };
        number += 1;
        change["user"] = json!({ "name": format!("{SECRET} user {number}"), "uri": format!("http://h/{SECRET}/user") });
        change["description"] = json!(format!("changed by {SECRET}"));
        change["sourceEventId"] = json!(format!("{SECRET}-{number}"));
        change["sourceVersion"] = json!(format!("{SECRET} 1.0"));
        change["report"] = json!({ "result": { "agent": SECRET } });
        gateway.post(&change).await;
    }
    truth
}

/// Returns the changes of an object, oldest first.
fn life(rng: &mut Rng, number: usize, truth: &mut Truth) -> Vec<Value> {
    let hidden_content = json!({ "url": format!("http://h/{SECRET}/content") });
    let content = json!({ "url": format!("http://h/content/{number}"), "mediaType": "text/plain",
        "generatedBy": format!("http://h/{SECRET}/activity") });
    let kind = rng.usize(..6);
    let object = match kind {
        0 => format!("http://h/closed/{SECRET}-{number}"),
        1 => format!("{OPEN}{SECRET}-{number}"),
        _ => format!("{OPEN}{number}"),
    };
    let of = |items: Value| json!({ "object": object, "items": items });
    let add = |state: &str| json!({ "uri": object, "change": "ADD", "content": content, "stateAfter": state });
    let state = |state: &str| of(json!([{ "uri": object, "stateAfter": state }]));
    let hidden_item = json!({ "uri": format!("{object}/{SECRET}"), "change": "ADD", "stateAfter": "INACTIVE" });
    let update = |content: &Value| of(json!([{ "uri": object, "change": "UPDATE", "content": content }]));
    truth.objects.insert(object.clone());
    if matches!(kind, 2 | 5) {
        truth.visible.insert(object.clone());
    }
    match kind {
        // Of another part of the repository.
        0 => vec![of(json!([add("ACTIVE")])), update(&hidden_content)],
        // Never visible.
        1 => vec![of(json!([{ "uri": object, "change": "ADD", "content": hidden_content, "stateAfter": "INACTIVE" }]))],
        // Visible, with an item that is not.
        2 => vec![of(json!([add("ACTIVE"), hidden_item])), update(&content)],
        // Withdrawn, and changed afterwards.
        3 => vec![of(json!([add("ACTIVE")])), state("INACTIVE"), update(&hidden_content)],
        // Deleted.
        4 => vec![of(json!([add("ACTIVE")])), of(json!([{ "uri": object, "change": "DELETE" }]))],
        // Withdrawn, and published again.
        _ => vec![of(json!([add("ACTIVE")])), state("INACTIVE"), state("ACTIVE")],
    }
}

/// Returns a change that is too large for memory, with hidden items among the visible ones.
fn large(truth: &mut Truth) -> Value {
    let object = format!("{OPEN}large");
    let item = |at: usize| match at % 3 {
        0 => json!({ "uri": format!("{object}/{SECRET}-{at}"), "change": "ADD", "stateAfter": "INACTIVE" }),
        _ => json!({ "uri": format!("{object}/{at}"), "change": "ADD", "stateAfter": "ACTIVE" }),
    };
    let items: Vec<Value> = (0..1500).map(item).collect();
    let uris = items.iter().map(|item| item["uri"].as_str().unwrap().to_owned());
    truth.visible.extend(uris.filter(|uri| !uri.contains(SECRET)));
    truth.objects.insert(object.clone());
    json!({ "object": object, "items": items })
}
