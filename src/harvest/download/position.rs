//! Position of the downloads of a source: everything that the next run needs.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use url::Url;

use crate::model::{
    ContentItemModification, ContentLocation, ContentObjectModification, OriginalContent, Seq, State, Timestamp, Uri,
    is_public,
};

/// Maximum number of downloads that are repeated later.
const MAX_REPEATS: usize = 1000;

/// Number of attempts after which a download is given up.
const MAX_ATTEMPTS: u32 = 30;

/// Wait after the first failed attempt, in milliseconds. Each further failure doubles it.
const FIRST_WAIT: i64 = 60_000;

/// Maximum wait between two attempts, in milliseconds, and the wait if only a person can remove the cause.
const LONGEST_WAIT: i64 = 24 * 3_600_000;

/// Position of a harvest, stored as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Position {
    /// Newest change whose items were all considered.
    pub(super) after: Seq,
    /// Number of items of the next change that were considered already.
    pub(super) items: usize,
    /// Size of all files that were stored for this source, in bytes.
    pub(super) bytes: u64,
    /// Downloads that are selected and have not ended.
    pub(super) pending: Vec<PendingDownload>,
    /// Downloads that are repeated later, in order of their first attempts.
    pub(super) repeats: Vec<Repeat>,
}

/// A file to download.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Download {
    pub(super) object: Uri,
    pub(super) item: Uri,
    /// Time of the change that named the file.
    pub(super) time: Timestamp,
    pub(super) original: OriginalContent,
}

/// A download that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PendingDownload {
    pub(super) download: Download,
    /// Number of failed attempts.
    pub(super) attempts: u32,
}

/// A download that has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Repeat {
    pub(super) download: Download,
    /// Number of failed attempts.
    pub(super) attempts: u32,
    /// Time of the next attempt.
    pub(super) next: Timestamp,
}

/// File of an item that a change names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NamedFile<'m> {
    /// The change names no file, or one under an embargo: its server would refuse it.
    None,
    /// The content of the change.
    Of(Download),
    /// The content that the registry has of this item, whose embargo ends.
    Released(&'m Uri),
}

impl<'m> NamedFile<'m> {
    /// Returns the file of an item.
    pub(super) fn of(modification: &ContentObjectModification, item: &'m ContentItemModification) -> Self {
        let (before, after) = (item.change.before(), item.change.after());
        let is_embargoed = |state: Option<&State>| state == Some(&State::EMBARGOED);
        match item.change.content() {
            _ if is_embargoed(after.or(before)) => Self::None,
            Some(content) => {
                Download::new(&modification.object, &item.uri, modification.time, content).map_or(Self::None, Self::Of)
            }
            // The embargo may have ended by a state in between. A copy is not downloaded again.
            None if !is_public(before) && is_public(after) => Self::Released(&item.uri),
            None => Self::None,
        }
    }
}

impl Download {
    /// Returns the download of the content of an item, if it is not a copy.
    pub(super) fn new(object: &Uri, item: &Uri, time: Timestamp, content: &ContentLocation) -> Option<Self> {
        let original = content.original.is_none().then(|| content.reported())?;
        Some(Self { object: object.clone(), item: item.clone(), time, original })
    }

    /// Returns the host of the file.
    pub(super) fn host(&self) -> String {
        let url = Url::parse(self.original.url.as_str()).ok();
        url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default()
    }
}

impl Position {
    pub(super) fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    #[expect(clippy::expect_used, reason = "all keys are strings")]
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("all keys are strings")
    }

    /// Removes the downloads that are due, at most `limit`.
    pub(super) fn take_due(&mut self, now: Timestamp, limit: usize) -> Vec<PendingDownload> {
        let mut due = 0;
        let is_taken = |repeat: &mut Repeat| {
            let is_taken = repeat.next <= now && due < limit;
            due += usize::from(is_taken);
            is_taken
        };
        let due = self.repeats.extract_if(.., is_taken);
        due.map(|Repeat { download, attempts, .. }| PendingDownload { download, attempts }).collect()
    }

    /// Returns the time of the next repeat.
    pub(super) fn next_repeat(&self) -> Option<Timestamp> {
        self.repeats.iter().map(|repeat| repeat.next).min()
    }

    /// Plans the repeat of a download after this number of failed attempts; returns whether it will be repeated. If
    /// there are too many, one of the host with the most is given up: the one that has failed most often.
    pub(super) fn repeat(&mut self, download: Download, attempts: u32, now: Timestamp, is_permanent: bool) -> bool {
        let is_of_item =
            |other: &Repeat| other.download.item == download.item && other.download.object == download.object;
        // Only the newest content of an item counts. Downloads end in any order.
        if self.repeats.iter().any(|other| is_of_item(other) && other.download.time > download.time) {
            return true;
        }
        self.repeats.retain(|other| !is_of_item(other));
        if attempts >= MAX_ATTEMPTS {
            return false;
        }
        let doubled = FIRST_WAIT << (attempts.clamp(1, 16) - 1);
        let wait = if is_permanent { LONGEST_WAIT } else { doubled.min(LONGEST_WAIT) };
        let next = Timestamp::from_millis(now.millis().saturating_add(wait)).unwrap_or(now);
        self.repeats.push(Repeat { download, attempts, next });
        if self.repeats.len() > MAX_REPEATS {
            self.give_one_up();
        }
        true
    }

    /// Removes a repeat of the host with the most, so that one server does not push out the files of others.
    fn give_one_up(&mut self) {
        let mut of_host = HashMap::<String, usize>::new();
        for repeat in &self.repeats {
            *of_host.entry(repeat.download.host()).or_default() += 1;
        }
        let largest = of_host.into_iter().max_by_key(|(_, number)| *number).map(|(host, _)| host);
        let of_largest = self.repeats.iter().enumerate();
        let of_largest = of_largest.filter(|(_, repeat)| Some(repeat.download.host()) == largest);
        if let Some((most, _)) = of_largest.max_by_key(|(_, repeat)| repeat.attempts) {
            self.repeats.remove(most);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Download, OriginalContent, Position, Timestamp, Uri};

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    fn download(name: &str) -> Download {
        download_of(&format!("http://h/{name}"))
    }

    /// Returns the download of a file at this URL.
    pub(in crate::harvest::download) fn download_of(url: &str) -> Download {
        let uri = Uri::parse(url).unwrap();
        let original = OriginalContent { url: uri.clone(), media_type: None, size: None, digest: None };
        Download { object: uri.clone(), item: uri, time: at(0), original }
    }

    #[test]
    fn repeats_wait_longer_and_longer() {
        let mut position = Position::default();
        for (attempts, minutes) in [(1, 1), (2, 2), (5, 16), (11, 1024), (12, 24 * 60), (29, 24 * 60)] {
            assert!(position.repeat(download("a"), attempts, at(0), false));
            assert_eq!(position.next_repeat(), Some(at(minutes * 60_000)), "{attempts}");
        }
        assert!(position.repeat(download("a"), 1, at(0), true));
        assert_eq!(position.next_repeat(), Some(at(24 * 3_600_000)));
        assert!(!position.repeat(download("a"), 30, at(0), false));
        assert_eq!(position.repeats, []);
    }

    #[test]
    fn due_repeats_are_taken_in_order() {
        let mut position = Position::default();
        for (name, attempts) in [("a", 1), ("b", 3), ("c", 1), ("d", 1)] {
            position.repeat(download(name), attempts, at(0), false);
        }
        assert_eq!(Position::parse(&position.text()), position);
        let names = |position: &mut Position, limit| {
            let due = position.take_due(at(60_000), limit).into_iter();
            due.map(|pending| pending.download.item.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&mut position, 2), ["http://h/a", "http://h/c"]);
        assert_eq!(names(&mut position, 2), ["http://h/d"]);
        assert_eq!(position.repeats.len(), 1);
    }

    #[test]
    fn number_of_repeats_is_bounded() {
        let mut position = Position::default();
        position.repeat(download("often"), 9, at(0), false);
        for number in 0..1000 {
            assert!(position.repeat(download(&number.to_string()), 1, at(0), false));
        }
        assert_eq!(position.repeats.len(), 1000);
        assert!(position.repeats.iter().all(|repeat| repeat.attempts == 1));
    }

    #[test]
    fn repeats_of_one_host_push_out_no_others() {
        let mut position = Position::default();
        let other = download_of("http://other.example/a");
        position.repeat(other.clone(), 20, at(0), false);
        for number in 0..1500 {
            position.repeat(download(&number.to_string()), 1, at(0), false);
        }
        assert_eq!(position.repeats.len(), 1000);
        assert!(position.repeats.iter().any(|repeat| repeat.download == other));
    }

    #[test]
    fn older_content_of_an_item_replaces_no_newer_one() {
        let (mut position, older) = (Position::default(), download("a"));
        let newer = Download { time: at(1), ..older.clone() };
        assert!(position.repeat(newer.clone(), 1, at(0), false) && position.repeat(older, 2, at(0), false));
        assert_eq!(position.repeats.iter().map(|repeat| &repeat.download).collect::<Vec<_>>(), [&newer]);
    }
}
