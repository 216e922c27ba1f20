//! Ranges against sums over all objects, after random histories.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Instant};

use fastrand::Rng;
use serde_json::json;
use uuid::Uuid;

use super::{
    Digests, NextRange, Progress, RangeSize, Ranges, RegistryPosition, Selection, Uri, read_range, reading::read,
};
use crate::{
    journal::{
        DuplicatePolicy, Journal, Submission,
        seed::{CrawlPart, CrawlProgress},
        settle::SourcePolicy,
    },
    model::{Draft, Filter, ReaderView, SourceName, Timestamp},
    view::test_journal::{journal_of, small_draft},
    web::ReadPermit,
};

const SIZE: RangeSize = RangeSize { selected: 4, examined: 8 };

/// A journal and the ranges of what the public sees.
struct Fixture {
    journal: Journal,
    ranges: Ranges,
}

impl Fixture {
    async fn start(folder: &Path) -> Self {
        let journal = journal_of(small_draft(), 1, 10, folder).await;
        let view = ReaderView { public: true, ..ReaderView::default() };
        let permit = ReadPermit::of_view(Some(Arc::new(view)));
        let selection = Selection::new(Filter::default(), &permit).unwrap();
        let ranges = Ranges { size: SIZE, ..Ranges::new(selection, &journal) };
        Self { journal, ranges }
    }

    /// Appends the state of an object.
    async fn set(&self, number: usize, is_public: bool) {
        let uri = format!("http://h/{number:03}");
        let state = if is_public { "ACTIVE" } else { "INACTIVE" };
        let item = json!({ "uri": uri, "change": "ADD", "stateAfter": state });
        let draft: Draft = serde_json::from_value(json!({ "object": uri, "items": [item] })).unwrap();
        let policy = Arc::new(SourcePolicy { name: SourceName::parse("s").unwrap(), metadata_changes: false });
        let drafts = vec![(None, draft)];
        let submission =
            Submission { policy, drafts, duplicate_policy: DuplicatePolicy::RememberChanges, completes: None };
        self.journal.append(submission).await.unwrap();
    }

    /// Adds an object to the registry without a change.
    async fn crawl(&self, number: usize, parts: u64) {
        let uri = format!("http://h/{number:03}");
        let at = "2024-01-01T00:00:00Z";
        let item = json!({ "uri": uri, "at": at, "state": "ACTIVE" });
        let object = serde_json::from_value(json!({ "object": uri, "at": at, "items": [item] })).unwrap();
        let source = SourceName::parse("s").unwrap();
        let policy = Arc::new(SourcePolicy { name: source.clone(), metadata_changes: false });
        let drafts = Vec::new();
        let duplicate_policy = DuplicatePolicy::RememberChanges;
        let submission = Submission { policy, drafts, duplicate_policy, completes: None };
        let now = Timestamp::now();
        let progress = CrawlProgress {
            source,
            id: Uuid::nil(),
            parts,
            position: "".into(),
            objects: parts,
            started: now,
            updated: now,
            finished: false,
        };
        let part = CrawlPart { submission, crawled: vec![object], progress };
        assert_eq!(self.journal.seed(part).await.unwrap().updated_objects, 1);
    }

    /// Advances without any time; returns the number of requests.
    async fn advance(&mut self) -> usize {
        for requests in 1.. {
            if self.ranges.advance(&self.journal, Instant::now()).await.unwrap() == Progress::Complete {
                return requests;
            }
        }
        unreachable!()
    }

    /// Returns all objects with their digests, if the public sees them.
    async fn all(&self) -> BTreeMap<Uri, Option<Digests>> {
        let page = read(&self.journal, &self.ranges.selection, RegistryPosition::Beginning, 10_000).await.unwrap();
        page.unwrap().0.into_iter().collect()
    }

    /// Checks the digests between two URIs, that each end is one that the reader may know, and that no range has many objects.
    async fn check(&self, after: Option<&Uri>, through: Option<&Uri>) {
        let all = self.all().await;
        let is_within =
            |uri: &Uri| after.is_none_or(|after| uri > after) && through.is_none_or(|through| uri <= through);
        let mut expected = Digests::default();
        all.iter().filter(|(uri, _)| is_within(uri)).for_each(|(_, one)| expected.add(one.unwrap_or_default()));
        let (mut sum, mut end) = (Digests::default(), after.cloned());
        for piece in self.ranges.pieces(after, through) {
            assert!(piece.after >= end, "{piece:?} follows {end:?}");
            assert!(Some(&piece.last) == through || all[&piece.last].is_some(), "{piece:?} names a hidden object");
            let objects = read_range(&self.journal, &self.ranges.selection, piece.after, &piece.last).await.unwrap();
            let mut read = Digests::default();
            objects.into_iter().for_each(|(_, digests)| read.add(digests));
            assert_eq!(piece.digests.unwrap_or(read), read);
            sum.add(read);
            end = Some(piece.last);
        }
        assert_eq!(sum, expected, "{after:?} {through:?}");
        let mut begin = None;
        for range in &self.ranges.ranges {
            let within = |uri: &&Uri| Some(*uri) > begin && range.through.as_ref().is_none_or(|end| *uri <= end);
            assert!(all.keys().filter(within).count() <= 16, "{range:?} has many objects");
            begin = range.through.as_ref();
        }
    }
}

#[tokio::test]
async fn ranges_have_what_the_public_sees_and_end_within_hidden_stretches() {
    let folder = tempfile::tempdir().unwrap();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let mut fixture = Fixture::start(folder.path()).await;
    for round in 0..8 {
        // Nearly all objects of one part are hidden, and some of the other.
        for _ in 0..60 {
            let number = rng.usize(..200);
            let is_public = if number < 100 { rng.u8(..30) == 0 } else { rng.bool() };
            fixture.set(number, is_public).await;
        }
        fixture.advance().await;
        assert_eq!(fixture.ranges.head, fixture.journal.head());
        fixture.check(None, None).await;
        for _ in 0..10 {
            let mut uri = || rng.bool().then(|| Uri::parse(&format!("http://h/{:03}", rng.usize(..200))).unwrap());
            let (after, through) = (uri(), uri());
            if through.is_none() || after <= through {
                fixture.check(after.as_ref(), through.as_ref()).await;
            }
        }
        assert!(round < 7 || fixture.ranges.ranges.len() > 8);
    }
}

/// The time of each request is over at once: one notes the changes, and the others read one range each.
#[tokio::test]
async fn each_request_reads_some_ranges_again_until_none_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::start(folder.path()).await;
    for number in 0..100 {
        fixture.set(number, true).await;
    }
    fixture.advance().await;
    for number in [5, 50, 95, 95] {
        fixture.set(number, false).await;
    }
    assert_eq!(fixture.advance().await, 4);
    fixture.check(None, None).await;
    assert_eq!(fixture.advance().await, 1);
}

/// A crawl that adds objects without changes costs the ranges of these objects, and not a pass over the registry.
#[tokio::test]
async fn crawled_objects_make_only_their_ranges_stale() {
    let folder = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::start(folder.path()).await;
    for number in 0..50 {
        fixture.set(2 * number, true).await;
    }
    fixture.advance().await;
    for parts in 1..4 {
        fixture.crawl(20 * parts + 1, parts as u64).await;
        assert_eq!(fixture.advance().await, 2);
        assert_eq!((fixture.ranges.seeds, fixture.journal.seed_count()), (parts as u64, parts as u64));
        fixture.check(None, None).await;
    }
}

#[test]
fn range_ends_after_enough_objects() {
    let add = |next: &mut NextRange, number: usize, is_selected: bool| {
        let digests = is_selected.then_some(Digests { objects: 1, ..Digests::default() });
        next.add(Uri::parse(&format!("urn:x:{number}")).unwrap(), digests, SIZE)
    };
    for (selected, expected) in [(1, 4), (2, 7), (9, 8)] {
        let mut next = NextRange::default();
        let ended = (1..).find(|number| add(&mut next, *number, (number - 1) % selected == 0).is_some());
        assert_eq!(ended, Some(expected), "each {selected}th object is selected");
    }
}
