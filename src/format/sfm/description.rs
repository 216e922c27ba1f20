//! Descriptions for people: data of a message for which the model has no field, as one sentence of bounded
//! length.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::message::{Export, Start, Status, WarcCreated};
use crate::model::{Reading, Text};

/// Maximum number of list entries that are named; the others are counted.
const MAX_NAMED: usize = 10;

/// Maximum number of characters quoted of a text.
const MAX_CHARS: usize = 200;

/// Returns whether a value is neither null nor empty.
pub(super) fn has_value(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(values) => !values.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

/// A sentence of several parts.
struct Sentence(Vec<String>);

impl Sentence {
    fn new(beginning: impl Into<String>) -> Self {
        Self(vec![beginning.into()])
    }

    fn requested(what: &str, activity_type: Option<&str>) -> Self {
        let activity_type = activity_type.map(|name| format!(" of {}", truncate(name))).unwrap_or_default();
        Self::new(format!("{what}{activity_type} requested"))
    }

    fn add(&mut self, part: impl Into<String>) {
        self.0.push(part.into());
    }

    /// Adds `label value` if there is a value.
    fn add_labelled(&mut self, label: &str, value: Option<&Value>) {
        if let Some(value) = value.filter(|value| has_value(value)) {
            self.add(format!("{label} {}", display(value)));
        }
    }

    fn finish(self) -> Text {
        Text::new(&self.0.join("; "))
    }
}

/// Describes the start of a harvest.
pub(super) fn start(start: &Start, harvest_type: Option<&str>) -> Text {
    let mut sentence = Sentence::requested("Harvest", harvest_type);
    seeds(&mut sentence, &start.seeds);
    sentence.add_labelled("options", Some(&start.options));
    sentence.add_labelled("path", Some(&start.path));
    if let Some(id) = start.collection_set.as_ref().and_then(|set| set.id.as_ref()) {
        sentence.add(format!("collection set {}", truncate(id.as_str())));
    }
    sentence.finish()
}

/// Describes a new WARC.
pub(super) fn warc(message: &WarcCreated) -> Text {
    let mut sentence = Sentence::new(format!("WARC created: {}", truncate(&message.warc.path)));
    if let Some(harvest) = &message.harvest {
        let id = harvest.id.as_ref().map(|id| truncate(id.as_str()));
        let kind = harvest.harvest_type.as_deref().map(|kind| format!("({})", truncate(kind)));
        let named: Vec<_> = id.into_iter().chain(kind).collect();
        if !named.is_empty() {
            sentence.add(format!("harvest {}", named.join(" ")));
        }
    }
    sentence.finish()
}

/// Describes the start of an export.
pub(super) fn export(export: &Export, export_type: Option<&str>) -> Text {
    let mut sentence = Sentence::requested("Export", export_type);
    let rest = &export.rest;
    sentence.add_labelled("format", rest.get("format"));
    sentence.add_labelled("path", rest.get("path"));
    if let Some(list) = rest.get("seeds") {
        seeds(&mut sentence, list);
    }
    match rest.get("dedupe") {
        Some(Value::Bool(true)) => sentence.add("duplicates left out"),
        Some(Value::Bool(false)) | None => {}
        other => sentence.add_labelled("dedupe", other),
    }
    sentence.add_labelled("items a file:", rest.get("segment_size"));
    for (label, name) in [
        ("items from", "item_date_start"),
        ("items to", "item_date_end"),
        ("harvests from", "harvest_date_start"),
        ("harvests to", "harvest_date_end"),
    ] {
        sentence.add_labelled(label, rest.get(name));
    }
    sentence.finish()
}

/// Describes the status of a harvest or an export.
pub(super) fn status(what: &str, status: &Status) -> Text {
    let rest = &status.rest;
    let words = status.status.as_str().to_ascii_lowercase().replace('_', " ");
    let mut sentence = Sentence::new(format!("{what} {words}"));
    if let Some(stats) = rest.get("stats").and_then(Value::as_object) {
        statistics(&mut sentence, stats);
    }
    if let Some(warcs) = rest.get("warcs").and_then(Value::as_object) {
        for (label, name) in [("WARCs:", "count"), ("bytes of WARCs:", "bytes")] {
            sentence.add_labelled(label, warcs.get(name));
        }
    }
    for (one, several) in [("error", "errors"), ("warning", "warnings"), ("info", "infos")] {
        if let Some(notes) = rest.get(several).filter(|notes| has_value(notes)) {
            let notes = notes.as_array().map_or(std::slice::from_ref(notes), Vec::as_slice);
            let word = if notes.len() == 1 { one } else { several };
            sentence.add(format!("{} {word} ({})", notes.len(), list(notes.iter().map(note))));
        }
    }
    for (word, updates) in [("token", &status.token_updates), ("uid", &status.uids)] {
        let updates: Vec<_> = updates.iter().flatten().filter(|(_, value)| has_value(value)).collect();
        if !updates.is_empty() {
            let updates = updates.into_iter().map(|(seed, value)| format!("{} is {}", truncate(seed), display(value)));
            sentence.add(format!("{word} of seed {}", list(updates)));
        }
    }
    for (label, time) in [("started", status.date_started), ("ended", status.date_ended)] {
        let time = time.read(&mut Reading::default());
        if let Some(time) = time {
            sentence.add(format!("{label} {time}"));
        }
    }
    for (label, name) in [("service", "service"), ("host", "host"), ("instance", "instance")] {
        sentence.add_labelled(label, rest.get(name));
    }
    sentence.finish()
}

/// Adds the sum of each noun and the range of days from `{"2016-05-20": {"photos": 12}}`.
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
        (Some(first), Some(last)) if first == last => format!(" on {}", truncate(first)),
        (Some(first), Some(last)) => format!(" from {} to {}", truncate(first), truncate(last)),
        _ => String::new(),
    };
    let counted = sums.into_iter().map(|(noun, sum)| format!("{sum} {}", truncate(noun)));
    sentence.add(format!("{}{days}", list(counted)));
}

/// Adds the seeds of a start, by their tokens.
fn seeds(sentence: &mut Sentence, seeds: &Value) {
    let Some(seeds) = seeds.as_array().filter(|seeds| !seeds.is_empty()) else { return };
    let name = |seed: &Value| {
        let name = ["token", "uid", "id"].into_iter().find_map(|name| seed.get(name).filter(|value| has_value(value)));
        display(name.unwrap_or(seed))
    };
    let word = if seeds.len() == 1 { "seed" } else { "seeds" };
    sentence.add(format!("{} {word} ({})", seeds.len(), list(seeds.iter().map(name))));
}

/// Formats a note as `code: message [seed id]`.
fn note(note: &Value) -> String {
    let Some(note) = note.as_object() else { return display(note) };
    let member = |name: &str| note.get(name).filter(|value| has_value(value)).map(display);
    let words: Vec<_> = [member("code"), member("message")].into_iter().flatten().collect();
    let seed = member("seed_id").map(|seed| format!(" [seed {seed}]")).unwrap_or_default();
    format!("{}{seed}", words.join(": "))
}

fn list(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = all.len().saturating_sub(MAX_NAMED);
    let mut named: Vec<_> = all.take(MAX_NAMED).collect();
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    named.join(", ")
}

/// Formats a string as it is, and any other value as JSON.
fn display(value: &Value) -> String {
    match value {
        Value::String(text) => truncate(text),
        other => truncate(&other.to_string()),
    }
}

fn truncate(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
