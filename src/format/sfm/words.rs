//! Descriptions for people: what a message tells and the model has no place for, in one sentence of
//! bounded length.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::message::{Export, Start, Status, WarcCreated};
use crate::model::Text;

/// How many of a list are named; the rest is counted.
const NAMED: usize = 10;

/// How much of one text is repeated, in characters.
const LONGEST: usize = 200;

/// Whether a value says anything.
pub(super) fn is_told(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(values) => !values.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

/// A sentence that is put together of parts.
struct Sentence(Vec<String>);

impl Sentence {
    fn new(beginning: impl Into<String>) -> Self {
        Self(vec![beginning.into()])
    }

    fn requested(what: &str, told_type: Option<&str>) -> Self {
        let told_type = told_type.map(|name| format!(" of {}", short(name))).unwrap_or_default();
        Self::new(format!("{what}{told_type} requested"))
    }

    fn add(&mut self, part: impl Into<String>) {
        self.0.push(part.into());
    }

    /// Adds `label value`, if there is a value.
    fn told(&mut self, label: &str, value: Option<&Value>) {
        if let Some(value) = value.filter(|value| is_told(value)) {
            self.add(format!("{label} {}", shown(value)));
        }
    }

    fn finish(self) -> Text {
        Text::new(&self.0.join("; "))
    }
}

/// The start of a harvest.
pub(super) fn start(start: &Start, harvest_type: Option<&str>) -> Text {
    let mut sentence = Sentence::requested("Harvest", harvest_type);
    seeds(&mut sentence, &start.seeds);
    sentence.told("options", Some(&start.options));
    sentence.told("path", Some(&start.path));
    if let Some(id) = start.collection_set.as_ref().and_then(|set| set.id.as_ref()) {
        sentence.add(format!("collection set {}", short(id.as_str())));
    }
    sentence.finish()
}

/// A WARC.
pub(super) fn warc(told: &WarcCreated) -> Text {
    let mut sentence = Sentence::new(format!("WARC created: {}", short(&told.warc.path)));
    if let Some(harvest) = &told.harvest {
        let id = harvest.id.as_ref().map(|id| short(id.as_str()));
        let kind = harvest.harvest_type.as_deref().map(|kind| format!("({})", short(kind)));
        let named: Vec<_> = id.into_iter().chain(kind).collect();
        if !named.is_empty() {
            sentence.add(format!("harvest {}", named.join(" ")));
        }
    }
    sentence.finish()
}

/// The start of an export.
pub(super) fn export(export: &Export, export_type: Option<&str>) -> Text {
    let mut sentence = Sentence::requested("Export", export_type);
    let rest = &export.rest;
    sentence.told("format", rest.get("format"));
    sentence.told("path", rest.get("path"));
    if let Some(told) = rest.get("seeds") {
        seeds(&mut sentence, told);
    }
    match rest.get("dedupe") {
        Some(Value::Bool(true)) => sentence.add("duplicates left out"),
        Some(Value::Bool(false)) | None => {}
        other => sentence.told("dedupe", other),
    }
    sentence.told("items a file:", rest.get("segment_size"));
    for (label, name) in [
        ("items from", "item_date_start"),
        ("items to", "item_date_end"),
        ("harvests from", "harvest_date_start"),
        ("harvests to", "harvest_date_end"),
    ] {
        sentence.told(label, rest.get(name));
    }
    sentence.finish()
}

/// The status of a harvest or an export.
pub(super) fn status(what: &str, status: &Status) -> Text {
    let rest = &status.rest;
    let said = status.status.as_str().to_ascii_lowercase().replace('_', " ");
    let mut sentence = Sentence::new(format!("{what} {said}"));
    if let Some(stats) = rest.get("stats").and_then(Value::as_object) {
        statistics(&mut sentence, stats);
    }
    if let Some(warcs) = rest.get("warcs").and_then(Value::as_object) {
        for (label, name) in [("WARCs:", "count"), ("bytes of WARCs:", "bytes")] {
            sentence.told(label, warcs.get(name));
        }
    }
    for (one, several) in [("error", "errors"), ("warning", "warnings"), ("info", "infos")] {
        if let Some(notes) = rest.get(several).filter(|notes| is_told(notes)) {
            let notes = notes.as_array().map_or(std::slice::from_ref(notes), Vec::as_slice);
            let word = if notes.len() == 1 { one } else { several };
            sentence.add(format!("{} {word} ({})", notes.len(), listed(notes.iter().map(note))));
        }
    }
    for (word, found) in [("token", &status.token_updates), ("uid", &status.uids)] {
        let found: Vec<_> = found.iter().flatten().filter(|(_, value)| is_told(value)).collect();
        if !found.is_empty() {
            let found = found.into_iter().map(|(seed, value)| format!("{} is {}", short(seed), shown(value)));
            sentence.add(format!("{word} of seed {}", listed(found)));
        }
    }
    for (label, time) in [("started", status.date_started), ("ended", status.date_ended)] {
        if let Some(time) = time {
            sentence.add(format!("{label} {time}"));
        }
    }
    for (label, name) in [("service", "service"), ("host", "host"), ("instance", "instance")] {
        sentence.told(label, rest.get(name));
    }
    sentence.finish()
}

/// `{"2016-05-20": {"photos": 12}}`: the sum of each noun, and the days.
fn statistics(sentence: &mut Sentence, stats: &Map<String, Value>) {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for counts in stats.values().filter_map(Value::as_object) {
        for (noun, count) in counts {
            *sums.entry(noun).or_default() += count.as_f64().unwrap_or_default();
        }
    }
    if sums.is_empty() {
        return;
    }
    let days = match (stats.keys().min(), stats.keys().max()) {
        (Some(first), Some(last)) if first == last => format!(" on {}", short(first)),
        (Some(first), Some(last)) => format!(" from {} to {}", short(first), short(last)),
        _ => String::new(),
    };
    let counted = sums.into_iter().map(|(noun, sum)| format!("{sum} {}", short(noun)));
    sentence.add(format!("{}{days}", listed(counted)));
}

/// The seeds of a start, by their tokens.
fn seeds(sentence: &mut Sentence, seeds: &Value) {
    let Some(seeds) = seeds.as_array().filter(|seeds| !seeds.is_empty()) else { return };
    let name = |seed: &Value| {
        let told = ["token", "uid", "id"].into_iter().find_map(|name| seed.get(name).filter(|value| is_told(value)));
        shown(told.unwrap_or(seed))
    };
    let word = if seeds.len() == 1 { "seed" } else { "seeds" };
    sentence.add(format!("{} {word} ({})", seeds.len(), listed(seeds.iter().map(name))));
}

/// `code: message [seed id]`.
fn note(note: &Value) -> String {
    let Some(note) = note.as_object() else { return shown(note) };
    let told = |name: &str| note.get(name).filter(|value| is_told(value)).map(shown);
    let words: Vec<_> = [told("code"), told("message")].into_iter().flatten().collect();
    let seed = told("seed_id").map(|seed| format!(" [seed {seed}]")).unwrap_or_default();
    format!("{}{seed}", words.join(": "))
}

fn listed(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = all.len().saturating_sub(NAMED);
    let mut named: Vec<_> = all.take(NAMED).collect();
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    named.join(", ")
}

/// A text as it is, anything else as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => short(text),
        other => short(&other.to_string()),
    }
}

fn short(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
