//! Former spellings: a URI that earlier versions kept in another spelling is the URI of the same thing.
//!
//! An object that the registry has only under its former spelling keeps it, and so does an item. If the registry has
//! both, for example since a crawl, the event is about the object with the present spelling, and the other one is
//! deleted, because nothing will ever be said about it again.

use super::{BatchSettler, ItemSelection, PrefetchKeys};
use crate::{
    journal::metrics::FORMER_SPELLINGS,
    model::{Draft, DraftItem, DraftItems, DraftLookup, FormerSpelling, Reading, Text, Uri},
};

impl PrefetchKeys {
    /// Selects the objects and items that the registry may have under the former spellings of a draft's URIs.
    pub(super) fn select_former(&mut self, draft: &Draft) {
        for FormerSpelling { uri, former } in &draft.reading.former {
            if *uri == draft.object {
                self.select(former, ItemSelection::All);
            }
            if draft.parent.as_ref() == Some(uri) {
                self.select(uri, ItemSelection::these([]));
                self.select(former, ItemSelection::these([]));
            }
            if draft.items.listed().iter().any(|item| item.uri == *uri) {
                self.select(&draft.object, ItemSelection::these([former.clone()]));
            }
        }
    }
}

/// Findings of a batch about former spellings.
#[derive(Debug, Default)]
pub(in crate::journal) struct SpellingNotes {
    /// Number of drafts with a former spelling.
    kept: u64,
    /// Deleted objects, each with its present URI.
    retired: Vec<(Uri, Uri)>,
}

impl SpellingNotes {
    /// Counts and logs the notes, once the batch is on disk.
    pub(in crate::journal) fn publish(&self) {
        if self.kept > 0 {
            metrics::counter!(FORMER_SPELLINGS).increment(self.kept);
        }
        for (former, now) in &self.retired {
            tracing::info!(object = %former, %now, "an object is deleted, because it has another URI now");
        }
    }
}

impl BatchSettler {
    /// Replaces URIs of the draft by their former spellings where the registry has only these.
    pub(super) fn keep_former_spellings(&mut self, draft: &mut Draft) {
        if draft.reading.former.is_empty() {
            return;
        }
        let is_known = |uri: &Uri| self.objects.get(uri).is_some_and(|object| object.state.is_known());
        let kept =
            |uri: &Uri| draft.reading.former_of(uri).filter(|former| !is_known(uri) && is_known(former)).cloned();
        let (object, parent) = (kept(&draft.object), draft.parent.as_ref().and_then(kept));
        let is_kept = object.is_some() || parent.is_some();
        let listed_object = draft.object.clone();
        if let Some(object) = object {
            draft.object = object;
        }
        draft.parent = parent.or_else(|| draft.parent.take());
        let state = self.objects.get(&draft.object).map(|object| &object.state);
        let mut renamed = 0_usize;
        let (former, object) = (&draft.reading.former, &draft.object);
        let mut rename = |item: &mut DraftItem| {
            let former = former.iter().find(|spelling| spelling.uri == item.uri).map(|spelling| &spelling.former);
            let has = |uri: &Uri| state.is_some_and(|state| state.items.contains_key(uri));
            let is_object = item.uri == listed_object && *object != listed_object;
            if let Some(former) = former.filter(|former| is_object || (has(former) && !has(&item.uri))) {
                item.uri = former.clone();
                renamed += 1;
            }
        };
        draft.items = match std::mem::replace(&mut draft.items, DraftItems::Purge) {
            DraftItems::Listed(items) => DraftItems::Listed(items.map(|mut item| {
                rename(&mut item);
                item
            })),
            DraftItems::Complete(mut items) => {
                items.iter_mut().for_each(&mut rename);
                DraftItems::Complete(items)
            }
            other => other,
        };
        if is_kept || renamed > 0 {
            self.spellings.kept += 1;
        }
    }

    /// Returns the deletion of an object that the registry still has under the former spelling of this draft's object.
    pub(super) fn retired_object(&mut self, draft: &Draft) -> Option<Draft> {
        let former = draft.reading.former_of(&draft.object)?;
        let state = &self.objects.get(former)?.state;
        state.live_items().next()?;
        let description = format!("The resource is {} now", draft.object);
        self.spellings.retired.push((former.clone(), draft.object.clone()));
        Some(Draft {
            id: None,
            event_id: None,
            object: former.clone(),
            parent: None,
            types: Vec::new(),
            description: Text::new(&description),
            report: None,
            items: DraftItems::Purge,
            lookup: DraftLookup::default(),
            reading: Reading::default(),
            ..draft.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        super::{
            AcceptanceTime, BatchContext, ChangeBounds, DuplicatePolicy, PrefetchedRows, SettledBatch, SourcePolicy,
            Submission,
        },
        Draft, FormerSpelling, Reading, Uri,
    };
    use crate::model::{SourceName, Timestamp};

    const FORMER: &str = "http://h/rest/Skøyen";
    const URI: &str = "http://h/rest/Sk%C3%B8yen";

    fn uri(text: &str) -> Uri {
        Uri::parse(text).unwrap()
    }

    /// Returns an event about the resource at `at`, with its former spelling if it has another one.
    fn draft(at: &str, change: &str) -> Draft {
        let json = format!(r#"{{"object":"{at}","items":[{{"uri":"{at}","change":"{change}"}}]}}"#);
        let mut draft: Draft = serde_json::from_str(&json).unwrap();
        if at == URI {
            draft.reading =
                Reading { former: vec![FormerSpelling { uri: uri(URI), former: uri(FORMER) }], ..Reading::default() };
        }
        draft
    }

    /// Settles drafts in order, and returns what became of the items.
    fn settled(drafts: Vec<Draft>) -> Vec<String> {
        let policy = Arc::new(SourcePolicy { name: SourceName::parse("s").unwrap(), metadata_changes: false });
        let submission = |draft| Submission {
            policy: Arc::clone(&policy),
            drafts: vec![(None, draft)],
            duplicate_policy: DuplicatePolicy::RememberChanges,
            completes: None,
        };
        let context = BatchContext {
            prefetched: PrefetchedRows::default(),
            bounds: ChangeBounds::default(),
            now: Timestamp::now(),
            earliest: AcceptanceTime::default(),
        };
        let submissions = drafts.into_iter().map(submission).collect();
        let batch = SettledBatch::build(submissions, Vec::new(), Vec::new(), Vec::new(), context).unwrap();
        let line = |change: &super::super::NewChange| {
            let (modification, item) = (&change.change.modification, &change.change.modification.items[0]);
            assert_eq!(modification.object, item.uri);
            format!("{} {}", item.change.change_type().unwrap().as_str(), item.uri)
        };
        batch.writes.changes.iter().map(line).collect()
    }

    #[test]
    fn object_keeps_the_spelling_that_the_registry_has() {
        let changes = settled(vec![draft(FORMER, "ADD"), draft(URI, "UPDATE"), draft(URI, "DELETE")]);
        assert_eq!(changes, [format!("ADD {FORMER}"), format!("UPDATE {FORMER}"), format!("DELETE {FORMER}")]);
    }

    #[test]
    fn new_object_has_the_present_spelling() {
        assert_eq!(settled(vec![draft(URI, "ADD")]), [format!("ADD {URI}")]);
    }

    #[test]
    fn second_object_with_the_former_spelling_is_deleted() {
        let crawled = Draft { reading: Reading::default(), ..draft(URI, "ADD") };
        let changes = settled(vec![draft(FORMER, "ADD"), crawled, draft(URI, "UPDATE"), draft(URI, "DELETE")]);
        let expected = [("ADD", FORMER), ("ADD", URI), ("UPDATE", URI), ("DELETE", FORMER), ("DELETE", URI)];
        assert_eq!(changes, expected.map(|(change, uri)| format!("{change} {uri}")));
    }
}
