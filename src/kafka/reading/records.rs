//! Records of a batch, read one by one while the batch is inflated.

use std::{
    collections::BTreeMap,
    io::{self, Read, Take},
};

use bytes::Bytes;
use chrono::{DateTime, Utc};

use super::codec::{self, Inflating, malformed};
use crate::kafka::Record;

/// Maximum size of a record beside its value, in bytes: its key and its headers.
pub const MAX_KEY_AND_HEADER_BYTES: usize = 1024 * 1024;

/// Maximum number of headers of a record. A header of two octets would otherwise take a hundred in memory.
const MAX_HEADERS: i64 = 1000;

/// Allocation before the octets of a claimed length arrive, in bytes.
const FIRST_ALLOCATION: usize = 64 * 1024;

/// A record, or the size of one that is too large to be kept.
#[derive(Debug)]
pub(super) enum DecodedRecord {
    Record(Record),
    TooLarge { bytes: u64 },
}

/// Reader of the records of one batch.
pub(super) struct Records {
    inflating: Inflating,
    /// Offset of the batch.
    base_offset: i64,
    /// Offset after the batch.
    end: i64,
    /// Time that the deltas of the records are added to, or the time of all records.
    time: BatchTime,
    /// Number of records that were not read yet.
    left: i32,
    /// Maximum size of a value, in bytes.
    max_value_bytes: usize,
}

/// Times of the records of a batch, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) enum BatchTime {
    /// The producer has set them: this one, and a delta for each record.
    Created(i64),
    /// The broker has appended the batch at this time.
    Appended(i64),
}

impl Records {
    /// Opens the compressed records of a batch.
    ///
    /// # Errors
    /// Fails if they cannot be inflated.
    pub(super) fn open(
        codec: i16,
        data: Bytes,
        (base_offset, end): (i64, i64),
        time: BatchTime,
        count: i32,
        max_value_bytes: usize,
    ) -> io::Result<Self> {
        let inflating = codec::open(codec, data)?;
        Ok(Self { inflating, base_offset, end, time, left: count, max_value_bytes })
    }

    /// Returns how many more bytes the batch may inflate to.
    pub(super) fn left_bytes(&self) -> u64 {
        self.inflating.get_ref().left() + self.inflating.buffer().len() as u64
    }

    /// Reads the next record with its offset.
    ///
    /// # Errors
    /// Fails if the batch is malformed, or inflates to too much. Nothing can be read afterwards.
    pub(super) fn next(&mut self) -> io::Result<Option<(i64, DecodedRecord)>> {
        if self.left <= 0 {
            return Ok(None);
        }
        self.left -= 1;
        let bytes = u64::try_from(varint(&mut self.inflating)?).map_err(|_| negative())?;
        if bytes > self.left_bytes() {
            return Err(codec::too_large());
        }
        let mut body = (&mut self.inflating).take(bytes);
        // The attributes of a record have no meaning.
        octet(&mut body)?;
        let time = match self.time {
            BatchTime::Created(base) => base.saturating_add(varint(&mut body)?),
            BatchTime::Appended(time) => varint(&mut body).map(|_| time)?,
        };
        let offset = self.base_offset.checked_add(varint(&mut body)?);
        let in_batch = |offset: &i64| (self.base_offset..self.end).contains(offset);
        let offset = offset.filter(in_batch).ok_or_else(|| malformed("the offset of a record is not in its batch"))?;
        if bytes > (self.max_value_bytes + MAX_KEY_AND_HEADER_BYTES) as u64 {
            io::copy(&mut body, &mut io::sink())?;
            return Ok(Some((offset, DecodedRecord::TooLarge { bytes })));
        }
        let record = Record {
            key: nullable(&mut body)?,
            value: nullable(&mut body)?,
            headers: headers(&mut body)?,
            timestamp: DateTime::<Utc>::from_timestamp_millis(time).unwrap_or_default(),
        };
        if body.limit() > 0 {
            return Err(malformed("a record is longer than its parts"));
        }
        Ok(Some((offset, DecodedRecord::Record(record))))
    }
}

fn headers<R: Read>(body: &mut Take<R>) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let count = varint(body)?;
    if count > MAX_HEADERS {
        return Err(malformed(&format!("a record has {count} headers, and at most {MAX_HEADERS} are read")));
    }
    let mut headers = BTreeMap::new();
    for _ in 0..count {
        let name = String::from_utf8(nullable(body)?.unwrap_or_default());
        let name = name.map_err(|_| malformed("the name of a header is not UTF-8"))?;
        headers.insert(name, nullable(body)?.unwrap_or_default());
    }
    Ok(headers)
}

/// Reads octets with their length before them; -1 is none.
fn nullable<R: Read>(body: &mut Take<R>) -> io::Result<Option<Vec<u8>>> {
    let length = varint(body)?;
    if length == -1 {
        return Ok(None);
    }
    let length = u64::try_from(length).map_err(|_| negative())?;
    if length > body.limit() {
        return Err(malformed("a part of a record is longer than the record"));
    }
    let size = usize::try_from(length).unwrap_or(usize::MAX);
    let mut octets = Vec::with_capacity(size.min(FIRST_ALLOCATION));
    body.by_ref().take(length).read_to_end(&mut octets)?;
    if octets.len() < size { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(Some(octets)) }
}

/// Reads a number of variable length, whose sign is in the lowest bit.
fn varint(reader: &mut impl Read) -> io::Result<i64> {
    let mut value: u64 = 0;
    for shift in (0..64).step_by(7) {
        let octet = octet(reader)?;
        value |= u64::from(octet & 0x7f) << shift;
        if octet < 0x80 {
            return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
        }
    }
    Err(malformed("a number has more than ten octets"))
}

fn octet(reader: &mut impl Read) -> io::Result<u8> {
    let mut octet = [0];
    reader.read_exact(&mut octet)?;
    Ok(octet[0])
}

fn negative() -> io::Error {
    malformed("a length is negative")
}

#[cfg(test)]
mod tests {
    use super::varint;

    #[test]
    fn numbers_have_their_sign_in_the_lowest_bit() {
        for (octets, value) in [
            (&[0][..], 0),
            (&[1], -1),
            (&[2], 1),
            (&[0xac, 0x02], 150),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], i64::MIN),
        ] {
            assert_eq!(varint(&mut &*octets).unwrap(), value);
        }
        assert!(varint(&mut &[0xff; 11][..]).is_err() && varint(&mut &[0x80][..]).is_err());
    }
}
