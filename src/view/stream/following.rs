//! One stream: goes through the journal as fast as its client takes the events, and waits at its head.

use std::{io, pin::Pin, sync::Arc};

use ::metrics::Counter;
use bytes::Bytes;
use tokio::{
    sync::watch,
    task::coop::consume_budget,
    time::{Instant, Sleep, sleep_until},
};

use super::{
    super::{
        LARGE, metrics,
        waiting::{Place, Waiting},
    },
    event,
};
use crate::{
    format::FormatKind,
    journal::{JournalError, RecordedChange, store::StoreError},
    model::{Filter, Seq},
    web::{Content, Turn},
};

/// Maximum number of changes that a stream reads from the journal at once. A stream holds one such page, beside the events
/// that the server has taken and not yet sent: 128 KiB and one event at most.
const PAGE: usize = 64;

/// Approximate size in bytes of the changes that a stream reads from the journal at once.
const PAGE_BYTES: usize = 64 * 1024;

/// After how many changes that a client does not want it is told where it is, so that it need not go through them
/// again when it comes again.
const TOLD_AFTER: u64 = 1000;

/// A stream.
pub(super) struct Following {
    waiting: Waiting,
    head: watch::Receiver<Seq>,
    format: &'static FormatKind,
    /// `None` wants everything.
    filter: Option<Box<Filter>>,
    page: std::vec::IntoIter<Arc<RecordedChange>>,
    /// The event of a large change, and how much of it was sent.
    large: Option<(Content, u64)>,
    /// The turn to write the event of the first change of `page`, which is large and comes from the disk.
    turn: Option<Turn>,
    /// The number of the last change that was looked at.
    at: Seq,
    /// The last number that the client was told.
    told: Seq,
    opening: Opening,
    /// When the last bytes were sent.
    sent: Instant,
    /// When it comes to its end.
    until: Instant,
    alarm: Pin<Box<Sleep>>,
    streamed: Counter,
    _place: Place,
}

/// What comes next of a page.
enum Step {
    /// Bytes that are sent.
    Bytes(Bytes),
    /// A large change, whose event is to be written first.
    Large(Arc<RecordedChange>),
    /// Nothing: it is at its end.
    End,
}

/// What a stream begins with.
enum Opening {
    /// Where it is: the client said nothing, and must have a number if it is cut off before the first event.
    Place,
    /// A comment, so that whatever stands between passes the head of the answer on.
    Comment,
    /// How long to wait before coming again, with the first event.
    Retry,
    /// It has begun.
    Done,
}

impl Following {
    /// A stream after that number, or of what comes next.
    pub(super) fn new(
        waiting: &Waiting,
        place: Place,
        filter: Filter,
        format: &'static FormatKind,
        after: Option<Seq>,
    ) -> Self {
        let (now, bounds) = (Instant::now(), waiting.bounds());
        let at = after.unwrap_or_else(|| waiting.journal().head());
        // Not all of those that came together are to come again together.
        let until = now + bounds.stream.mul_f64(0.9 + 0.1 * fastrand::f64());
        Self {
            head: waiting.head(),
            format,
            filter: Some(filter).filter(|filter| *filter != Filter::default()).map(Box::new),
            page: Vec::new().into_iter(),
            large: None,
            turn: None,
            at,
            told: at,
            opening: if after.is_some() { Opening::Comment } else { Opening::Place },
            sent: now,
            until,
            alarm: Box::pin(sleep_until(until.min(now + bounds.heartbeat))),
            streamed: metrics::streamed(format.name),
            waiting: waiting.clone(),
            _place: place,
        }
    }

    /// The next bytes; `None` when it is over.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        let bytes = match self.opening {
            Opening::Place => event::place(self.at),
            Opening::Comment => event::HEARTBEAT,
            Opening::Retry | Opening::Done => self.go_on().await?,
        };
        if matches!(self.opening, Opening::Place | Opening::Comment) {
            self.opening = Opening::Retry;
        }
        self.sent = Instant::now();
        Some(bytes)
    }

    async fn go_on(&mut self) -> Option<Bytes> {
        loop {
            match self.next_of_large().await {
                Ok(Some(bytes)) => return Some(bytes),
                Ok(None) => {}
                Err(error) => return self.broken(&StoreError::Io(error.to_string()).into()),
            }
            match self.next_of_page() {
                Ok(Step::Bytes(bytes)) => return Some(bytes),
                Ok(Step::Large(change)) => match self.begin_large(change).await {
                    Ok(Some(bytes)) => return Some(bytes),
                    Ok(None) => continue,
                    Err(error) => return self.broken(&error),
                },
                Ok(Step::End) => {}
                Err(error) => return self.broken(&error.into()),
            }
            if Instant::now() >= self.until {
                return None;
            }
            self.head.borrow_and_update();
            match self.read().await {
                Ok(page) if page.is_empty() => {}
                Ok(page) => {
                    self.page = page.into_iter();
                    // What is in memory needs no wait, and others want this thread too.
                    consume_budget().await;
                    continue;
                }
                Err(error) => return self.broken(&error),
            }
            tokio::select! {
                // It is closed when the gateway stops.
                moved = self.head.changed() => moved.ok()?,
                () = self.alarm.as_mut() => {
                    let now = Instant::now();
                    let heartbeat = self.waiting.bounds().heartbeat;
                    let is_due = now >= self.sent + heartbeat;
                    self.set_alarm(if is_due { now } else { self.sent } + heartbeat);
                    if is_due {
                        return Some(self.heartbeat());
                    }
                }
            }
        }
    }

    /// The next piece of the event of a large change.
    async fn next_of_large(&mut self) -> io::Result<Option<Bytes>> {
        let Some((event, sent)) = &mut self.large else { return Ok(None) };
        let piece = event.piece(*sent).await?;
        match &piece {
            Some(piece) => *sent += piece.len() as u64,
            None => self.large = None,
        }
        Ok(piece)
    }

    /// Has the event of a large change written, and gives what comes before it, if anything does.
    async fn begin_large(&mut self, change: Arc<RecordedChange>) -> Result<Option<Bytes>, JournalError> {
        let spool = self.waiting.spool();
        let turn = match self.turn.take() {
            Some(turn) => turn,
            None => spool.page_turn().await,
        };
        let filter = self.filter.as_deref().cloned();
        let event = Box::pin(self.waiting.large_events().event(spool, turn, change, self.format, filter)).await?;
        let Some(event) = event else { return Ok(self.place_if_due()) };
        self.large = Some((event, 0));
        self.told = self.at;
        self.streamed.increment(1);
        Ok(match std::mem::replace(&mut self.opening, Opening::Done) {
            Opening::Done => None,
            _ => Some(event::retry()),
        })
    }

    /// The next event of what was read, if there is one in it.
    fn next_of_page(&mut self) -> Result<Step, StoreError> {
        for change in self.page.by_ref() {
            self.at = change.seq();
            if change.json().len() >= LARGE {
                return Ok(Step::Large(change));
            }
            let shown = match &self.filter {
                Some(filter) => change.filtered(filter)?,
                None => Some(change),
            };
            if let Some(shown) = shown {
                let bytes = event::of_change(&shown, self.format)?;
                self.told = self.at;
                self.streamed.increment(1);
                return Ok(Step::Bytes(match std::mem::replace(&mut self.opening, Opening::Done) {
                    Opening::Done => bytes,
                    _ => event::with_retry(&bytes),
                }));
            }
            if self.at.0 - self.told.0 >= TOLD_AFTER {
                return Ok(Step::Bytes(self.place()));
            }
        }
        Ok(Step::End)
    }

    /// Where the stream is, if its client has not been told for long.
    fn place_if_due(&mut self) -> Option<Bytes> {
        (self.at.0 - self.told.0 >= TOLD_AFTER).then(|| self.place())
    }

    /// What comes next in the journal: from memory at once, else from its disk. A large change is read in the turn in
    /// which its event is written.
    async fn read(&mut self) -> Result<Vec<Arc<RecordedChange>>, JournalError> {
        let mut page = match self.waiting.in_memory(self.at, PAGE, PAGE_BYTES) {
            Some(page) => page,
            None => {
                let turn = self.waiting.spool().page_turn().await;
                // On the heap, since few streams are there at a time.
                let page = Box::pin(self.waiting.read(self.at, PAGE, PAGE_BYTES)).await?;
                self.turn = Some(turn).filter(|_| page.first().is_some_and(|first| first.json().len() >= LARGE));
                page
            }
        };
        // A large change behind small ones would be held until they are sent.
        let mut size = 0;
        let fits = |change: &&Arc<RecordedChange>| {
            size += change.json().len();
            size <= PAGE_BYTES
        };
        let fitting = page.iter().take_while(fits).count().max(1);
        page.truncate(fitting);
        Ok(page)
    }

    fn heartbeat(&mut self) -> Bytes {
        if self.at > self.told { self.place() } else { event::HEARTBEAT }
    }

    fn place(&mut self) -> Bytes {
        self.told = self.at;
        event::place(self.at)
    }

    fn set_alarm(&mut self, at: Instant) {
        let at = at.min(self.until);
        self.alarm.as_mut().reset(at);
    }

    /// The client comes again, and is told then what is wrong, by the status.
    #[expect(clippy::unused_self, reason = "it is the end of this one")]
    fn broken(&self, error: &JournalError) -> Option<Bytes> {
        match error {
            JournalError::Gone { .. } => tracing::info!(%error, "a stream ends: its reader is too far behind"),
            error => tracing::warn!(%error, "a stream ends: the journal cannot be read"),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::{super::super::waiting, Bytes, Filter, Following, Seq, Waiting};
    use crate::{
        format::format,
        journal::{
            DuplicatePolicy, Journal, JournalError, JournalSettings, Submission, TailBounds, settle::SourcePolicy,
            store::sqlite,
        },
        model::{Draft, SourceName},
        web::Client,
        web::Spool,
    };

    /// A journal of so many changes, of which so many are in memory.
    async fn journal_of(changes: usize, held: usize, folder: &std::path::Path) -> Journal {
        let store = sqlite::SqliteStore::open(folder, sqlite::SqliteOptions::default()).unwrap();
        let tail = TailBounds { changes: held, ..TailBounds::default() };
        let (journal, _writer) = Journal::start(store, JournalSettings { tail, ..JournalSettings::default() }).unwrap();
        let draft: Draft =
            serde_json::from_str(r#"{"object":"http://h/1","items":[{"uri":"http://h/1","change":"ADD"}]}"#).unwrap();
        let policy = Arc::new(SourcePolicy { name: SourceName::parse("s").unwrap(), metadata_changes: false });
        let drafts = vec![(None, draft); changes];
        journal
            .append(Submission { policy, drafts, duplicate_policy: DuplicatePolicy::RememberChanges, completes: None })
            .await
            .unwrap();
        journal
    }

    fn follow(waiting: &Waiting, name: &str) -> Following {
        let place = waiting.admit("stream", &Client::Local).ok().unwrap();
        Following::new(waiting, place, Filter::default(), format(name).unwrap(), Some(Seq::ZERO))
    }

    /// The events of a stream but the first, which has the time to wait in it.
    async fn events(waiting: &Waiting, name: &str) -> Vec<Bytes> {
        let mut following = follow(waiting, name);
        let mut events = Vec::new();
        for _ in 0..10 {
            events.push(following.next().await.unwrap());
        }
        events.split_off(2)
    }

    fn spool(folder: &std::path::Path) -> Spool {
        Spool::new(folder, 64 << 20)
    }

    fn bounds() -> waiting::Bounds {
        let hour = Duration::from_secs(3600);
        waiting::Bounds { readers: 100, per_client: 100, wait: hour, stream: hour, heartbeat: hour }
    }

    #[tokio::test]
    async fn an_event_is_encoded_once_a_format_however_many_streams_there_are_and_however_far_behind() {
        for held in [9, 1] {
            let folder = tempfile::tempdir().unwrap();
            let (waiting, _herald) =
                Waiting::new(journal_of(9, held, folder.path()).await, spool(folder.path()), bounds());
            for name in ["json", "atom"] {
                let first = events(&waiting, name).await;
                let again = events(&waiting, name).await;
                let places = |events: &[Bytes]| events.iter().map(|event| event.as_ptr()).collect::<Vec<_>>();
                assert_eq!(places(&first), places(&again), "{name}, {held} in memory");
                assert!(first[0].starts_with(b"id: 2\nevent: add\ndata: "), "{name}");
            }
        }
    }

    #[tokio::test]
    async fn what_is_no_longer_kept_is_gone_though_others_have_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal_of(9, 1, folder.path()).await;
        let (waiting, _herald) = Waiting::new(journal.clone(), spool(folder.path()), bounds());
        let read = async |after| {
            let read = waiting.read(Seq(after), 2, usize::MAX).await;
            read.map(|changes| changes.iter().map(|change| change.seq().0).collect::<Vec<_>>())
        };
        assert_eq!(read(0).await.unwrap(), [1, 2]);
        journal.prune(Seq(5), 100).await.unwrap();
        for after in [0, 3] {
            assert!(matches!(read(after).await, Err(JournalError::Gone { first: Seq(5), .. })), "after {after}");
        }
        assert_eq!(read(4).await.unwrap(), [5, 6]);
    }
}
