//! Copies of a world that subscribers keep who know only the documentation of their format.

use std::collections::{BTreeMap, BTreeSet};

use quick_xml::{Reader, XmlVersion, events::Event};
use serde_json::Value;

/// Format of a subscriber's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyFormat {
    Atom,
    Json,
    CloudEvents,
    ActivityStreams,
}

impl CopyFormat {
    const ALL: [Self; 4] = [Self::Atom, Self::Json, Self::CloudEvents, Self::ActivityStreams];

    /// Returns the name in the settings of a subscription.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Atom => "atom",
            Self::Json => "json",
            Self::CloudEvents => "cloudevents",
            Self::ActivityStreams => "activitystreams",
        }
    }
}

/// Items that a subscriber holds who applies each message to an empty set.
#[derive(Clone, Debug)]
pub(crate) struct SubscriberCopy {
    /// Name of the subscription.
    pub(crate) name: String,
    pub(crate) format: CopyFormat,
    /// True if the subscriber gets only the changes of the public view.
    pub(crate) visibility: bool,
    /// The items, each with the size of its content if a message has told it. In ActivityStreams: the resources.
    pub(crate) items: BTreeMap<String, Option<u64>>,
    /// Identifiers of the messages so far.
    seen: BTreeSet<String>,
}

/// What a message says about one item.
struct ItemStatement {
    uri: String,
    /// `ADD`, `UPDATE`, `DELETE`, or nothing for a change of state.
    change: String,
    size: Option<u64>,
    /// Facts that are older than those that the subscriber has.
    late: Vec<String>,
}

impl SubscriberCopy {
    /// Returns an empty copy for each format, with and without visibility.
    pub(crate) fn of_every_kind() -> Vec<Self> {
        let kinds = CopyFormat::ALL.into_iter().flat_map(|format| [(format, false), (format, true)]);
        let copy = |(format, visibility): (CopyFormat, bool)| Self {
            name: format!("{}-{}", format.name(), if visibility { "public" } else { "all" }),
            format,
            visibility,
            items: BTreeMap::new(),
            seen: BTreeSet::new(),
        };
        kinds.map(copy).collect()
    }

    /// Applies a message, unless it is a repetition.
    pub(crate) fn apply(&mut self, id: &str, body: &[u8]) {
        if !self.seen.insert(id.to_owned()) {
            return;
        }
        let told = match self.format {
            CopyFormat::Atom => of_atom(std::str::from_utf8(body).unwrap()),
            CopyFormat::Json => of_json(&serde_json::from_slice(body).unwrap()),
            CopyFormat::CloudEvents => of_json(&serde_json::from_slice::<Value>(body).unwrap()["data"]),
            CopyFormat::ActivityStreams => of_activity(&serde_json::from_slice(body).unwrap()),
        };
        told.into_iter().for_each(|item| self.apply_item(item));
    }

    fn apply_item(&mut self, item: ItemStatement) {
        let is_late = |fact: &str| item.late.iter().any(|late| late == fact);
        if is_late("existence") || (item.change.is_empty() && is_late("state")) {
            return;
        }
        if item.change == "DELETE" {
            self.items.remove(&item.uri);
            return;
        }
        let has_content = item.size.is_some() && !is_late("content");
        let size = self.items.entry(item.uri).or_default();
        if has_content {
            *size = item.size;
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Reads a change in JSON, by docs/json.md.
fn of_json(change: &Value) -> Vec<ItemStatement> {
    let item = |item: &Value| ItemStatement {
        uri: text(&item["uri"]),
        change: text(&item["change"]),
        size: item["content"]["size"].as_u64(),
        late: item["late"].as_array().into_iter().flatten().map(text).collect(),
    };
    change["items"].as_array().unwrap().iter().map(item).collect()
}

/// Reads an event in ActivityStreams, which says what became of one resource.
fn of_activity(event: &Value) -> Vec<ItemStatement> {
    let change = match event["type"][0].as_str().unwrap() {
        "Create" => "ADD",
        "Update" => "UPDATE",
        "Delete" => "DELETE",
        other => panic!("docs/formats.md knows no {other}"),
    };
    vec![ItemStatement { uri: text(&event["object"]["id"]), change: change.to_owned(), size: None, late: Vec::new() }]
}

/// Reads a content-change message: one item for each entry.
fn of_atom(message: &str) -> Vec<ItemStatement> {
    let mut reader = Reader::from_str(message);
    let (mut items, mut item): (Vec<ItemStatement>, Option<ItemStatement>) = (Vec::new(), None);
    let mut in_late = false;
    loop {
        match reader.read_event().unwrap() {
            Event::Start(element) | Event::Empty(element) => {
                let attribute = |name: &str| {
                    let found = element.try_get_attribute(name).unwrap();
                    found.map(|found| found.normalized_value(XmlVersion::Implicit1_0).unwrap().into_owned())
                };
                match (element.name().as_ref(), &mut item) {
                    (b"entry", _) => {
                        let (uri, change) = (String::new(), String::new());
                        item = Some(ItemStatement { uri, change, size: None, late: Vec::new() });
                    }
                    (b"link", Some(item)) if attribute("rel").as_deref() == Some("via") => {
                        item.uri = attribute("href").unwrap();
                        item.size = attribute("length").map(|length| length.parse().unwrap());
                    }
                    (b"category", Some(item)) if attribute("scheme").as_deref() == Some("changes:ITEM:CHANGE:TYPE") => {
                        item.change = attribute("term").unwrap();
                    }
                    (b"tidings:late", _) => in_late = true,
                    _ => {}
                }
            }
            Event::Text(words) => {
                if let (true, Some(item)) = (in_late, &mut item) {
                    item.late = words.decode().unwrap().split_whitespace().map(str::to_owned).collect();
                }
            }
            Event::End(element) => match element.name().as_ref() {
                b"entry" => items.extend(item.take()),
                b"tidings:late" => in_late = false,
                _ => {}
            },
            Event::Eof => return items,
            _ => {}
        }
    }
}
