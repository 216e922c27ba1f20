//! World of a Social Feed Manager whose harvests write WARCs, and whose administrator announces old WARCs again.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use crate::worlds::{ItemTruth, Truth, World, driver, rig::Rig};

const BASE: &str = "https://sfm.example.org";
const COLLECTION: &str = "c0ffee0000004000800000000000c011";
const SET: &str = "c0ffee0000004000800000000000c5e7";

/// Version of SFM, by the differences between its messages.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// Files are below `/sfm-collection-set-data`, since SFM 2.4.
    new_root: bool,
    /// A WARC does not name its collection, as before sfm-ui PR 503.
    without_collection: bool,
    /// `date_ended` is a list, as in early versions of sfm-utils.
    listed_date: bool,
    /// Seeds without token and uid have `null`.
    null_seeds: bool,
    /// Every second message of a harvest has a key that ends with `.priority`.
    priority: bool,
    /// A failed harvest has errors, and no statistics.
    bare_failures: bool,
}

/// What happens in SFM.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Start {
        harvest: u8,
    },
    /// A harvester reports the state of its harvest, also the same state again.
    Report {
        harvest: u8,
        is_paused: bool,
    },
    Finish {
        harvest: u8,
        is_success: bool,
    },
    WriteWarc {
        harvest: u8,
    },
    /// The administrator runs `resendwarccreatedmsgs` for a consumer that came late.
    ResendWarcs,
    /// A WARC of the time before the gateway is announced by the same command.
    ResendOldWarc {
        warc: u8,
    },
}

/// Social Feed Manager with its harvests and WARCs.
pub(crate) struct Sfm {
    version: Version,
    states: BTreeMap<u8, &'static str>,
    /// Path of each WARC by its identifier.
    warcs: BTreeMap<String, String>,
}

fn is_finished(state: &str) -> bool {
    state.starts_with("completed")
}

impl Sfm {
    async fn send(&self, key: &str, body: &serde_json::Value, rig: &mut Rig) -> Result<String, String> {
        let headers = [("content-type", "application/json".to_owned()), ("routing-key", key.to_owned())];
        let response = rig.post("sfm", &headers, body.to_string().as_bytes()).await;
        let outcome = response.outcome().to_owned();
        // SFM repeats its messages, so a message without news is none.
        if ["accepted", "duplicate", "unchanged"].contains(&&*outcome) {
            return Ok(outcome);
        }
        Err(format!("{key} {body} is answered {response:?}"))
    }

    async fn report(&mut self, harvest: u8, status: &'static str, rig: &mut Rig) -> Result<(), String> {
        let mut body = json!({
            "id": format!("sfmui:{harvest}"),
            "status": status,
            "date_started": "2026-07-28T11:17:36.640044",
            "stats": {},
            "token_updates": { "s1": null },
        });
        if self.version.bare_failures && status == "completed failure" {
            body = json!({
                "id": format!("sfmui:{harvest}"),
                "status": status,
                "date_started": "2026-07-28T11:17:36.640044",
                "errors": [{ "code": "unknown_error", "message": "it failed" }],
            });
        }
        if is_finished(status) {
            let ended = "2026-07-28T11:19:42.539470";
            body["date_ended"] = if self.version.listed_date { json!([ended]) } else { ended.into() };
        }
        let key = "harvest.status.flickr.flickr_user";
        let priority = if self.version.priority && harvest.is_multiple_of(2) { ".priority" } else { "" };
        self.send(&format!("{key}{priority}"), &body, rig).await?;
        self.states.insert(harvest, status);
        Ok(())
    }

    fn path(&self, warc: &str) -> String {
        let root = if self.version.new_root { "/sfm-collection-set-data" } else { "/sfm-data" };
        format!("{root}/collection_set/{SET}/{COLLECTION}/2026/07/28/11/{warc}.warc.gz")
    }

    async fn announce(&self, key: &str, warc: &str, has_collection: bool, rig: &mut Rig) -> Result<String, String> {
        let mut body = json!({
            "warc": {
                "id": warc,
                "path": self.warcs[warc],
                "bytes": 990,
                "sha1": "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12",
                "date_created": "2026-07-28T11:18:00+00:00",
            },
            "collection_set": { "id": SET },
            "harvest": { "id": "sfmui:1", "type": "flickr_user" },
        });
        if has_collection {
            body["collection"] = json!({ "id": COLLECTION });
        }
        self.send(key, &body, rig).await
    }
}

impl World for Sfm {
    type Switches = Version;
    type Step = Act;

    const NAME: &'static str = "sfm";

    fn switches() -> BoxedStrategy<Version> {
        any::<[bool; 6]>()
            .prop_map(|[new_root, without_collection, listed_date, null_seeds, priority, bare_failures]| Version {
                new_root,
                without_collection,
                listed_date,
                null_seeds,
                priority,
                bare_failures,
            })
            .boxed()
    }

    fn step() -> BoxedStrategy<Act> {
        let harvest = || 0..3u8;
        prop_oneof![
            2 => harvest().prop_map(|harvest| Act::Start { harvest }),
            3 => (harvest(), any::<bool>()).prop_map(|(harvest, is_paused)| Act::Report { harvest, is_paused }),
            1 => (harvest(), any::<bool>()).prop_map(|(harvest, is_success)| Act::Finish { harvest, is_success }),
            3 => harvest().prop_map(|harvest| Act::WriteWarc { harvest }),
            1 => Just(Act::ResendWarcs),
            1 => (0..4u8).prop_map(|warc| Act::ResendOldWarc { warc }),
        ]
        .boxed()
    }

    async fn begin(version: Version) -> Self {
        Self { version, states: BTreeMap::new(), warcs: BTreeMap::new() }
    }

    fn settings(&self) -> String {
        format!("[sources.sfm]\ntransport = \"http\"\ndialect = \"sfm\"\nsettings = {{ base_url = \"{BASE}\" }}\n")
    }

    async fn live(&mut self, act: Act, rig: &mut Rig) -> Result<(), String> {
        match act {
            Act::Start { harvest } => {
                if !self.states.contains_key(&harvest) {
                    let seed = if self.version.null_seeds {
                        json!({ "id": "s1", "token": null, "uid": null })
                    } else {
                        json!({ "id": "s1", "token": "a.photographer" })
                    };
                    let body = json!({
                        "id": format!("sfmui:{harvest}"),
                        "type": "flickr_user",
                        "seeds": [seed],
                        "collection": { "id": COLLECTION },
                        "collection_set": { "id": SET },
                    });
                    self.send("harvest.start.flickr.flickr_user", &body, rig).await?;
                    self.states.insert(harvest, "requested");
                }
            }
            Act::Report { harvest, is_paused } => {
                if self.states.get(&harvest).is_none_or(|state| !is_finished(state)) {
                    self.report(harvest, if is_paused { "paused" } else { "running" }, rig).await?;
                }
            }
            Act::Finish { harvest, is_success } => {
                if self.states.get(&harvest).is_some_and(|state| !is_finished(state)) {
                    let status = if is_success { "completed success" } else { "completed failure" };
                    self.report(harvest, status, rig).await?;
                }
            }
            Act::WriteWarc { harvest } => {
                let warc = format!("w{harvest}-{}", self.warcs.len());
                self.warcs.insert(warc.clone(), self.path(&warc));
                let outcome = self.announce("warc_created", &warc, !self.version.without_collection, rig).await?;
                if outcome == "unchanged" {
                    return Err(format!("the new WARC {warc} is {outcome}"));
                }
            }
            Act::ResendWarcs => {
                for warc in self.warcs.keys() {
                    let outcome = self.announce("wayback_indexer.warc_created", warc, false, rig).await?;
                    if outcome == "accepted" {
                        return Err(format!("the WARC {warc} is announced again, and becomes another change"));
                    }
                }
            }
            Act::ResendOldWarc { warc } => {
                let warc = format!("old-{warc}");
                self.warcs.insert(warc.clone(), self.path(&warc));
                self.announce("wayback_indexer.warc_created", &warc, false, rig).await?;
            }
        }
        Ok(())
    }

    async fn fall_quiet(&mut self, _: &mut Rig) -> Result<(), String> {
        Ok(())
    }

    fn truth(&self) -> Truth {
        let mut truth = Truth::default();
        for (harvest, state) in &self.states {
            let uri = format!("{BASE}/api/v1/harvests/sfmui%3A{harvest}/");
            let state = Some(state.to_uppercase().replace(' ', "_"));
            truth.items.insert(uri.clone(), ItemTruth { object: uri, state, ..ItemTruth::default() });
        }
        for warc in self.warcs.keys() {
            let object = format!("{BASE}/api/v1/collections/{COLLECTION}/");
            let item = ItemTruth { object, public: true, size: Some(990), ..ItemTruth::default() };
            truth.items.insert(format!("{BASE}/api/v1/warcs/{warc}/"), item);
        }
        truth
    }
}

#[test]
fn sfm_and_registry_agree() {
    driver::run::<Sfm>();
}
