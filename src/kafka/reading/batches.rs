//! Record batches of a fetch response, decoded in pieces of a bounded size.

use std::{io, ops::Range};

use bytes::{Buf, Bytes};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    aborted::AbortedTransactions,
    records::{BatchTime, DecodedRecord, Records},
    wire,
};
use crate::kafka::Record;

/// Size at which a piece ends, in bytes of keys, values and headers.
const PIECE_BYTES: usize = 1024 * 1024;

/// Number of records at which a piece ends.
const PIECE_RECORDS: usize = 500;

/// Inflated bytes after which a piece ends, whatever became of them. They bound the time of a piece.
const PIECE_INFLATED_BYTES: u64 = 16 * 1024 * 1024;

/// Octets of a batch before those that its length counts: its offset and its length.
const BEFORE_LENGTH: usize = 12;

/// Octets from the length of a batch to its checksum, and the checksum.
const BEFORE_CHECKED: usize = 9;

/// Version of the format of batches that is read. Kafka writes it since version 0.11.
const MAGIC: i8 = 2;

/// Codec, time, transaction and control marker in the attributes of a batch.
const CODEC: i16 = 0b111;
const APPEND_TIME: i16 = 1 << 3;
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;

/// A part of a fetch response, decoded.
#[derive(Debug)]
pub struct Piece {
    /// Records and unreadable places, in order.
    pub entries: Vec<Entry>,
    /// Offset after everything that was decoded.
    pub next: i64,
    /// Whether the response has no more records.
    pub is_last: bool,
}

/// A record, or a place without a readable one.
#[derive(Debug)]
pub enum Entry {
    /// A record with its offset.
    Record {
        /// The offset.
        offset: i64,
        /// Offsets of its batch.
        batch: Range<i64>,
        /// The record.
        record: Record,
    },
    /// The records from `offset` to before `end` cannot be read.
    Unreadable {
        /// Offset of the first record.
        offset: i64,
        /// Offset after the last record.
        end: i64,
        /// Reason why they cannot be read.
        reason: String,
    },
}

/// Record batches of a fetch response, as they are stored in the cluster.
///
/// Records are decoded while their batch is inflated, so the memory depends on the size of a piece, and not on that of the
/// batch. Records of aborted transactions, and the markers of transactions, are left out.
pub struct Batches {
    rest: Bytes,
    /// First offset that was not decoded yet.
    next: i64,
    /// Offset after the newest record of the partition.
    high_watermark: i64,
    aborted: AbortedTransactions,
    max_value_bytes: usize,
    open: Option<OpenBatch>,
    /// Share of the budget for responses, until they are decoded.
    _permit: Option<OwnedSemaphorePermit>,
}

struct OpenBatch {
    records: Records,
    base_offset: i64,
    end: i64,
}

/// Header of a batch.
struct Header {
    attributes: i16,
    base_offset: i64,
    end: i64,
    base_time: i64,
    max_time: i64,
    producer: i64,
    count: i32,
}

/// The result of a step through the response.
enum Step {
    Entry(Entry),
    /// The header of a batch is malformed.
    Malformed {
        start: i64,
        end: i64,
        reason: String,
    },
    Nothing,
    End,
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Batches")
            .field("rest", &self.rest.len())
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl Batches {
    /// Takes the batches of a response. `next` is the first offset that is wanted; `aborted` has the producers and first
    /// offsets of aborted transactions. A value of more than `max_value_bytes` bytes can be unreadable.
    #[must_use]
    pub fn new(
        data: Bytes,
        next: i64,
        high_watermark: i64,
        aborted: Vec<(i64, i64)>,
        max_value_bytes: usize,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let aborted = AbortedTransactions::new(aborted);
        Self { rest: data, next, high_watermark, aborted, max_value_bytes, open: None, _permit: permit }
    }

    /// Returns whether the response has no octets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.open.is_none()
    }

    /// Decodes the next piece. This takes up to some ten milliseconds for a piece of usual records, and up to a second for a
    /// large record that is skipped, so it is called on a blocking thread.
    pub fn next_piece(&mut self) -> Piece {
        let mut entries = Vec::new();
        let (mut bytes, mut inflated) = (0, 0);
        let is_last = loop {
            if bytes >= PIECE_BYTES || entries.len() >= PIECE_RECORDS || inflated >= PIECE_INFLATED_BYTES {
                break false;
            }
            let before = self.open.as_ref().map_or(0, |open| open.records.left_bytes());
            match self.step() {
                Step::Entry(entry) => {
                    if let Entry::Record { record, .. } = &entry {
                        bytes += record.approximate_size();
                    }
                    entries.push(entry);
                }
                Step::Malformed { start, end, reason } => add_malformed(&mut entries, start, end, reason),
                Step::Nothing => {}
                Step::End => break true,
            }
            inflated += self.open.as_ref().map_or(0, |open| before.saturating_sub(open.records.left_bytes()));
        };
        Piece { entries, next: self.next, is_last }
    }

    fn step(&mut self) -> Step {
        let Some(open) = &mut self.open else { return self.open_next() };
        let (start, end) = (self.next, open.end);
        match open.records.next() {
            Ok(Some((offset, _))) if offset < start => Step::Nothing,
            Ok(Some((offset, found))) => {
                self.next = offset + 1;
                Step::Entry(match found {
                    DecodedRecord::Record(record) => Entry::Record { offset, batch: open.base_offset..end, record },
                    DecodedRecord::TooLarge { bytes } => {
                        let max = self.max_value_bytes;
                        let reason = format!("the record has {bytes} bytes, and limits.body_bytes is {max}");
                        Entry::Unreadable { offset, end: offset + 1, reason }
                    }
                })
            }
            Ok(None) => {
                (self.open, self.next) = (None, end.max(start));
                Step::Nothing
            }
            Err(error) => {
                (self.open, self.next) = (None, end.max(start));
                match start < end {
                    true => Step::Entry(Entry::Unreadable { offset: start, end, reason: describe(&error) }),
                    false => Step::Nothing,
                }
            }
        }
    }

    /// Opens the next batch, or skips it.
    fn open_next(&mut self) -> Step {
        if self.rest.is_empty() {
            return Step::End;
        }
        let Some((base_offset, batch)) = self.take_batch() else {
            // A broker returns the first batch as a whole, and may cut the last one.
            return Step::End;
        };
        let header = match check(base_offset, batch.clone()) {
            Ok(header) => header,
            Err((end, reason)) => {
                let end = self.end_of_bad(end);
                let start = std::mem::replace(&mut self.next, end);
                return Step::Malformed { start, end, reason };
            }
        };
        let (header, records) = header;
        if header.end <= self.next {
            return Step::Nothing;
        }
        let is_hidden = self.aborted.hides(header.producer, header.end - 1) && header.attributes & TRANSACTIONAL != 0;
        if header.attributes & CONTROL != 0 {
            if is_abort(&header, records) {
                self.aborted.end(header.producer);
            }
            self.next = header.end;
            return Step::Nothing;
        }
        if is_hidden {
            self.next = header.end;
            return Step::Nothing;
        }
        match open(&header, records, self.max_value_bytes) {
            Ok(records) => {
                self.open = Some(OpenBatch { records, base_offset: header.base_offset, end: header.end });
                Step::Nothing
            }
            Err(error) => {
                let offset = std::mem::replace(&mut self.next, header.end);
                Step::Entry(Entry::Unreadable { offset, end: header.end, reason: describe(&error) })
            }
        }
    }

    /// Takes the next batch, from its leader epoch on, with its offset; `None` if it is not complete.
    fn take_batch(&mut self) -> Option<(i64, Bytes)> {
        let mut head = self.rest.slice(..BEFORE_LENGTH.min(self.rest.len()));
        let (base_offset, length) = (head.try_get_i64().ok()?, head.try_get_i32().ok()?);
        let length = usize::try_from(length).ok().filter(|length| *length <= self.rest.len() - BEFORE_LENGTH);
        let Some(length) = length else {
            self.rest.clear();
            return None;
        };
        self.rest.advance(BEFORE_LENGTH);
        Some((base_offset, self.rest.split_to(length)))
    }

    /// Returns the offset after a batch whose header claims the offset `claimed`. The next batch is more reliable, because
    /// a wrong checksum may mean a wrong header.
    fn end_of_bad(&self, claimed: i64) -> i64 {
        let following =
            self.rest.clone().try_get_i64().ok().filter(|base| *base > self.next && wire::offset(*base).is_ok());
        let (end, least) = (following.unwrap_or(claimed), self.next.saturating_add(1));
        end.clamp(least, self.high_watermark.max(least))
    }
}

/// Adds a place whose batch is malformed. Places that follow each other and are malformed for the same reason are one, because
/// a response can have millions of batches without content.
fn add_malformed(entries: &mut Vec<Entry>, start: i64, end: i64, reason: String) {
    match entries.last_mut() {
        Some(Entry::Unreadable { end: before, reason: known, .. }) if *before == start && *known == reason => {
            *before = end;
        }
        _ => entries.push(Entry::Unreadable { offset: start, end, reason }),
    }
}

/// Checks a batch. An error has the offset after the batch, as far as it is known, and the reason.
fn check(base_offset: i64, mut batch: Bytes) -> Result<(Header, Bytes), (i64, String)> {
    let next = base_offset.saturating_add(1);
    if base_offset < 0 || wire::offset(base_offset).is_err() {
        return Err((i64::MIN, "the header of the batch is malformed".to_owned()));
    }
    let incomplete = || (next, "the batch is incomplete".to_owned());
    let start = batch.try_get_i32().and_then(|_| Ok((batch.try_get_i8()?, batch.try_get_u32()?)));
    let (magic, checksum) = start.map_err(|_| incomplete())?;
    debug_assert_eq!(BEFORE_CHECKED, 4 + 1 + 4);
    if magic != MAGIC {
        let reason = format!("the batch has the format {magic}, and only {MAGIC} is read");
        return Err((next, reason));
    }
    let checked = batch.clone();
    let header = read_header(base_offset, &mut batch).map_err(|_| incomplete())?;
    if crc32c::crc32c(&checked) != checksum {
        return Err((header.end, "the checksum of the batch is wrong".to_owned()));
    }
    if header.end <= base_offset || header.count < 0 {
        return Err((header.end, "the header of the batch is malformed".to_owned()));
    }
    Ok((header, batch))
}

fn read_header(base_offset: i64, batch: &mut Bytes) -> Result<Header, bytes::TryGetError> {
    let attributes = batch.try_get_i16()?;
    let last_offset_delta = batch.try_get_i32()?;
    let (base_time, max_time) = (batch.try_get_i64()?, batch.try_get_i64()?);
    let producer = batch.try_get_i64()?;
    // The epoch and the first sequence number of the producer.
    batch.try_get_i16()?;
    batch.try_get_i32()?;
    let count = batch.try_get_i32()?;
    let end = base_offset.saturating_add(i64::from(last_offset_delta)).saturating_add(1);
    Ok(Header { attributes, base_offset, end, base_time, max_time, producer, count })
}

fn open(header: &Header, records: Bytes, max_value_bytes: usize) -> io::Result<Records> {
    let time = match header.attributes & APPEND_TIME != 0 {
        true => BatchTime::Appended(header.max_time),
        false => BatchTime::Created(header.base_time),
    };
    let range = (header.base_offset, header.end);
    Records::open(header.attributes & CODEC, records, range, time, header.count, max_value_bytes)
}

/// Returns whether the marker in a control batch ends an aborted transaction. Its key has a version and a type, each of two
/// octets.
fn is_abort(header: &Header, records: Bytes) -> bool {
    let Ok(mut records) = open(header, records, 0) else { return false };
    match records.next() {
        Ok(Some((_, DecodedRecord::Record(record)))) => {
            record.key.as_deref().is_some_and(|key| key.get(2..4) == Some(&[0, 0]))
        }
        _ => false,
    }
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the batch ends before its last record".to_owned(),
        // The text is one of a decompressor or of this module, and has nothing of the batch.
        _ => error.to_string(),
    }
}
