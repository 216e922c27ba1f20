//! Audits of worlds: they find exactly the differences of steps of which the gateway has heard nothing, and correct them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::worlds::{
    ItemTruth, Truth, World, judge,
    rig::{Looks, Rig, patience},
};

/// Reason of an audit that could not correct everything, because a watch archives a dataset meanwhile.
const JOBS_GO_ON: &str = "being archived at present; give the command again";

/// Audits a quiet world, lives steps without the gateway, and audits and corrects the registry.
pub(crate) async fn judge<W: World>(world: &mut W, unseen: Vec<W::Step>, rig: &mut Rig) -> Result<(), String> {
    let sources = world.audited();
    if sources.is_empty() {
        return Ok(());
    }
    world.show();
    let found = audits(rig, sources, false, &world.truth()).await?;
    if !found.is_empty() {
        return Err(format!("nothing was missed, and an audit finds {found:#?}"));
    }
    for step in unseen {
        world.live_unseen(step, rig).await?;
    }
    world.show();
    let truth = world.truth();
    let expected = differences(&truth, &judge::registry(rig).await, &world.unseen_contents());
    let found = audits(rig, sources, false, &truth).await?;
    if found != expected {
        return Err(format!("an audit finds {found:#?}, and there are {expected:#?}"));
    }
    world.resume(rig).await;
    audits(rig, sources, true, &truth).await?;
    let mut looks = Looks::new(patience());
    loop {
        let found = audits(rig, sources, false, &truth).await?;
        if found.is_empty() {
            return judge::compare(&truth, rig).await;
        }
        if !W::CORRECTS_LATER || !looks.wait().await {
            return Err(format!("after corrections an audit finds {found:#?}"));
        }
    }
}

/// Audits all sources, and returns the differences that count.
async fn audits(
    rig: &Rig,
    sources: &[&str],
    repair: bool,
    truth: &Truth,
) -> Result<BTreeSet<(String, String)>, String> {
    let mut found = BTreeSet::new();
    for source in sources {
        found.append(&mut audit(rig, source, repair).await?);
    }
    found.retain(|(_, uri)| !truth.unsettled.contains(uri));
    Ok(found)
}

/// Returns the true differences: kind and URI of each item.
fn differences(
    truth: &Truth,
    registry: &BTreeMap<String, ItemTruth>,
    contents: &BTreeSet<String>,
) -> BTreeSet<(String, String)> {
    let uris: BTreeSet<_> =
        truth.items.keys().chain(registry.keys()).filter(|uri| !truth.unsettled.contains(*uri)).collect();
    let kind = |uri: &String| match (truth.items.get(uri), registry.get(uri)) {
        (Some(_), None) => Some("missing"),
        (None, Some(_)) => Some("extra"),
        (Some(item), Some(known)) => {
            let (size, digest) = (item.size.and(known.size), item.digest.clone().and(known.digest.clone()));
            let is_same = item.public == known.public && item.size == size && item.digest == digest;
            (!is_same || contents.contains(uri)).then_some("different")
        }
        (None, None) => None,
    };
    uris.into_iter().filter_map(|uri| Some((kind(uri)?.to_owned(), uri.clone()))).collect()
}

/// Runs an audit to its end, and returns its differences. If jobs of a watch go on, the gateway says that the audit is to be
/// repeated.
async fn audit(rig: &Rig, source: &str, repair: bool) -> Result<BTreeSet<(String, String)>, String> {
    let mut looks = Looks::new(patience());
    loop {
        let report = complete_audit(rig, source, repair).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if report["reason"].is_null() {
            let found = report["differences"].as_array().unwrap().iter();
            return Ok(found.map(|found| (text(&found["kind"]), text(&found["item"]))).collect());
        }
        if !text(&report["reason"]).contains(JOBS_GO_ON) || !looks.wait().await {
            return Err(format!("an audit is {report:#}"));
        }
    }
}

/// Runs an audit to its end, and returns its report.
async fn complete_audit(rig: &Rig, source: &str, repair: bool) -> Result<Value, String> {
    let path = format!("/sources/{source}/audit");
    let options = json!({ "repair": repair, "pauseSeconds": 0, "maxDeletedPercent": 100 });
    let gateway = rig.gateway();
    let answer = gateway.http.post(format!("{}{path}", gateway.url)).json(&options).send().await.unwrap();
    let started: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    let mut looks = Looks::new(patience());
    loop {
        let report = gateway.json(&path).await["audit"].take();
        let is_same = report["id"] == started["audit"]["id"];
        match report["state"].as_str() {
            Some("complete") if is_same => return Ok(report),
            Some("requested" | "running") => {}
            _ => return Err(format!("an audit is {report:#}, which was {started:#}")),
        }
        if !looks.wait().await {
            return Err(format!("an audit does not end: {report:#}"));
        }
    }
}
