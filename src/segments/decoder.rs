//! Changes from the bytes of a segment.

use std::{io::Read, sync::Arc};

use bytes::Bytes;
use serde::Deserialize;
use zstd::stream::read::Decoder;

use crate::{journal::RecordedChange, model::Seq};

/// Maximum size of the lines of a frame, in bytes: a frame ends with the change that exceeds its size, and a change has at
/// most the rest.
const MAX_FRAME_BYTES: u64 = 256 << 20;

/// Number in a line.
#[derive(Deserialize)]
struct Number {
    seq: Seq,
}

/// Returns up to `limit` changes of a frame that follow `after`.
///
/// # Errors
/// Fails if the bytes are not those of a frame.
pub(super) fn changes(frame: &[u8], after: Seq, limit: usize) -> std::io::Result<Vec<Arc<RecordedChange>>> {
    let mut lines = Vec::new();
    Decoder::new(frame)?.take(MAX_FRAME_BYTES).read_to_end(&mut lines)?;
    let lines = Bytes::from(lines);
    let mut changes = Vec::new();
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let Number { seq } = serde_json::from_slice(line)?;
        if seq > after {
            changes.push(Arc::new(RecordedChange::from_json(seq, lines.slice_ref(line))));
            if changes.len() == limit {
                break;
            }
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::{super::encoder::SegmentEncoder, *};

    fn change(seq: u64) -> Arc<RecordedChange> {
        let json = format!(
            "{{\"seq\":{seq},\"source\":\"s\",\"received\":\"2024-05-06T07:08:10.000Z\",\"object\":\"http://h/{seq}\"}}"
        );
        Arc::new(RecordedChange::from_json(Seq(seq), json.into()))
    }

    #[test]
    fn frames_end_after_thousands_and_give_their_changes_back() {
        let mut encoder = SegmentEncoder::default();
        let numbers: Vec<u64> = (1..=999).chain(1001..=2500).collect();
        let written: Vec<_> = numbers.iter().copied().map(change).collect();
        let mut bytes = Vec::new();
        for piece in written.chunks(300) {
            bytes.extend(encoder.add(piece).unwrap());
        }
        let (last, _, contents) = encoder.finish().unwrap();
        bytes.extend(last);
        let spans: Vec<_> = contents.frames.iter().map(|frame| (frame.first.0, frame.last.0)).collect();
        assert_eq!(spans, [(1, 999), (1001, 2000), (2001, 2500)]);
        let range = |at: usize| {
            let frame = contents.frames[at];
            let begin = usize::try_from(frame.offset).unwrap();
            begin..begin + usize::try_from(frame.size).unwrap()
        };
        let read = changes(&bytes[range(1)], Seq(1500), 3).unwrap();
        assert_eq!(read.iter().map(|change| change.seq().0).collect::<Vec<_>>(), [1501, 1502, 1503]);
        assert_eq!(read[0].json(), written[1499].json());
        let whole = zstd::decode_all(&bytes[..]).unwrap();
        let expected: Vec<u8> = written.iter().flat_map(|change| [&change.json()[..], b"\n"].concat()).collect();
        assert_eq!(whole, expected);
        assert_eq!(contents.plain_size, expected.len() as u64);

        let json = |changes: Vec<Arc<RecordedChange>>| -> Vec<_> {
            changes.iter().map(|change| change.json().clone()).collect()
        };
        let intact = json(changes(&bytes[range(0)], Seq(0), 1000).unwrap());
        let mut found = 0;
        for at in 0..range(0).len() {
            let mut flipped = bytes[range(0)].to_vec();
            flipped[at] ^= 1;
            // The size of the window is no part of the content.
            match changes(&flipped, Seq(0), 1000) {
                Ok(read) => assert_eq!(json(read), intact, "byte {at}"),
                Err(_) => found += 1,
            }
        }
        assert!(found + 2 >= range(0).len(), "{found} of {}", range(0).len());
    }
}
