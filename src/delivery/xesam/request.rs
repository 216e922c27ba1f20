//! The request of a crawler: the arguments of `ListRecords`.

use super::{
    categories::{CONTENT, CategoryFilter, PREFIX, RESOURCE},
    records::{Facts, Record},
};

/// State of a record whose subject exists.
const NORMAL: u64 = 1;

/// State of a record whose subject is deleted, or no longer in the categories of the crawler.
const DELETED: u64 = 2;

/// A record as it is sent, with the signature `(ssssta(ss))`: URI, timestamp, content category, source category, state,
/// and fields.
pub(super) type Payload<'r> = (&'r str, String, &'r str, &'r str, u64, Vec<(&'r str, &'r str)>);

/// The request of a crawler.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// Time in seconds since 1970 after which the crawler wants records.
    pub(super) mtime: u64,
    /// Names of the fields that the crawler wants; all, if there are none.
    fields: Vec<String>,
    content_cats: CategoryFilter,
    source_cats: CategoryFilter,
    /// Maximum number of records in a batch.
    pub(super) batch: usize,
}

impl Request {
    pub(super) fn new(
        mtime: u64,
        fields: Vec<String>,
        (content_cats, source_cats): (&[String], &[String]),
        batch: usize,
    ) -> Self {
        let (content_cats, source_cats) = (CategoryFilter::new(content_cats), CategoryFilter::new(source_cats));
        Self { mtime, fields, content_cats, source_cats, batch }
    }

    /// Returns a record of a change as this crawler gets it; `None` if it does not get the record.
    ///
    /// A subject that is not in the wanted categories may have been in them before, even if the change adds it: a source
    /// may report the addition of an item that exists. The crawler then has it, and gets it as deleted.
    pub(super) fn payload<'r>(&self, record: &'r Record) -> Option<Payload<'r>> {
        let was_never_wanted = || record.has_fixed_categories && !self.wants_categories(CONTENT, RESOURCE);
        let deleted =
            || (!was_never_wanted()).then(|| (record.uri.as_str(), String::new(), "", "", DELETED, Vec::new()));
        self.dumped(record).or_else(deleted)
    }

    /// Returns a record of a full dump as this crawler gets it; `None` if it does not get the record. The crawler has
    /// removed everything, so it has nothing to delete.
    pub(super) fn dumped<'r>(&self, record: &'r Record) -> Option<Payload<'r>> {
        let wants = |facts: &&Facts| self.wants_categories(facts.content_cat, facts.source_cat);
        record.facts.as_ref().filter(wants).map(|facts| {
            let fields = facts.fields.iter().filter(|(name, _)| self.wants_field(name));
            let fields = fields.map(|(name, value)| (*name, &**value)).collect();
            (record.uri.as_str(), String::new(), facts.content_cat, facts.source_cat, NORMAL, fields)
        })
    }

    fn wants_categories(&self, content_cat: &str, source_cat: &str) -> bool {
        self.content_cats.matches(content_cat) && self.source_cats.matches(source_cat)
    }

    /// Returns whether the crawler wants a field. It may omit the prefix of the ontology.
    fn wants_field(&self, name: &str) -> bool {
        let is = |wanted: &String| wanted == name || name.strip_prefix(PREFIX).is_some_and(|name| name == wanted);
        self.fields.is_empty() || self.fields.iter().any(is)
    }
}
