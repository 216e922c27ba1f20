//! The duty that seals segments and removes old ones.
//!
//! A segment is sealed in this order: write the file under its digest, read it back, and note it in the journal. A crash
//! between two steps leaves a file that the next attempt writes again, with the same bytes and so under the same name.
//! After each segment the worker rests for as long as it took, so that sealing has at most half a processor.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    KeptSegments, SegmentError, Segments,
    encoder::{SegmentEncoder, Written},
    manifest::Manifest,
    metrics,
};
use crate::{
    files::NewFile,
    journal::{
        Journal, JournalError,
        segments::{SPAN, SpanWrite, end_of_span},
        store::StoreError,
    },
    model::Seq,
};

/// Maximum number of changes, and size of their JSON in bytes, that are read at once.
const PIECE_CHANGES: usize = 1000;
const PIECE_BYTES: usize = 4 << 20;

/// Maximum time between two looks, because retention removes changes without a new one.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Pause after a look, and after a failure.
const PAUSE: Duration = Duration::from_secs(1);
const FAILURE_PAUSE: Duration = Duration::from_secs(10);

/// Age of an unfinished file that nobody finishes any more. Another node may be writing a younger one.
const REMAINS_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// A closed span without a segment.
#[derive(Clone, Copy, Debug)]
struct ClosedSpan {
    /// Number after which it is read.
    after: Seq,
    last: Seq,
}

/// Notes the order times of closed spans, and seals them if there are segments, until `stop` is cancelled.
pub async fn seal_spans(journal: Journal, segments: Option<Segments>, stop: CancellationToken) {
    metrics::register();
    let segments = segments.map(|segments| Segments { journal: journal.clone(), ..segments });
    let _ = stop.run_until_cancelled(run(&journal, segments.as_ref())).await;
}

async fn run(journal: &Journal, segments: Option<&Segments>) {
    let mut head = journal.watch();
    if let Some(segments) = segments
        && let Err(error) = segments.tidy().await
    {
        tracing::warn!(%error, "the files of the segments cannot be compared with the journal; the next start tries again");
    }
    loop {
        head.mark_unchanged();
        let pause = match look(journal, segments).await {
            Ok(()) => PAUSE,
            Err(SegmentError::Journal(error)) if error.is_outage() => {
                tracing::debug!(%error, "cannot seal the changes in segments; retrying");
                FAILURE_PAUSE
            }
            Err(error) => {
                metrics::failed();
                tracing::warn!(%error, "cannot seal the changes in segments; retrying");
                FAILURE_PAUSE
            }
        };
        sleep(pause).await;
        let _ = tokio::time::timeout(LOOK_EVERY, head.changed()).await;
    }
}

/// Seals all closed spans, and removes the segments that are no longer kept.
async fn look(journal: &Journal, segments: Option<&Segments>) -> Result<(), SegmentError> {
    journal.note_spans().await?;
    let Some(segments) = segments else { return Ok(()) };
    segments.remove_old().await?;
    while let Some(span) = segments.next_span().await? {
        let began = Instant::now();
        let Some(manifest) = segments.seal(span).await? else { break };
        segments.journal.write_span(SpanWrite::Segment(manifest.to_record()?)).await?;
        metrics::sealed();
        let Manifest { first, last, changes, size, .. } = manifest;
        tracing::debug!(%first, %last, changes, size, "sealed a segment");
        sleep(began.elapsed()).await;
    }
    Ok(())
}

impl Segments {
    /// Removes the remains of interrupted attempts, and seals missing files again whose changes the journal still has. Files
    /// that the journal does not know stay: they may be those of another journal that was given the same place by mistake.
    async fn tidy(&self) -> Result<(), SegmentError> {
        let (mut noted, mut after) = (HashMap::new(), Seq::ZERO);
        loop {
            let segments = self.after(after, super::AT_ONCE).await?;
            let Some(newest) = segments.last() else { break };
            after = newest.last;
            noted.extend(segments.iter().map(|segment| (segment.file, segment.first)));
        }
        if noted.is_empty() {
            return Ok(());
        }
        let files = self.files().await?;
        let present = files.names().await?;
        files.collect_garbage(&present, REMAINS_AGE).await?;
        for first in noted.iter().filter(|(file, _)| !present.contains(*file)).map(|(_, first)| *first) {
            if self.journal.first() <= first
                && let Some(manifest) = self.seal(self.span_of(first).await?).await?
            {
                tracing::warn!(%first, "the file of a segment was missing, and is sealed again");
                self.journal.write_span(SpanWrite::Segment(manifest.to_record()?)).await?;
            } else {
                metrics::failed();
                tracing::error!(%first, "the file of a segment is missing, and the journal no longer has its changes");
            }
        }
        Ok(())
    }

    /// Returns the span that has this number.
    async fn span_of(&self, seq: Seq) -> Result<ClosedSpan, SegmentError> {
        let after = self.journal.number_before(seq).await?.unwrap_or_default();
        Ok(ClosedSpan { after, last: end_of_span(seq) })
    }

    /// Returns the first closed span after the newest segment of which the journal has all changes.
    async fn next_span(&self) -> Result<Option<ClosedSpan>, SegmentError> {
        let sealed = self.journal.newest_sealed().await?.unwrap_or_default();
        let Some(mut next) = self.journal.first_after(sealed).await? else { return Ok(None) };
        if next == self.journal.first()
            && let Some(before) = self.journal.number_before(next).await?
            && before > sealed
            && end_of_span(before) == end_of_span(next)
        {
            // Retention has removed the begin of its span.
            let Some(following) = self.journal.first_after(end_of_span(next)).await? else { return Ok(None) };
            next = following;
        }
        let span = self.span_of(next).await?;
        Ok(Some(span).filter(|span| span.last <= self.journal.head()))
    }

    /// Writes the file of a span and reads it back; `None` if retention was faster.
    async fn seal(&self, ClosedSpan { after, last }: ClosedSpan) -> Result<Option<Manifest>, SegmentError> {
        // Read before the changes: a failover meanwhile gives them another one.
        let journal = self.journal.identity();
        let (mut encoder, mut file) = (SegmentEncoder::default(), self.files().await?.create().await?);
        let (mut cursor, mut damaged) = (after, Vec::new());
        while cursor < last {
            let changes = match self.journal.after_within(cursor, PIECE_CHANGES, PIECE_BYTES).await {
                Err(JournalError::Gone { .. }) => return Ok(None),
                Err(JournalError::Store(StoreError::DamagedChange { seq, .. })) if seq > last => break,
                Err(JournalError::Store(StoreError::DamagedChange { seq, what })) => {
                    tracing::warn!(seq = seq.0, what, "the segment lacks a damaged change");
                    damaged.push(seq);
                    cursor = seq;
                    continue;
                }
                changes => changes?,
            };
            let changes: Vec<_> = changes.into_iter().take_while(|change| change.seq() <= last).collect();
            let Some(newest) = changes.last() else { break };
            cursor = newest.seq();
            let encoding = tokio::task::spawn_blocking(move || encoder.add(&changes).map(|bytes| (encoder, bytes)));
            let (encoded, bytes) = encoding.await.map_err(|_| JournalError::Closed)??;
            encoder = encoded;
            write(&mut file, bytes).await?;
        }
        let (bytes, digest, written) = encoder.finish()?;
        write(&mut file, bytes).await?;
        let Written { frames, names, changes, plain_size, received, unreadable } = written;
        if !unreadable.is_empty() {
            tracing::warn!(?unreadable, "the segment lacks changes whose JSON has not its form");
        }
        damaged.extend(unreadable);
        damaged.sort_unstable();
        let stored = file.finish().await?;
        let manifest = Manifest {
            first: Seq(last.0 - SPAN + 1),
            last,
            last_change: cursor,
            changes,
            journal,
            file: stored.digest,
            size: stored.size,
            digest,
            plain_size,
            received_from: received.map(|(first, _)| first),
            received_until: received.map(|(_, last)| last),
            frames,
            sources: names.sources.into_names(),
            types: names.types.into_names(),
            parents: names.parents.into_names(),
            hosts: names.hosts.into_names(),
            damaged,
        };
        self.read_back(&manifest).await?;
        Ok(Some(manifest))
    }

    /// Compares the bytes of a segment's file with its name.
    async fn read_back(&self, segment: &Manifest) -> Result<(), SegmentError> {
        if self.files().await?.is_intact(segment.file).await? {
            return Ok(());
        }
        // It was removed, and the next attempt writes it again.
        let reason = "its bytes have another digest".to_owned();
        Err(SegmentError::Damaged { first: segment.first, file: segment.file, reason })
    }

    /// Removes the segments whose changes retention has removed, unless all are kept.
    async fn remove_old(&self) -> Result<(), SegmentError> {
        if self.kept == KeptSegments::All {
            return Ok(());
        }
        let first = self.journal.first();
        loop {
            let old: Vec<_> = self.after(Seq::ZERO, super::AT_ONCE).await?;
            let old: Vec<_> = old.into_iter().take_while(|segment| segment.last < first).collect();
            let Some(newest) = old.last() else { return Ok(()) };
            // First the note, so that no reader is sent to a file that is gone.
            self.journal.write_span(SpanWrite::RemoveSegments { before: newest.last.next() }).await?;
            for segment in &old {
                self.files().await?.remove(segment.file).await?;
            }
        }
    }
}

async fn write(file: &mut NewFile, bytes: bytes::Bytes) -> Result<(), SegmentError> {
    if !bytes.is_empty() {
        file.write(bytes).await?;
    }
    Ok(())
}
