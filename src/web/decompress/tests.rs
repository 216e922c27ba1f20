//! Tests of decompression.

use std::{io::Write, sync::atomic::Ordering};

use axum::http::{HeaderMap, header};
use flate2::{Compression, write::GzEncoder};

use super::{BodyBudget, BodyDecoder, Bytes, DecodeError, Encoding};

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn zstd(data: &[u8]) -> Vec<u8> {
    zstd::encode_all(data, 19).unwrap()
}

fn decode(
    encoding: Encoding,
    data: &[u8],
    chunk: usize,
    limit: usize,
    budget: &BodyBudget,
) -> Result<Bytes, DecodeError> {
    let mut decoder = BodyDecoder::new(encoding, 0, limit, budget.clone())?;
    for chunk in data.chunks(chunk) {
        decoder.write(chunk)?;
    }
    decoder.finish()
}

#[test]
fn body_is_decoded_for_any_chunk_size() {
    let text: Vec<u8> = (0..100_000_u32).flat_map(u32::to_be_bytes).collect();
    let budget = BodyBudget::new(text.len());
    for chunk in [1, 7, 4096, usize::MAX] {
        for (encoding, encoded) in
            [(Encoding::Identity, text.clone()), (Encoding::Gzip, gzip(&text)), (Encoding::Zstd, zstd(&text))]
        {
            let decoded = decode(encoding, &encoded, chunk, text.len(), &budget).unwrap();
            assert_eq!(decoded, text, "{encoding:?} {chunk}");
            assert_eq!(budget.used.load(Ordering::Relaxed), text.len());
            drop(decoded);
            assert_eq!(budget.used.load(Ordering::Relaxed), 0, "the budget is released");
        }
    }
    // Consecutive members and frames are one body (RFC 1952 section 2.2, RFC 8878 section 3).
    let twice = |encoded: Vec<u8>| [encoded.clone(), encoded].concat();
    for (encoding, encoded) in [(Encoding::Gzip, gzip(b"ab")), (Encoding::Zstd, zstd(b"ab"))] {
        assert_eq!(decode(encoding, &twice(encoded), 5, 4, &BodyBudget::default()).unwrap(), "abab");
    }
}

#[test]
fn decompression_bomb_stops_at_limit() {
    let zeros = vec![0; 64 << 20];
    for (encoding, bomb) in [(Encoding::Gzip, gzip(&zeros)), (Encoding::Zstd, zstd(&zeros))] {
        let budget = BodyBudget::default();
        let mut decoder = BodyDecoder::new(encoding, bomb.len(), 1 << 20, budget.clone()).unwrap();
        assert!(matches!(decoder.write(&bomb), Err(DecodeError::TooLarge)));
        assert!(budget.used.load(Ordering::Relaxed) <= 1 << 20);
    }
    assert!(decode(Encoding::Identity, &zeros[..4], 1, 4, &BodyBudget::default()).is_ok());
    assert!(matches!(
        decode(Encoding::Identity, &zeros[..5], 1, 4, &BodyBudget::default()),
        Err(DecodeError::TooLarge)
    ));
    let budget = BodyBudget::new(6);
    let first = decode(Encoding::Gzip, &gzip(b"abcd"), 9, 4, &budget).unwrap();
    assert!(matches!(decode(Encoding::Zstd, &zstd(b"abcd"), 9, 4, &budget), Err(DecodeError::OverBudget)));
    drop(first);
    assert!(decode(Encoding::Zstd, &zstd(b"abcd"), 9, 4, &budget).is_ok());
}

#[test]
fn unauthenticated_bodies_leave_budget_for_others() {
    let budget = BodyBudget::new(8);
    let read = |budget: &BodyBudget, body: &[u8]| decode(Encoding::Identity, body, 9, 4, budget);
    let unauthenticated = budget.for_unauthenticated(3);
    let first = read(&unauthenticated, b"abcd").unwrap();
    assert!(matches!(read(&budget.for_unauthenticated(3), b"x"), Err(DecodeError::OverBudget)));
    assert!(read(&budget.for_unauthenticated(5), b"x").is_ok(), "one body always has room");
    let authenticated = read(&budget, b"abcd").unwrap();
    assert!(matches!(read(&budget, b"x"), Err(DecodeError::OverBudget)));
    drop((first, authenticated));
    let counts = [&budget.used, &budget.unauthenticated].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counts, [0, 0]);
}

#[test]
fn limit_counts_encoded_bytes_without_output() {
    // A skippable frame (RFC 8878 section 3.1.2) and an empty member (RFC 1952 section 2.3).
    let skippable = [&[0x50, 0x2A, 0x4D, 0x18, 100, 0, 0, 0][..], &[0; 100]].concat();
    for (encoding, empty) in [(Encoding::Zstd, skippable), (Encoding::Gzip, gzip(b""))] {
        let message = if encoding == Encoding::Gzip { gzip(b"abcd") } else { zstd(b"abcd") };
        let encoded = |count: usize| [empty.repeat(count), message.clone()].concat();
        assert_eq!(decode(encoding, &encoded(3), 7, 1000, &BodyBudget::default()).unwrap(), "abcd");
        let result = decode(encoding, &encoded(200), 7, 1000, &BodyBudget::default());
        assert!(matches!(result, Err(DecodeError::TooLarge)), "{encoding:?}: {result:?}");
    }
}

#[test]
fn truncated_and_corrupt_bodies_are_errors() {
    // A frame header that claims a window of 1 GiB (RFC 8878 section 3.1.1.1.2).
    let wide = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 0xA0, 0x01, 0x00, 0x00];
    for (encoding, encoded) in [(Encoding::Gzip, gzip(b"abcd")), (Encoding::Zstd, zstd(b"abcd"))] {
        let truncated = &encoded[..encoded.len() - 1];
        let trailed = [&encoded[..], b"x"].concat();
        for encoded in [truncated, &trailed, &encoded[1..], b"{}", b"", &wide] {
            let result = decode(encoding, encoded, 3, 100, &BodyBudget::default());
            assert!(matches!(result, Err(DecodeError::Corrupt(_))), "{encoding:?} {encoded:?}: {result:?}");
        }
    }
}

#[test]
fn encodings_are_parsed_and_cannot_be_chained() {
    let encoding = |names: &[&str]| {
        let mut headers = HeaderMap::new();
        for name in names {
            headers.append(header::CONTENT_ENCODING, name.parse().unwrap());
        }
        Encoding::of(&headers)
    };
    assert_eq!(encoding(&[]), Some(Encoding::Identity));
    assert_eq!(encoding(&["identity"]), Some(Encoding::Identity));
    assert_eq!([encoding(&["GZIP"]), encoding(&["x-gzip"])], [Some(Encoding::Gzip); 2]);
    assert_eq!(encoding(&["zstd"]), Some(Encoding::Zstd));
    for unknown in [&["br"][..], &["gzip, gzip"], &["gzip", "zstd"], &["deflate"]] {
        assert_eq!(encoding(unknown), None, "{unknown:?}");
    }
}
