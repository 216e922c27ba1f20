//! Records: the facts of the registry about an object and its items, as a crawler gets them.
//!
//! An object is one subject, and each of its items is one. If an item has the URI of its object, it is the record of the
//! object. A subject is NORMAL while the item exists (the object: while it has such an item), and otherwise DELETED.
//!
//! The records of a change have the state of the registry when they are read, which includes the change and possibly later
//! ones. Later changes have records of their own. So the last record of a subject is always right, also after late events,
//! and a full dump has the same records.

use foldhash::{HashMap, HashSet};

use super::categories::{self, CONTENT, FILE, RESOURCE};
use crate::{
    journal::{
        ChangeOutline, RawContentLocation,
        registry::{ItemRecord, ObjectState},
        store::{ItemSelection, ObjectSelection, StoreError},
    },
    model::{ContentLocation, DigestAlgorithm, SourceName, Timestamp, Uri, UriPrefix, is_public},
};

/// Maximum size of the fields of a record, in bytes. Fields beyond it are omitted.
const MAX_FIELD_BYTES: usize = 1024 * 1024;

/// Size of a record beside its texts, in bytes: the lengths, the padding and the state on the wire.
const RECORD_OVERHEAD: usize = 64;

/// Size of a field beside its texts, in bytes.
const FIELD_OVERHEAD: usize = 16;

/// The subjects that crawlers can get.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Whether only items that the public can see are subjects.
    pub visibility: bool,
    /// Beginnings of the objects' URIs; without any, all objects are selected.
    pub objects: Vec<UriPrefix>,
    /// Sources that were the first to report the objects; without any, all objects are selected. The first source of an
    /// object never changes, so an object neither enters nor leaves the selection.
    pub sources: Vec<SourceName>,
}

impl Selection {
    fn includes(&self, object: &Uri, state: &ObjectState) -> bool {
        let has_prefix = || self.objects.iter().any(|prefix| prefix.is_prefix_of(object));
        let has_source = || state.source.as_ref().is_some_and(|source| self.sources.contains(source));
        (self.objects.is_empty() || has_prefix()) && (self.sources.is_empty() || has_source())
    }

    fn includes_item(&self, state: &ObjectState, item: &Uri) -> bool {
        state.is_live(item) && (!self.visibility || is_public(state.state(item)))
    }

    fn includes_any_of(&self, state: &ObjectState) -> bool {
        state.items.keys().any(|item| self.includes_item(state, item))
    }
}

/// A record.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) uri: Uri,
    /// Facts about the subject; `None` if it is deleted.
    pub(super) facts: Option<Facts>,
    /// Whether the categories of the subject never change.
    pub(super) has_fixed_categories: bool,
    /// Approximate size on the wire, in bytes.
    pub(super) bytes: usize,
}

/// Facts about an existing subject.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) content_cat: &'static str,
    pub(super) source_cat: &'static str,
    pub(super) fields: Vec<(&'static str, Box<str>)>,
}

/// A change whose records are to be read.
pub(super) struct ChangedSubjects {
    /// Time of receipt of the change.
    pub(super) received: Timestamp,
    object: Uri,
    /// Items of the change, each once. The object's own item is not among them.
    items: Vec<Uri>,
    /// Time of the purge, if the change is one. A late purge spares newer items and does not list them, but takes older
    /// facts from them.
    purged: Option<Timestamp>,
}

impl ChangedSubjects {
    /// Returns the subjects of a change. `unlisted` are items that it affects although it does not list them.
    pub(super) fn of<'c>(change: ChangeOutline, unlisted: impl IntoIterator<Item = &'c Uri>) -> Self {
        let ChangeOutline { received, time, object, purge, items: listed } = change;
        let mut known: HashSet<Uri> = HashSet::default();
        known.insert(object.clone());
        let listed = listed.into_iter().map(|item| item.uri).chain(unlisted.into_iter().cloned());
        let items = listed.filter(|item| known.insert(item.clone())).collect();
        Self { received, object, items, purged: purge.then(|| time.min(received)) }
    }

    /// Adds the rows of the registry that the records need.
    pub(super) fn select(&self, rows: &mut ObjectSelection) {
        let items = match self.purged {
            Some(_) => ItemSelection::All,
            None => ItemSelection::these(self.items.iter().chain([&self.object]).cloned()),
        };
        rows.entry(self.object.clone()).or_insert_with(|| ItemSelection::these([])).widen(items);
    }

    /// Returns the record of each subject; none if the selection excludes the object. `visible` are the objects that have
    /// an item in the selection.
    pub(super) fn records(
        &self,
        selection: &Selection,
        rows: &HashMap<Uri, ObjectState>,
        visible: &HashSet<Uri>,
    ) -> Result<Vec<Record>, StoreError> {
        let (object, unknown) = (&self.object, ObjectState::default());
        let state = rows.get(object).unwrap_or(&unknown);
        if !selection.includes(object, state) {
            return Ok(Vec::new());
        }
        let reader = RecordReader { selection, object, state };
        let of_object = reader.object(visible.contains(object));
        let items = self.items.iter().chain(self.spared(state));
        [of_object].into_iter().chain(items.map(|item| reader.item(item))).collect()
    }

    /// Returns the items that a late purge has spared, in order of their URIs. Later changes can add items to them, but
    /// remove none, so a crawler that has some of their records gets the others.
    fn spared<'s>(&'s self, state: &'s ObjectState) -> impl Iterator<Item = &'s Uri> {
        let listed: HashSet<&Uri> = self.purged.iter().flat_map(|_| self.items.iter().chain([&self.object])).collect();
        let is_newer = |record: &ItemRecord, purged| {
            let latest = record.existence.clock.latest();
            latest > Some(purged) || (latest == Some(purged) && record.existence.value)
        };
        let is_spared = move |record: &ItemRecord| self.purged.is_some_and(|purged| is_newer(record, purged));
        let items = state.items.iter().filter(move |(item, record)| is_spared(record) && !listed.contains(item));
        items.map(|(item, _)| item)
    }
}

/// Returns the objects whose rows do not show yet that they have an item in the selection. All their items must be read.
pub(super) fn rows_to_complete(rows: &HashMap<Uri, ObjectState>, selection: &Selection) -> ObjectSelection {
    let incomplete =
        rows.iter().filter(|(uri, state)| selection.includes(uri, state) && !selection.includes_any_of(state));
    incomplete.map(|(uri, _)| (uri.clone(), ItemSelection::All)).collect()
}

/// Returns the objects that have an item in the selection.
pub(super) fn visible_objects<'r>(
    rows: impl IntoIterator<Item = (&'r Uri, &'r ObjectState)>,
    selection: &Selection,
) -> HashSet<Uri> {
    rows.into_iter().filter(|(_, state)| selection.includes_any_of(state)).map(|(uri, _)| uri.clone()).collect()
}

/// Returns the records of an object of the registry with all its existing items.
pub(super) fn of_object(selection: &Selection, object: &Uri, state: &ObjectState) -> Result<Vec<Record>, StoreError> {
    if !selection.includes(object, state) || !selection.includes_any_of(state) {
        return Ok(Vec::new());
    }
    let reader = RecordReader { selection, object, state };
    let items = state.items.keys().filter(|item| *item != object && selection.includes_item(state, item));
    [reader.object(true)].into_iter().chain(items.map(|item| reader.item(item))).collect()
}

/// Reads the records of one object.
struct RecordReader<'a> {
    selection: &'a Selection,
    object: &'a Uri,
    state: &'a ObjectState,
}

impl RecordReader<'_> {
    /// Returns the record of the object; `exists` says whether the selection has any item of it.
    fn object(&self, exists: bool) -> Result<Record, StoreError> {
        let mut fields = Fields::default();
        let mut categories = (CONTENT, RESOURCE);
        if self.selection.includes_item(self.state, self.object) {
            categories = self.describe_item(self.object, &mut fields)?;
        } else {
            fields.add("xesam:url", self.object.as_str());
            let known = [self.state.parent.clock, self.state.types.clock];
            fields.add_time(known.into_iter().filter_map(|clock| clock.at).max());
        }
        if let Some(parent) = self.state.parent() {
            fields.add("tidings:parent", parent.as_str());
        }
        self.state.types().iter().for_each(|kind| fields.add("tidings:type", kind.as_str()));
        let has_fixed_categories = !self.state.items.contains_key(self.object);
        Ok(record(self.object, exists.then(|| fields.facts(categories)), has_fixed_categories))
    }

    fn item(&self, item: &Uri) -> Result<Record, StoreError> {
        if !self.selection.includes_item(self.state, item) {
            return Ok(record(item, None, false));
        }
        let mut fields = Fields::default();
        let categories = self.describe_item(item, &mut fields)?;
        fields.add("tidings:object", self.object.as_str());
        Ok(record(item, Some(fields.facts(categories)), false))
    }

    /// Adds the facts about an item, and returns its categories.
    fn describe_item(&self, item: &Uri, fields: &mut Fields) -> Result<(&'static str, &'static str), StoreError> {
        let content = self.state.content(item).map(RawContentLocation::parse).transpose()?;
        let categories = match &content {
            Some(content) => {
                fields.add_content(content);
                (categories::of_media_type(content.media_type.as_ref()), FILE)
            }
            None => {
                fields.add("xesam:url", item.as_str());
                (CONTENT, RESOURCE)
            }
        };
        let record = self.state.items.get(item);
        let clocks = record.map(|record| [record.existence.clock, record.content.clock]);
        fields.add_time(clocks.into_iter().flatten().filter_map(|clock| clock.at).max());
        if let Some(state) = self.state.state(item) {
            fields.add("tidings:state", state.as_str());
        }
        Ok(categories)
    }
}

fn record(uri: &Uri, facts: Option<Facts>, has_fixed_categories: bool) -> Record {
    let size = |facts: &Facts| -> usize {
        facts.fields.iter().map(|(name, value)| name.len() + value.len() + FIELD_OVERHEAD).sum()
    };
    let bytes = RECORD_OVERHEAD + uri.as_str().len() + facts.as_ref().map_or(0, size);
    Record { uri: uri.clone(), facts, has_fixed_categories, bytes }
}

/// Fields of a record, within their limit.
#[derive(Default)]
struct Fields {
    fields: Vec<(&'static str, Box<str>)>,
    bytes: usize,
}

impl Fields {
    fn add(&mut self, name: &'static str, value: &str) {
        self.bytes += name.len() + value.len() + FIELD_OVERHEAD;
        if self.bytes <= MAX_FIELD_BYTES {
            self.fields.push((name, crate::text::storable(value).into()));
        }
    }

    /// Adds the source's time of the newest fact.
    fn add_time(&mut self, time: Option<Timestamp>) {
        if let Some(time) = time {
            self.add("xesam:sourceModified", &time.to_string());
        }
    }

    fn add_content(&mut self, content: &ContentLocation) {
        self.add("xesam:url", content.url.as_str());
        if let Some(media_type) = &content.media_type {
            self.add("xesam:mimeType", media_type.as_str());
        }
        if let Some(size) = content.size {
            self.add("xesam:size", &size.to_string());
        }
        match &content.digest {
            Some(digest) if digest.algorithm() == DigestAlgorithm::Md5 => self.add("xesam:md5Hash", digest.hex()),
            Some(digest) if digest.algorithm() == DigestAlgorithm::Sha1 => self.add("xesam:sha1Hash", digest.hex()),
            Some(digest) => {
                self.add("tidings:digest", &format!("{}:{}", digest.algorithm().name(), digest.hex()));
            }
            None => {}
        }
        if let Some(original) = &content.original {
            self.add("xesam:originURL", original.url.as_str());
        }
    }

    fn facts(self, (content_cat, source_cat): (&'static str, &'static str)) -> Facts {
        Facts { content_cat, source_cat, fields: self.fields }
    }
}
