//! Record batches are decoded in pieces: the memory and the records of a piece are bounded, whatever a batch inflates to.

use tidings::kafka::{Batches, Entry, MAX_INFLATED_BYTES};

use crate::support::kafka_batches::{Batch, CONTROL, GZIP, LZ4, SNAPPY, TRANSACTIONAL, ZSTD};

const MAX_VALUE_BYTES: usize = 1 << 20;

/// Decodes all pieces. Records are shown as `OFFSET VALUE`, unreadable ones as `OFFSET..END REASON`.
fn decode(data: Vec<u8>, next: i64, aborted: Vec<(i64, i64)>) -> (Vec<String>, i64) {
    let mut batches = Batches::new(data.into(), next, i64::MAX, aborted, MAX_VALUE_BYTES, None);
    let mut shown = Vec::new();
    loop {
        let piece = batches.next_piece();
        assert!(piece.entries.len() <= 501, "a piece has {} entries", piece.entries.len());
        shown.extend(piece.entries.into_iter().map(|entry| match entry {
            Entry::Record { offset, record, .. } => {
                format!("{offset} {}", String::from_utf8(record.value.unwrap_or_default()).unwrap())
            }
            Entry::Unreadable { offset, end, reason } => format!("{offset}..{end} {reason}"),
        }));
        if piece.is_last {
            return (shown, piece.next);
        }
    }
}

fn value(text: &str) -> Option<&[u8]> {
    Some(text.as_bytes())
}

#[test]
fn every_codec_is_decoded_from_any_offset() {
    for codec in [0, GZIP, SNAPPY, LZ4, ZSTD] {
        let batch =
            Batch::at(40, codec).record(None, value("a")).record(Some(b"k"), value("b")).record(None, value("c"));
        let data = [batch.bytes(), Batch::at(43, 0).record(None, value("d")).bytes()].concat();
        assert_eq!(decode(data.clone(), 40, vec![]), (["40 a", "41 b", "42 c", "43 d"].map(String::from).to_vec(), 44));
        assert_eq!(decode(data, 42, vec![]), (["42 c", "43 d"].map(String::from).to_vec(), 44));
    }
}

#[test]
fn batch_that_inflates_to_too_much_is_skipped_with_its_offsets() {
    let size = usize::try_from(MAX_INFLATED_BYTES).unwrap();
    for codec in [GZIP, LZ4, ZSTD] {
        let bad = Batch::at(5, codec).record(None, value("before")).zeros(size);
        let data = [bad, Batch::at(7, 0).record(None, value("after")).bytes()].concat();
        let expected = ["5 before", "6..7 the batch inflates to more than 268435456 bytes", "7 after"];
        assert_eq!(decode(data, 5, vec![]), (expected.map(String::from).to_vec(), 8), "codec {codec}");
    }
    let bad = Batch::at(5, SNAPPY).zeros(33 << 20);
    let data = [bad, Batch::at(6, 0).record(None, value("after")).bytes()].concat();
    let expected = ["5..6 a block inflates to more than 33554432 bytes", "6 after"];
    assert_eq!(decode(data, 5, vec![]), (expected.map(String::from).to_vec(), 7));
}

#[test]
fn record_that_is_too_large_costs_only_itself() {
    let bad = Batch::at(0, ZSTD).record(None, value("before")).zeros(3 << 20);
    let (shown, next) = decode(bad, 0, vec![]);
    assert_eq!((shown[0].as_str(), next), ("0 before", 2));
    assert!(shown[1].starts_with("1..2 the record has 31457"), "{shown:?}");
    assert!(shown[1].ends_with("bytes, and limits.body_bytes is 1048576"), "{shown:?}");
}

#[test]
fn many_records_come_in_many_pieces() {
    let data = Batch::at(0, GZIP).tombstones(100_000).record(None, value("last")).bytes();
    let (shown, next) = decode(data, 0, vec![]);
    assert_eq!((shown.len(), shown.last().unwrap().as_str(), next), (100_001, "100000 last", 100_001));
}

#[test]
fn damage_ends_at_the_next_batch() {
    let mut data = Batch::at(0, 0).record(None, value("damaged")).record(None, value("lost")).bytes();
    let at = data.len() - 3;
    data[at] ^= 1;
    // The header of the damaged batch claims one record more.
    data[26] = 2;
    data.extend(Batch::at(2, 0).record(None, value("whole")).bytes());
    let expected = ["0..2 the checksum of the batch is wrong", "2 whole"];
    assert_eq!(decode(data, 0, vec![]), (expected.map(String::from).to_vec(), 3));
    // A batch that ends before its last record.
    let mut short = Batch::at(0, 0).record(None, value("a")).record(None, value("b")).bytes();
    short.truncate(short.len() - 4);
    let length = i32::try_from(short.len() - 12).unwrap();
    short[8..12].copy_from_slice(&length.to_be_bytes());
    let checksum = crc32c::crc32c(&short[21..]);
    short[17..21].copy_from_slice(&checksum.to_be_bytes());
    let expected = ["0 a", "1..2 the batch ends before its last record"];
    assert_eq!(decode(short, 0, vec![]), (expected.map(String::from).to_vec(), 2));
    // The old format of messages.
    let mut old = Batch::at(9, 0).record(None, value("a")).bytes();
    old[16] = 1;
    let expected = ["9..10 the batch has the format 1, and only 2 is read"];
    assert_eq!(decode(old, 9, vec![]), (expected.map(String::from).to_vec(), 10));
}

#[test]
fn batch_that_the_broker_has_cut_is_left_for_the_next_fetch() {
    let mut data = Batch::at(0, 0).record(None, value("whole")).bytes();
    let cut = Batch::at(1, 0).record(None, value("cut")).bytes();
    for length in [3, 12, 30, cut.len() - 1] {
        let mut data = data.clone();
        data.extend(&cut[..length]);
        assert_eq!(decode(data, 0, vec![]), (vec!["0 whole".to_owned()], 1));
    }
    data.extend(cut);
    assert_eq!(decode(data, 0, vec![]).1, 2);
}

#[test]
fn aborted_transactions_and_markers_are_left_out() {
    let part = |base_offset, producer, text| {
        let mut batch = Batch::at(base_offset, TRANSACTIONAL);
        batch.producer = producer;
        batch.record(None, value(text)).bytes()
    };
    let marker = |base_offset, producer, kind| {
        let mut batch = Batch::at(base_offset, TRANSACTIONAL | CONTROL);
        batch.producer = producer;
        batch.record(Some(&[0, 0, 0, kind]), Some(&[0; 6])).bytes()
    };
    let data = [
        part(0, 7, "aborted"),
        part(1, 8, "committed"),
        Batch::at(2, 0).record(None, value("plain")).bytes(),
        marker(3, 8, 1),
        part(4, 7, "aborted too"),
        marker(5, 7, 0),
        part(6, 7, "next transaction"),
        marker(7, 7, 1),
    ]
    .concat();
    let expected = ["1 committed", "2 plain", "6 next transaction"];
    assert_eq!(decode(data, 0, vec![(7, 0)]), (expected.map(String::from).to_vec(), 8));
}

#[test]
fn batches_without_content_are_one_place() {
    let head = |offset: i64| [&offset.to_be_bytes()[..], &0_i32.to_be_bytes()].concat();
    let data: Vec<u8> = (0..100_000).flat_map(head).collect();
    assert_eq!(decode(data, 0, vec![]), (vec!["0..100000 the batch is incomplete".to_owned()], 100_000));
}

#[test]
fn offset_near_the_largest_number_costs_only_its_batch() {
    for base in [i64::MAX, i64::MAX - 1, i64::MAX / 2 + 1, -1, i64::MIN] {
        let bad = || Batch::at(base, 0).record(None, value("a")).record(None, value("b")).bytes();
        let data = [bad(), bad(), Batch::at(7, 0).record(None, value("c")).bytes()].concat();
        let expected = ["5..7 the header of the batch is malformed", "7 c"].map(String::from).to_vec();
        assert_eq!(decode(data, 5, vec![]), (expected, 8), "{base}");
    }
}
