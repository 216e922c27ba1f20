//! Judge of the worlds: compares the truth with the registry, with the copies of subscribers and of a harvester, and with the
//! quarantine.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde_json::Value;

use crate::{
    support::oai_pmh_harvester::Relations,
    worlds::{
        ItemTruth, Refusals, Truth,
        copies::{CopyFormat, SubscriberCopy},
        rig::Rig,
    },
};

/// Compares everything; the error lists each difference in a line.
pub(crate) async fn compare(truth: &Truth, rig: &mut Rig) -> Result<(), String> {
    let copies = rig.copies().await;
    let mut differences = String::new();
    compare_registry(truth, &registry(rig).await, &mut differences);
    for copy in &copies {
        compare_copy(truth, copy, &mut differences);
    }
    compare_records(truth, rig.harvested_records().await, &mut differences);
    let refused = rig.gateway().json("/quarantine?limit=1000").await["messages"].as_array().unwrap().clone();
    if let Refusals::Exactly(count) = truth.refused
        && refused.len() != count
    {
        let reasons: Vec<_> = refused.iter().map(|message| message["reason"].to_string()).collect();
        let _ = writeln!(differences, "{} messages are refused, which must be {count}: {reasons:?}", refused.len());
    }
    if differences.is_empty() { Ok(()) } else { Err(format!("{differences}truth: {:#?}", truth.items)) }
}

/// Reads the live items of the registry as a reader of docs/snapshot.md does.
pub(crate) async fn registry(rig: &Rig) -> BTreeMap<String, ItemTruth> {
    let mut items = BTreeMap::new();
    let mut after = String::new();
    loop {
        let page = rig.gateway().json(&format!("/snapshot?limit=1000{after}")).await;
        for object in page["objects"].as_array().unwrap() {
            for item in object["items"].as_array().unwrap() {
                items.insert(item["uri"].as_str().unwrap().to_owned(), item_of(object, item));
            }
        }
        let Some(next) = page["next"].as_str() else { return items };
        after = format!("&after={}", url::form_urlencoded::byte_serialize(next.as_bytes()).collect::<String>());
    }
}

fn item_of(object: &Value, item: &Value) -> ItemTruth {
    ItemTruth {
        object: object["uri"].as_str().unwrap().to_owned(),
        public: item["state"].as_str().is_none_or(|state| ["ACTIVE", "UNAVAILABLE"].contains(&state)),
        state: item["state"].as_str().map(str::to_owned),
        size: item["content"]["size"].as_u64(),
        digest: item["content"]["digest"]["value"].as_str().map(str::to_owned),
    }
}

fn compare_registry(truth: &Truth, registry: &BTreeMap<String, ItemTruth>, differences: &mut String) {
    let uris: BTreeSet<_> = truth.items.keys().chain(registry.keys()).collect();
    for uri in uris.into_iter().filter(|uri| !truth.unsettled.contains(*uri)) {
        match (truth.items.get(uri), registry.get(uri)) {
            (Some(_), None) => _ = writeln!(differences, "the registry lacks {uri}"),
            (None, Some(_)) => _ = writeln!(differences, "the registry has {uri}, which does not exist"),
            (Some(item), Some(known)) => {
                let (size, digest) = (item.size.and(known.size), item.digest.clone().and(known.digest.clone()));
                let state = item.state.as_ref().and(known.state.clone());
                let known = ItemTruth { size, digest, state, ..known.clone() };
                if *item != known {
                    let _ = writeln!(differences, "the registry knows {known:?} about {uri}; true is {item:?}");
                }
            }
            (None, None) => {}
        }
    }
}

fn compare_copy(truth: &Truth, copy: &SubscriberCopy, differences: &mut String) {
    let visible = |item: &ItemTruth| item.public || !copy.visibility;
    let is_activity = copy.format == CopyFormat::ActivityStreams;
    if is_activity && !truth.one_resource_for_each_event {
        return;
    }
    let name = &copy.name;
    for (uri, item) in truth.items.iter().filter(|(_, item)| visible(item)) {
        match copy.items.get(uri) {
            None => _ = writeln!(differences, "the subscriber {name} lacks {uri}"),
            Some(size) if !is_activity && item.size.is_some() && *size != item.size => {
                let _ =
                    writeln!(differences, "the subscriber {name} knows the size {size:?} of {uri}: {:?}", item.size);
            }
            Some(_) => {}
        }
    }
    let may_exist = |uri: &String| truth.items.get(uri).is_some_and(visible) || truth.unsettled.contains(uri);
    for uri in copy.items.keys().filter(|uri| !may_exist(uri)) {
        let _ = writeln!(differences, "the subscriber {name} holds {uri}");
    }
}

/// Compares the records of a harvester: each is an object, whose relations are its parent and its other items.
fn compare_records(truth: &Truth, records: &BTreeMap<String, Relations>, differences: &mut String) {
    let mut objects: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (uri, item) in truth.items.iter().filter(|(uri, _)| !truth.unsettled.contains(*uri)) {
        let items = objects.entry(&item.object).or_default();
        if *uri != item.object {
            items.insert(uri);
        }
    }
    for (object, items) in &objects {
        let Some(Some(relations)) = records.get(*object) else {
            let _ = writeln!(differences, "the harvester lacks {object}");
            continue;
        };
        let relation_set: BTreeSet<_> = relations.iter().map(String::as_str).collect();
        let missing_items: Vec<_> = items.difference(&relation_set).collect();
        let is_settled = |relation: &&&str| !truth.unsettled.contains(**relation);
        let others: Vec<_> = relation_set.difference(items).filter(is_settled).collect();
        // One of the others is the parent.
        if !missing_items.is_empty() || others.len() > 1 {
            let _ = writeln!(differences, "the harvester lacks {missing_items:?} of {object}, and has {others:?}");
        }
    }
    for (object, relations) in records {
        let Some(relations) = relations else { continue };
        let is_unsettled = |uri: &String| truth.unsettled.contains(uri);
        if !objects.contains_key(object.as_str()) && !is_unsettled(object) && !relations.iter().any(is_unsettled) {
            let _ = writeln!(differences, "the harvester holds {object}");
        }
    }
}
