//! What must hold of all changes about datasets, whatever their platform has lived.

use std::collections::{BTreeMap, BTreeSet};

use md5::Digest;
use serde_json::Value;
use sha2::Sha256;

use super::{DataPlatform, behaviour::Kind, uri};
use crate::worlds::rig::Rig;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl DataPlatform {
    /// Checks that the gateway has not misunderstood the platform: no verdict that it has not given, no token for others.
    pub(super) fn check_words(&self, changes: &[Value]) -> Result<(), String> {
        let restricted: Vec<_> = (0..3u8)
            .filter(|number| self.with(|platform| platform.datasets[number].was_restricted))
            .flat_map(|number| [self.url(number), self.work_url(number)])
            .collect();
        for change in changes {
            let is_restricted = restricted.iter().any(|url| change["object"] == url.as_str());
            for item in change["items"].as_array().into_iter().flatten() {
                let state = text(&item["stateAfter"]);
                if state == "PLATFORM_NOT_FOUND" || (state == "PLATFORM_RESTRICTED" && !is_restricted) {
                    return Err(format!("the platform has not said {state}: {change:#}"));
                }
            }
        }
        if !self.restarts.is_empty() {
            return Err(format!("downloads begin again that could be continued: {:?}", self.restarts));
        }
        let leaks = self.with(|platform| platform.leaks.clone());
        if leaks.is_empty() { Ok(()) } else { Err(format!("requests of others get the token: {leaks:?}")) }
    }

    /// Notes the downloads that began again since the last step. A gateway that was killed in between may begin again.
    pub(super) fn note_restarts(&mut self, ends_attempts: bool, rig: &Rig) {
        let gateway = rig.gateway().id();
        let restarts = self.with(|platform| std::mem::take(&mut platform.restarts));
        if gateway == self.gateway {
            self.restarts.extend(restarts);
        }
        if gateway != self.gateway || ends_attempts {
            self.with(|platform| platform.continuable = None);
        }
        self.gateway = gateway;
    }

    /// Checks that each archived dataset had its files at some time, and that each of its files had that content.
    pub(super) fn check_history(&self, changes: &[Value]) -> Result<(), String> {
        for number in 0..3u8 {
            let url = self.url(number);
            let history = self.history(number);
            let mut known: BTreeMap<&str, &str> = BTreeMap::new();
            for change in changes.iter().filter(|change| change["object"] == url.as_str()) {
                let mut is_archived = false;
                for item in change["items"].as_array().into_iter().flatten() {
                    if item["uri"] == url.as_str() {
                        is_archived = item["stateAfter"] == "ACTIVE";
                    } else if item["change"] == "DELETE" {
                        known.remove(text(&item["uri"]));
                    } else if let Some(digest) = item["content"]["digest"]["value"].as_str() {
                        known.insert(text(&item["uri"]), digest);
                    }
                }
                if is_archived && !self.was_true(&known, &history) {
                    return Err(format!("dataset {number} never had {known:#?}: {change:#}"));
                }
            }
        }
        Ok(())
    }

    /// Returns the digests of the files of a dataset by their URIs, for each time.
    fn history(&self, number: u8) -> Vec<BTreeMap<String, String>> {
        let url = self.url(number);
        self.with(|platform| {
            let at = |files: &BTreeMap<String, Vec<u8>>| {
                let digests = files.values().map(|content| hex::encode(Sha256::digest(content)));
                platform.paths(files).iter().map(|path| uri(&url, path)).zip(digests).collect()
            };
            platform.datasets[&number].history.iter().map(at).collect()
        })
    }

    /// Returns whether these files were those of a dataset. A list in pages may be one of several times, and a page with links
    /// says nothing about contents.
    fn was_true(&self, known: &BTreeMap<&str, &str>, history: &[BTreeMap<String, String>]) -> bool {
        let kind = self.with(|platform| platform.behaviour.kind);
        let has_names = |files: &BTreeMap<String, String>| files.keys().map(String::as_str).eq(known.keys().copied());
        let had_content = |(uri, digest): (&&str, &&str)| {
            history.iter().any(|files| files.get(*uri).is_some_and(|content| content == *digest))
        };
        match kind {
            Kind::Invenio | Kind::Bag => history.iter().any(has_names) && known.iter().all(had_content),
            Kind::Osf => known.iter().all(had_content),
            Kind::Linkset => true,
        }
    }

    /// Returns the URIs that the files of a dataset had at any time.
    pub(super) fn possible_uris(&self, number: u8) -> BTreeSet<String> {
        self.history(number).into_iter().flat_map(BTreeMap::into_keys).collect()
    }
}
