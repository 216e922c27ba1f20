//! Reader of one stream: reads the journal as fast as its client accepts the events, and waits at the head.

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
        LARGE,
        live_readers::{LiveReaders, ReaderPermit},
        metrics,
    },
    event,
};
use crate::{
    format::FormatKind,
    journal::{JournalError, RecordedChange, store::StoreError},
    model::{Filter, Seq},
    web::{Content, RenderPermit},
};

/// Maximum number of changes that are read from the journal at once. A stream holds these in addition to the data
/// that the server takes before sending: 64 events, or 64 KiB and one event.
const PAGE_CHANGES: usize = 64;

/// Approximate maximum size of the JSON of these changes, in bytes.
const PAGE_BYTES: usize = 64 * 1024;

/// Number of changes excluded by the filter after which the client is sent the cursor. When it reconnects, the server
/// need not examine these changes again.
const CURSOR_INTERVAL: u64 = 1000;

/// Reader of one stream.
pub(super) struct StreamReader {
    readers: LiveReaders,
    head: watch::Receiver<Seq>,
    format: &'static FormatKind,
    /// `None` selects all changes.
    filter: Option<Box<Filter>>,
    page: std::vec::IntoIter<Arc<RecordedChange>>,
    /// Event of a large change, and the number of its bytes that were sent.
    large: Option<(Content, u64)>,
    /// Permit to write the event of the first change of `page`, which is large and was read from disk.
    permit: Option<RenderPermit>,
    /// Number of the last change that was examined.
    cursor: Seq,
    /// Last number that was sent to the client.
    reported_cursor: Seq,
    preamble: Preamble,
    /// Whether the stream has reached the head since its start.
    has_reached_head: bool,
    /// Time at which data was last sent.
    last_sent: Instant,
    /// Time at which the stream ends.
    deadline: Instant,
    timer: Pin<Box<Sleep>>,
    streamed_changes: Counter,
    _permit: ReaderPermit,
}

/// Next step in sending a page.
enum PageStep {
    /// Data to send.
    Bytes(Bytes),
    /// A large change whose event must be written first.
    Large(Arc<RecordedChange>),
    /// The end of the page.
    End,
}

/// Part of the beginning of a stream that is still to be sent.
enum Preamble {
    /// The cursor, because the client gave none and needs one if it is disconnected before the first event.
    Cursor,
    /// A comment, so that proxies forward the response headers.
    Comment,
    /// The reconnection time, with the first event.
    Retry,
    /// Nothing.
    Done,
}

impl StreamReader {
    /// Creates a stream of the changes after a number, or of future changes.
    pub(super) fn new(
        readers: &LiveReaders,
        permit: ReaderPermit,
        filter: Filter,
        format: &'static FormatKind,
        after: Option<Seq>,
    ) -> Self {
        let (now, limits) = (Instant::now(), readers.limits());
        let cursor = after.unwrap_or_else(|| readers.journal().head());
        // Streams that began together must not all reconnect together.
        let deadline = now + limits.stream.mul_f64(0.9 + 0.1 * fastrand::f64());
        Self {
            head: readers.head(),
            format,
            filter: Some(filter).filter(|filter| *filter != Filter::default()).map(Box::new),
            page: Vec::new().into_iter(),
            large: None,
            permit: None,
            cursor,
            reported_cursor: cursor,
            preamble: if after.is_some() { Preamble::Comment } else { Preamble::Cursor },
            has_reached_head: false,
            last_sent: now,
            deadline,
            timer: Box::pin(sleep_until(deadline.min(now + limits.heartbeat))),
            streamed_changes: metrics::streamed_changes(format.name),
            readers: readers.clone(),
            _permit: permit,
        }
    }

    /// Returns the next data; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        let bytes = match self.preamble {
            Preamble::Cursor => event::cursor(self.cursor),
            Preamble::Comment => event::HEARTBEAT,
            Preamble::Retry | Preamble::Done => self.next_event().await?,
        };
        if matches!(self.preamble, Preamble::Cursor | Preamble::Comment) {
            self.preamble = Preamble::Retry;
        }
        self.last_sent = Instant::now();
        Some(bytes)
    }

    async fn next_event(&mut self) -> Option<Bytes> {
        loop {
            match self.next_large_piece().await {
                Ok(Some(bytes)) => return Some(bytes),
                Ok(None) => {}
                Err(error) => return self.end_with(&StoreError::Io(error.to_string()).into()),
            }
            match self.next_page_step() {
                Ok(PageStep::Bytes(bytes)) => return Some(bytes),
                Ok(PageStep::Large(change)) => match self.start_large(change).await {
                    Ok(Some(bytes)) => return Some(bytes),
                    Ok(None) => continue,
                    Err(error) => return self.end_with(&error),
                },
                Ok(PageStep::End) => {}
                Err(error) => return self.end_with(&error.into()),
            }
            if Instant::now() >= self.deadline {
                return None;
            }
            self.head.borrow_and_update();
            match self.read_page().await {
                Ok(page) if page.is_empty() => {
                    // A client with a narrow filter learns that it has everything, and can end.
                    let is_first_time = !std::mem::replace(&mut self.has_reached_head, true);
                    if is_first_time && self.cursor > self.reported_cursor {
                        return Some(self.report_cursor());
                    }
                }
                Ok(page) => {
                    self.page = page.into_iter();
                    // Reads from memory do not wait, so other tasks must get a chance to run.
                    consume_budget().await;
                    continue;
                }
                Err(error) => return self.end_with(&error),
            }
            tokio::select! {
                // The channel closes when the gateway stops.
                moved = self.head.changed() => moved.ok()?,
                () = self.timer.as_mut() => {
                    let now = Instant::now();
                    let heartbeat = self.readers.limits().heartbeat;
                    let is_due = now >= self.last_sent + heartbeat;
                    self.set_timer(if is_due { now } else { self.last_sent } + heartbeat);
                    if is_due {
                        return Some(self.heartbeat());
                    }
                }
            }
        }
    }

    /// Returns the next piece of the event of a large change.
    async fn next_large_piece(&mut self) -> io::Result<Option<Bytes>> {
        let Some((event, sent)) = &mut self.large else { return Ok(None) };
        let piece = event.piece(*sent).await?;
        match &piece {
            Some(piece) => *sent += piece.len() as u64,
            None => self.large = None,
        }
        Ok(piece)
    }

    /// Writes the event of a large change. Returns the data to send before it, if any.
    async fn start_large(&mut self, change: Arc<RecordedChange>) -> Result<Option<Bytes>, JournalError> {
        let spool = self.readers.spool();
        let permit = match self.permit.take() {
            Some(permit) => permit,
            None => spool.page_permit().await,
        };
        let filter = self.filter.as_deref().cloned();
        let event = Box::pin(self.readers.large_events().event(spool, permit, change, self.format, filter)).await?;
        let Some(event) = event else { return Ok(self.cursor_if_due()) };
        self.large = Some((event, 0));
        self.reported_cursor = self.cursor;
        self.streamed_changes.increment(1);
        Ok(match std::mem::replace(&mut self.preamble, Preamble::Done) {
            Preamble::Done => None,
            _ => Some(event::retry()),
        })
    }

    /// Returns the next event of the page.
    fn next_page_step(&mut self) -> Result<PageStep, StoreError> {
        for change in self.page.by_ref() {
            self.cursor = change.seq();
            let is_covered = self.format.covers.is_none() || self.format.covers(change.change()?);
            if is_covered && change.json().len() >= LARGE {
                return Ok(PageStep::Large(change));
            }
            let selected = match &self.filter {
                _ if !is_covered => None,
                Some(filter) => change.filtered(filter)?,
                None => Some(change),
            };
            if let Some(selected) = selected {
                let bytes = event::of_change(&selected, self.format)?;
                self.reported_cursor = self.cursor;
                self.streamed_changes.increment(1);
                return Ok(PageStep::Bytes(match std::mem::replace(&mut self.preamble, Preamble::Done) {
                    Preamble::Done => bytes,
                    _ => event::with_retry(&bytes),
                }));
            }
            if self.cursor.0 - self.reported_cursor.0 >= CURSOR_INTERVAL {
                return Ok(PageStep::Bytes(self.report_cursor()));
            }
        }
        Ok(PageStep::End)
    }

    /// Returns the cursor for the client if it was not sent for long.
    fn cursor_if_due(&mut self) -> Option<Bytes> {
        (self.cursor.0 - self.reported_cursor.0 >= CURSOR_INTERVAL).then(|| self.report_cursor())
    }

    /// Reads the next changes, from memory or else from disk. A large change is read with the permit that is then
    /// used to write its event.
    async fn read_page(&mut self) -> Result<Vec<Arc<RecordedChange>>, JournalError> {
        let mut page = match self.readers.in_memory(self.cursor, PAGE_CHANGES, PAGE_BYTES) {
            Some(page) => page,
            None => {
                let permit = self.readers.spool().page_permit().await;
                // On the heap, because few streams read from disk at a time.
                let page = Box::pin(self.readers.read(self.cursor, PAGE_CHANGES, PAGE_BYTES)).await?;
                self.permit = Some(permit).filter(|_| page.first().is_some_and(|first| first.json().len() >= LARGE));
                page
            }
        };
        // A large change after small ones would stay in memory until these are sent.
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
        if self.cursor > self.reported_cursor { self.report_cursor() } else { event::HEARTBEAT }
    }

    fn report_cursor(&mut self) -> Bytes {
        self.reported_cursor = self.cursor;
        event::cursor(self.cursor)
    }

    fn set_timer(&mut self, at: Instant) {
        let at = at.min(self.deadline);
        self.timer.as_mut().reset(at);
    }

    /// Ends the stream because of an error. The client reconnects and then gets the error as a status.
    #[expect(clippy::unused_self, reason = "it is called at the end of the stream")]
    fn end_with(&self, error: &JournalError) -> Option<Bytes> {
        match error {
            JournalError::Gone { .. } => tracing::info!(%error, "stream closed: its reader is too far behind"),
            error if error.is_outage() => tracing::debug!(%error, "stream closed: cannot read the journal"),
            error => tracing::warn!(%error, "stream closed: cannot read the journal"),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::super::live_readers, Bytes, Filter, LiveReaders, Seq, StreamReader};
    use crate::{
        format::format,
        journal::JournalError,
        view::test_journal::{journal_of, small_draft},
        web::{Client, Spool},
    };

    fn follow(readers: &LiveReaders, name: &str) -> StreamReader {
        let permit = readers.admit("stream", &Client::Local).ok().unwrap();
        StreamReader::new(readers, permit, Filter::default(), format(name).unwrap(), Some(Seq::ZERO))
    }

    /// Returns the events of a stream without the first, which contains the reconnection time.
    async fn events(readers: &LiveReaders, name: &str) -> Vec<Bytes> {
        let mut stream = follow(readers, name);
        let mut events = Vec::new();
        for _ in 0..10 {
            events.push(stream.next().await.unwrap());
        }
        events.split_off(2)
    }

    fn spool(folder: &std::path::Path) -> Spool {
        Spool::new(folder, 64 << 20)
    }

    fn limits() -> live_readers::ReaderLimits {
        let hour = Duration::from_secs(3600);
        live_readers::ReaderLimits { readers: 100, per_client: 100, wait: hour, stream: hour, heartbeat: hour }
    }

    #[tokio::test]
    async fn event_is_encoded_once_per_format_for_all_streams() {
        for in_memory in [9, 1] {
            let folder = tempfile::tempdir().unwrap();
            let (readers, _notifier) = LiveReaders::new(
                journal_of(small_draft(), 9, in_memory, folder.path()).await,
                spool(folder.path()),
                limits(),
            );
            for name in ["json", "atom"] {
                let first = events(&readers, name).await;
                let again = events(&readers, name).await;
                let addresses = |events: &[Bytes]| events.iter().map(|event| event.as_ptr()).collect::<Vec<_>>();
                assert_eq!(addresses(&first), addresses(&again), "{name}, {in_memory} in memory");
                assert!(first[0].starts_with(b"id: 2\nevent: add\ndata: "), "{name}");
            }
        }
    }

    #[tokio::test]
    async fn pruned_changes_are_gone_even_if_cached() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal_of(small_draft(), 9, 1, folder.path()).await;
        let (readers, _notifier) = LiveReaders::new(journal.clone(), spool(folder.path()), limits());
        let read = async |after| {
            let read = readers.read(Seq(after), 2, usize::MAX).await;
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
