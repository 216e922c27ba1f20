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

    /// Returns a record as this crawler gets it; `None` if it does not get the record.
    ///
    /// A subject that exists and is not in the wanted categories may have been in them before. The crawler then has it,
    /// and gets it as deleted.
    pub(super) fn payload<'r>(&self, record: &'r Record) -> Option<Payload<'r>> {
        let wants = |facts: &&Facts| self.wants_categories(facts.content_cat, facts.source_cat);
        let wanted = record.facts.as_ref().filter(wants);
        match wanted {
            Some(facts) => {
                let fields = facts.fields.iter().filter(|(name, _)| self.wants_field(name));
                let fields = fields.map(|(name, value)| (*name, &**value)).collect();
                Some((record.uri.as_str(), String::new(), facts.content_cat, facts.source_cat, NORMAL, fields))
            }
            None if record.is_new || (record.has_fixed_categories && !self.wants_categories(CONTENT, RESOURCE)) => None,
            None => Some((record.uri.as_str(), String::new(), "", "", DELETED, Vec::new())),
        }
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
