//! Renders the entries of changes as documents of a topic, limited in size.
//!
//! A change with many items fills several documents, each valid by itself. Subscribers to the same topic share
//! cached documents.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use bytes::Bytes;

use super::{TopicDocument, Topics};
use crate::{
    cache::LruCache,
    format::JOURNAL_FORMAT,
    journal::RecordedChange,
    model::{ReaderView, Seq},
};

/// Maximum number of bytes in a document with several entries. Subscribers usually accept one megabyte.
pub(super) const DOCUMENT_BYTES: usize = 500_000;

/// Maximum number of bytes and documents in the cache.
const CACHE_BYTES: usize = 8 * 1024 * 1024;
const CACHE_DOCUMENTS: usize = 64;

/// Factor by which a document may grow from one attempt to the next, while the size of its entries is unknown.
const MAX_GROWTH: usize = 16;

/// Position of an entry: its change, and its index among the items of the change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) seq: Seq,
    pub(super) item: usize,
}

/// A document with the entries from one position to another.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) media_type: &'static str,
    pub(super) body: Bytes,
    /// Number of entries.
    pub(super) entries: usize,
    /// Position after the last entry.
    pub(super) next: Position,
}

/// Part of the journal that a subscriber may see; `None` if everything.
type View = Option<Arc<ReaderView>>;

/// Cache key: the inputs of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CacheKey {
    topic: String,
    view: View,
    from: Position,
    last: Seq,
    bytes: usize,
}

/// Renders documents and caches the most recent ones.
pub(super) struct Documents {
    topics: Arc<dyn Topics>,
    cache: LruCache<CacheKey, Document>,
}

/// A range of the items of a change.
type ItemRange = (Arc<RecordedChange>, Range<usize>);

impl Documents {
    pub(super) fn new(topics: Arc<dyn Topics>) -> Self {
        Self { topics, cache: LruCache::new(CACHE_DOCUMENTS, CACHE_BYTES) }
    }

    /// Returns the next document with entries of these changes, beginning at `from`; `None` after the last
    /// entry. The changes are as a subscriber with this view sees them. It has at most `bytes` bytes, or a single larger entry. The changes are sorted, oldest first.
    ///
    /// # Errors
    /// Fails if the topic or a change cannot be read.
    pub(super) async fn next(
        &self,
        topic: &str,
        view: &View,
        changes: &[Arc<RecordedChange>],
        from: Position,
        bytes: usize,
    ) -> Result<Option<Document>, String> {
        let Some(first) = changes.iter().position(|change| change.seq() >= from.seq) else { return Ok(None) };
        let mut left = Vec::with_capacity(changes.len() - first);
        for change in &changes[first..] {
            let items = change.change().map_err(|error| error.to_string())?.modification.items.len();
            let begin = if change.seq() == from.seq { from.item.min(items) } else { 0 };
            if begin < items {
                left.push((Arc::clone(change), begin..items));
            }
        }
        let (Some((front, items)), Some((last, _))) = (left.first(), left.last()) else { return Ok(None) };
        let from = Position { seq: front.seq(), item: items.start };
        let key = CacheKey { topic: topic.to_owned(), view: view.clone(), from, last: last.seq(), bytes };
        if let Some(document) = self.cache.get(&key) {
            return Ok(Some(document));
        }
        let document = self.fit(topic, view, &left, bytes).await?;
        self.cache.insert(key, document.clone(), document.body.len());
        Ok(Some(document))
    }

    /// Searches for the number of entries that nearly fills a document.
    async fn fit(&self, topic: &str, view: &View, left: &[ItemRange], bytes: usize) -> Result<Document, String> {
        let all: usize = left.iter().map(|(_, items)| items.len()).sum();
        let mut count = 1;
        let mut best = self.render(topic, view, left, count).await?;
        let mut too_many = all + 1;
        while best.body.len() < bytes {
            // Nine tenths of the number that would fit if all entries had this size.
            let guess = (count.saturating_mul(bytes) / best.body.len().max(1)).saturating_mul(9) / 10;
            let more = guess.min(count.saturating_mul(MAX_GROWTH)).min(too_many - 1);
            if more <= count || (too_many <= all && best.body.len() > bytes / 2) {
                break;
            }
            let larger = self.render(topic, view, left, more).await?;
            if larger.body.len() > bytes {
                too_many = count + (more - count).div_ceil(2);
            } else {
                (best, count) = (larger, more);
            }
        }
        Ok(best)
    }

    async fn render(&self, topic: &str, view: &View, left: &[ItemRange], count: usize) -> Result<Document, String> {
        let mut changes = VecDeque::new();
        let mut missing = count;
        let mut next = Position::default();
        for (change, items) in left {
            let selected = items.start..items.end.min(items.start.saturating_add(missing));
            missing -= selected.len();
            next = Position { seq: change.seq(), item: selected.end };
            // Newest first, as in the feed.
            changes.push_front(part(change, selected)?);
            if missing == 0 {
                break;
            }
        }
        let rendered = self.topics.entries(topic, view.clone(), changes.make_contiguous()).await?;
        let TopicDocument { media_type, body } = rendered;
        Ok(Document { media_type, body: Bytes::from(body), entries: count - missing, next })
    }
}

/// Returns the change with only these items.
fn part(change: &Arc<RecordedChange>, items: Range<usize>) -> Result<Arc<RecordedChange>, String> {
    let whole = change.change().map_err(|error| error.to_string())?;
    if items.len() == whole.modification.items.len() {
        return Ok(Arc::clone(change));
    }
    let part = whole.part(items).ok_or("a part of a change has an item at least")?;
    Ok(Arc::new(RecordedChange::from_json(change.seq(), (JOURNAL_FORMAT.write)(&part).into())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Arc, Documents, Position, ReaderView, RecordedChange, Seq, TopicDocument, Topics, View};
    use crate::delivery::{BoxFuture, websub::Topic};

    /// Writes a line for each entry: the number of its change, its item and its description.
    struct Lines;

    impl Topics for Lines {
        fn find(&self, _: &str, _: View) -> Result<Topic, String> {
            Err("none is asked for".to_owned())
        }

        fn entries<'a>(
            &'a self,
            _: &'a str,
            _: View,
            changes: &'a [Arc<RecordedChange>],
        ) -> BoxFuture<'a, Result<TopicDocument, String>> {
            let mut lines = String::new();
            for recorded in changes {
                let change = recorded.change().unwrap();
                for (at, item) in change.modification.items.iter().enumerate() {
                    let late = change.settlement.item(at).inferred;
                    lines += &format!("{} {} {late} {}\n", change.seq, item.uri, change.modification.description);
                }
            }
            Box::pin(std::future::ready(Ok(TopicDocument { media_type: "text/plain", body: lines.into_bytes() })))
        }
    }

    fn change(seq: u64, items: usize, description: &str) -> Arc<RecordedChange> {
        let mut change: serde_json::Value =
            serde_json::from_slice(include_bytes!("../../../fixtures/change.json")).unwrap();
        (change["seq"], change["description"]) = (json!(seq), json!(description));
        let item = |at: usize| {
            json!({ "id": "urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa3", "uri": format!("urn:i:{at}"),
                "change": "ADD", "inferred": at % 2 == 1 })
        };
        change["items"] = (0..items).map(item).collect();
        Arc::new(RecordedChange::from_json(Seq(seq), change.to_string().into()))
    }

    /// Returns all documents of some changes as lists of their items.
    async fn documents(changes: &[Arc<RecordedChange>], bytes: usize) -> Vec<Vec<(u64, usize)>> {
        let documents = Documents::new(Arc::new(Lines));
        let mut all = Vec::new();
        let mut from = Position::default();
        while let Some(document) = documents.next("t", &None, changes, from, bytes).await.unwrap() {
            assert!(document.next > from);
            let text = String::from_utf8(document.body.to_vec()).unwrap();
            assert!(text.len() <= bytes || document.entries == 1, "{}", text.len());
            let entry = |line: &str| {
                let words: Vec<_> = line.split(' ').collect();
                let item: usize = words[1].trim_start_matches("urn:i:").parse().unwrap();
                assert_eq!(words[2] == "true", item % 2 == 1, "what was noted about an item stays with it");
                (words[0].parse().unwrap(), item)
            };
            let entries: Vec<_> = text.lines().map(entry).collect();
            assert_eq!(entries.len(), document.entries);
            all.push(entries);
            from = document.next;
        }
        all
    }

    #[tokio::test]
    async fn documents_contain_every_entry_once_at_any_size() {
        let changes = [change(3, 1, "a"), change(4, 1000, "b"), change(7, 2, &"c".repeat(3000)), change(9, 5, "d")];
        for bytes in [1, 100, 2000, 20_000, 1_000_000] {
            let all = documents(&changes, bytes).await;
            let mut entries = Vec::new();
            for document in &all {
                let seqs: Vec<_> = document.iter().map(|(seq, _)| *seq).collect();
                assert!(seqs.is_sorted_by(|a, b| a >= b), "the newest change is first");
                let mut sorted = document.clone();
                sorted.sort_unstable();
                entries.extend(sorted);
            }
            let expected = [(3, 1), (4, 1000), (7, 2), (9, 5)];
            let expected: Vec<_> = expected.iter().flat_map(|(seq, items)| (0..*items).map(|at| (*seq, at))).collect();
            assert_eq!(entries, expected, "{bytes}");
            let size: usize = 1001 * 20 + 2 * 3020;
            assert!(all.len() <= 8 + 4 * size / bytes, "{} documents of {bytes} bytes", all.len());
        }
    }

    #[tokio::test]
    async fn subscribers_to_a_topic_share_a_document() {
        let documents = Documents::new(Arc::new(Lines));
        let changes = [change(3, 10, "a")];
        let at_item = Position { seq: Seq(3), item: 0 };
        let view = Some(Arc::new(ReaderView { public: true, ..ReaderView::default() }));
        let next = async |topic: &str, view: &View, from: Position| {
            documents.next(topic, view, &changes, from, 1000).await.unwrap().unwrap().body
        };
        let first = next("t", &None, Position::default()).await;
        assert_eq!(first.as_ptr(), next("t", &None, at_item).await.as_ptr());
        assert_ne!(first.as_ptr(), next("u", &None, Position::default()).await.as_ptr());
        assert_ne!(first.as_ptr(), next("t", &view, Position::default()).await.as_ptr());
    }
}
