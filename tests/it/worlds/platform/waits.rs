//! Waits for the jobs of a gateway that archives datasets.

use std::{collections::BTreeMap, time::Duration};

use md5::Digest;
use serde_json::Value;
use sha2::Sha256;

use super::DataPlatform;
use crate::worlds::rig::{Looks, Rig, patience};

/// Times after which a dataset is requested again whose job does not end, because an older attempt waits. They grow, so that
/// a busy machine ends it before the next request.
const JOB_PATIENCE: [Duration; 4] =
    [Duration::from_secs(10), Duration::from_secs(20), Duration::from_secs(40), Duration::from_secs(80)];

/// Time in which an attempt of a request usually begins and ends.
const ATTEMPT_PATIENCE: Duration = Duration::from_secs(2);

impl DataPlatform {
    /// Returns the job of a dataset with its newest result, if there is one.
    pub(super) async fn job(url: &str, rig: &Rig) -> Option<Value> {
        let jobs = rig.gateway().json("/filesets").await;
        let id = jobs["filesets"].as_array().unwrap().iter().find(|job| job["dataset"] == url)?["id"].clone();
        Some(rig.gateway().json(&format!("/filesets/{}", id.as_str().unwrap())).await)
    }

    /// Waits until a gateway that watches a dataset has its files; returns the job. If the platform has ended the watch,
    /// somebody requests the dataset again.
    pub(super) async fn watched(&mut self, number: u8, rig: &mut Rig) -> Result<Value, String> {
        let (url, mut looks) = (self.url(number), Looks::new(2 * patience()));
        let expected: BTreeMap<String, String> = self.with(|platform| {
            let files = &platform.datasets[&number].files;
            let digests = files.values().map(|content| hex::encode(Sha256::digest(content)));
            platform.paths(files).into_iter().zip(digests).collect()
        });
        let mut last = Value::Null;
        loop {
            if let Some(job) = Self::job(&url, rig).await {
                let has_ended = ["failed", "blocked"].contains(&job["state"].as_str().unwrap());
                if expected.is_empty() && (has_ended || job["state"] == "archived") {
                    return Ok(job);
                }
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let files = job["result"]["manifest"].as_array().into_iter().flatten();
                let files: BTreeMap<_, _> = files.map(|file| (text(&file["path"]), text(&file["sha256"]))).collect();
                // A request that came again after a kill has a result of its own.
                let is_answered = Self::own_state(&url, rig).await.as_deref() != Some("REQUESTED");
                if job["state"] == "archived" && files == expected && is_answered {
                    return Ok(job);
                }
                if has_ended {
                    if Self::own_state(&url, rig).await.as_deref() == Some("ACTIVE") {
                        return Err(format!("an archived dataset is watched no more: {job:#}"));
                    }
                    return self.settled(&url, rig).await;
                }
                last = job;
            }
            if !looks.wait().await {
                return Err(format!("the watch of {url} does not find {expected:#?}: {last:#}"));
            }
        }
    }

    /// Returns the state of a dataset in the registry.
    async fn own_state(url: &str, rig: &Rig) -> Option<String> {
        let encoded = url::form_urlencoded::byte_serialize(url.as_bytes()).collect::<String>();
        let object = rig.gateway().json(&format!("/objects?uri={encoded}")).await;
        let own = object["items"].as_array().into_iter().flatten().find(|item| item["uri"] == url)?;
        own["state"].as_str().map(str::to_owned)
    }

    /// Waits until a gateway that watches an archived dataset looks at it.
    pub(super) async fn look(&self, number: u8, rig: &Rig) -> Result<(), String> {
        let looks = || self.with(|platform| platform.datasets[&number].looks);
        let (before, mut waits) = (looks(), Looks::new(patience()));
        let job = if self.with(|platform| platform.behaviour.watches) {
            Self::job(&self.url(number), rig).await
        } else {
            None
        };
        if job.is_none_or(|job| job["state"] != "archived") {
            return Ok(());
        }
        while looks() == before {
            if !waits.wait().await {
                return Err("nobody looks at an archived dataset again".to_owned());
            }
        }
        Ok(())
    }

    /// Waits for the first attempt of a request, but not for long, because an older attempt may wait.
    pub(super) async fn attempted(url: &str, number: &str, rig: &Rig) {
        let mut looks = Looks::new(ATTEMPT_PATIENCE);
        loop {
            if let Some(job) = Self::job(url, rig).await {
                let has_ended = ["archived", "failed", "blocked"].contains(&job["state"].as_str().unwrap());
                let is_attempted = has_ended || job["attempts"] != 0;
                if job["request"]["link_source_id"] == number && is_attempted {
                    return;
                }
            }
            if !looks.wait().await {
                return;
            }
        }
    }

    /// Requests a dataset, and waits until its job has ended; returns the job.
    pub(super) async fn settled(&mut self, url: &str, rig: &mut Rig) -> Result<Value, String> {
        let mut last = Value::Null;
        for patience in JOB_PATIENCE {
            let number = self.request(url, rig).await?;
            let mut looks = Looks::new(patience);
            loop {
                if let Some(details) = Self::job(url, rig).await {
                    let is_own = details["request"]["link_source_id"] == number.as_str();
                    let has_ended = ["archived", "failed", "blocked"].contains(&details["state"].as_str().unwrap());
                    // A request that came again after a kill has a result of its own.
                    if is_own && has_ended && Self::own_state(url, rig).await.as_deref() != Some("REQUESTED") {
                        return Ok(details);
                    }
                    last = details;
                }
                if !looks.wait().await {
                    break;
                }
            }
        }
        Err(format!("the job of {url} does not end: {last:#}"))
    }
}
