//! Manifest of a segment: its file, its changes, and their sources, types, parents and hosts.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    files::FileDigest,
    journal::segments::SegmentRecord,
    model::{Filter, Seq, SourceName, Timestamp, Uri},
};

/// Maximum number of names of a kind in a manifest. A segment with more has none, and matches every condition.
const MAX_NAMES: usize = 100;

/// Maximum size of the names of a kind in a manifest, in bytes.
const MAX_NAME_BYTES: usize = 8 << 10;

/// The manifest in the journal cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the manifest of the segment that begins with the change {first} cannot be read: {error}")]
pub struct InvalidManifest {
    /// First number of the span.
    pub first: Seq,
    /// The reason.
    pub error: serde_json::Error,
}

/// A sealed segment. The file has a change on each line, as in `/changes`, in frames of the format Zstandard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Segment)]
pub struct Manifest {
    /// First number of the span.
    #[schema(value_type = u64)]
    pub first: Seq,
    /// Last number of the span.
    #[schema(value_type = u64)]
    pub last: Seq,
    /// Number of the last change: less than `last` if a restore has skipped numbers.
    #[schema(value_type = u64)]
    pub last_change: Seq,
    /// Number of changes.
    pub changes: u64,
    /// Identity that the journal had when the segment was sealed.
    #[schema(value_type = String)]
    pub journal: Uuid,
    /// SHA-256 of the file, in hexadecimal digits.
    #[schema(value_type = String)]
    pub file: FileDigest,
    /// Size of the file, in bytes.
    pub size: u64,
    /// SHA-256 of the lines, decompressed.
    #[schema(value_type = String)]
    pub digest: FileDigest,
    /// Size of the lines, in bytes.
    pub plain_size: u64,
    /// Time of receipt of the first change; `null` if all are damaged.
    #[schema(value_type = Option<String>, required = true)]
    pub received_from: Option<Timestamp>,
    /// Time of receipt of the last change.
    #[schema(value_type = Option<String>, required = true)]
    pub received_until: Option<Timestamp>,
    /// Parts of the file that can be decompressed alone.
    pub frames: Vec<Frame>,
    /// Sources of the changes; `null` if there are too many, as in all other lists.
    pub sources: Option<BTreeSet<String>>,
    /// Types of the objects.
    pub types: Option<BTreeSet<String>>,
    /// Parents of the objects.
    pub parents: Option<BTreeSet<String>>,
    /// Schemes and hosts of the URIs of the objects.
    pub hosts: Option<BTreeSet<String>>,
    /// Numbers of damaged changes, which the journal could not read and the file lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<u64>)]
    pub damaged: Vec<Seq>,
}

/// Part of the file of a segment that can be decompressed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Frame {
    /// Number of the first change.
    #[schema(value_type = u64)]
    pub first: Seq,
    /// Number of the last change.
    #[schema(value_type = u64)]
    pub last: Seq,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Its size in the file, in bytes.
    pub size: u64,
}

impl Manifest {
    /// Reads what the journal has noted.
    pub(super) fn of_record(record: &SegmentRecord) -> Result<Self, InvalidManifest> {
        serde_json::from_str(&record.manifest).map_err(|error| InvalidManifest { first: record.first, error })
    }

    /// Returns what the journal notes.
    ///
    /// # Errors
    /// Never: every value has a form in JSON.
    pub(super) fn to_record(&self) -> Result<SegmentRecord, InvalidManifest> {
        let manifest = serde_json::to_string(self).map_err(|error| InvalidManifest { first: self.first, error })?;
        Ok(SegmentRecord { first: self.first, last: self.last_change, manifest })
    }

    /// Returns whether a change of the segment may match a filter. Only changes that it does not have are excluded.
    #[must_use]
    pub fn may_match(&self, filter: &Filter) -> bool {
        // Nobody knows what a damaged change is about.
        !self.damaged.is_empty()
            || meets(self.sources.as_ref(), &filter.sources, |source, names| names.contains(source.as_str()))
                && meets(self.types.as_ref(), &filter.types, |kind, names| names.contains(kind.as_str()))
                && meets(self.parents.as_ref(), &filter.parents, |parent, names| names.contains(parent.as_str()))
                && meets(self.hosts.as_ref(), &filter.objects, |prefix, hosts| {
                    let prefix = prefix.as_str();
                    hosts.iter().any(|host| prefix.starts_with(host.as_str()) || host.starts_with(prefix))
                })
                && filter.since.is_none_or(|since| self.received_until >= Some(since))
    }
}

/// Returns whether one of the names meets a condition, which has no values if there is none.
fn meets<T>(names: Option<&BTreeSet<String>>, values: &[T], has: impl Fn(&T, &BTreeSet<String>) -> bool) -> bool {
    values.is_empty() || names.is_none_or(|names| values.iter().any(|value| has(value, names)))
}

/// Collector of the names in a manifest.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) sources: NameSet,
    pub(super) types: NameSet,
    pub(super) parents: NameSet,
    pub(super) hosts: NameSet,
}

/// Names of a kind, or nothing once there are too many.
#[derive(Debug)]
pub(super) struct NameSet(Option<BTreeSet<String>>, usize);

impl Default for NameSet {
    fn default() -> Self {
        Self(Some(BTreeSet::new()), 0)
    }
}

impl NameSet {
    fn add(&mut self, name: &str) {
        let Some(names) = &mut self.0 else { return };
        if names.contains(name) {
            return;
        }
        self.1 += name.len();
        names.insert(name.to_owned());
        if names.len() > MAX_NAMES || self.1 > MAX_NAME_BYTES {
            self.0 = None;
        }
    }

    pub(super) fn into_names(self) -> Option<BTreeSet<String>> {
        self.0
    }
}

impl Names {
    /// Adds the names in a change.
    pub(super) fn add(&mut self, source: &SourceName, object: &Uri, parent: Option<&Uri>, types: &[Uri]) {
        self.sources.add(source.as_str());
        self.hosts.add(host(object.as_str()));
        parent.into_iter().for_each(|parent| self.parents.add(parent.as_str()));
        types.iter().for_each(|kind| self.types.add(kind.as_str()));
    }
}

/// Returns scheme and host of a URI, or its scheme if it has no host.
fn host(uri: &str) -> &str {
    match uri.split_once("://") {
        Some((scheme, rest)) => {
            let length = scheme.len() + 3 + rest.find('/').unwrap_or(rest.len());
            &uri[..length]
        }
        None => uri.find(':').map_or(uri, |colon| &uri[..=colon]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::UriPrefix;

    fn segment(names: Names) -> Manifest {
        let digest = FileDigest::parse(&"0".repeat(64)).unwrap();
        Manifest {
            first: Seq(1),
            last: Seq(10_000),
            last_change: Seq(10_000),
            changes: 10_000,
            journal: Uuid::nil(),
            file: digest,
            size: 1,
            digest,
            plain_size: 1,
            received_from: Some(Timestamp::EPOCH),
            received_until: Some(Timestamp::EPOCH),
            frames: Vec::new(),
            sources: names.sources.into_names(),
            types: names.types.into_names(),
            parents: names.parents.into_names(),
            hosts: names.hosts.into_names(),
            damaged: Vec::new(),
        }
    }

    fn uri(text: &str) -> Uri {
        Uri::parse(text).unwrap()
    }

    #[test]
    fn manifests_exclude_only_what_they_lack() {
        let mut names = Names::default();
        let source = SourceName::parse("fedora").unwrap();
        names.add(&source, &uri("http://a.example/rest/1"), Some(&uri("http://a.example/c")), &[uri("urn:t:1")]);
        names.add(&source, &uri("info:fedora/demo:1"), None, &[]);
        let segment = segment(names);
        let prefix = |text: &str| Filter { objects: vec![UriPrefix::parse(text).unwrap()], ..Filter::default() };
        let cases = [
            (Filter::default(), true),
            (Filter { sources: vec![source], ..Filter::default() }, true),
            (Filter { sources: vec![SourceName::parse("sfm").unwrap()], ..Filter::default() }, false),
            (Filter { types: vec![uri("urn:t:1"), uri("urn:t:2")], ..Filter::default() }, true),
            (Filter { types: vec![uri("urn:t:2")], ..Filter::default() }, false),
            (Filter { parents: vec![uri("http://a.example/c")], ..Filter::default() }, true),
            (Filter { parents: vec![uri("http://a.example/d")], ..Filter::default() }, false),
            (prefix("http://a.example/rest/"), true),
            (prefix("http://a.ex"), true),
            (prefix("http://b.example/"), false),
            (prefix("info:fedora/demo:9"), true),
            (prefix("info:"), true),
            (prefix("urn:"), false),
            (Filter { since: Timestamp::from_millis(1), ..Filter::default() }, false),
        ];
        for (filter, expected) in cases {
            assert_eq!(segment.may_match(&filter), expected, "{filter:?}");
        }
    }

    #[test]
    fn too_many_names_exclude_nothing() {
        let mut names = Names::default();
        let source = SourceName::parse("s").unwrap();
        for number in 0..=MAX_NAMES {
            names.add(&source, &uri(&format!("http://h{number}.example/")), None, &[]);
        }
        let segment = segment(names);
        assert_eq!(segment.hosts, None);
        let elsewhere = vec![UriPrefix::parse("http://elsewhere.example/").unwrap()];
        assert!(segment.may_match(&Filter { objects: elsewhere, ..Filter::default() }));
        let text = segment.to_record().unwrap();
        assert_eq!(Manifest::of_record(&text).unwrap(), segment);
    }
}
