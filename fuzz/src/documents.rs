//! Parsers of foreign documents. None panics, and each takes a bounded number of bytes for each byte of its input.

use tidings::{
    harvest::{feed, folder, oai_pmh},
    kafka::Batches,
};

use crate::memory::{MemoryLimit, limited};

/// Memory of the text of a page and of its records.
const PAGE: MemoryLimit = MemoryLimit { per_byte: 64, fixed: 1 << 20 };

/// Memory of the directory of an archive.
const ARCHIVE: MemoryLimit = MemoryLimit { per_byte: 32, fixed: 512 << 10 };

/// Memory of a piece of records, with its decompressor, for a batch of any size.
const BATCHES: MemoryLimit = MemoryLimit { per_byte: 64, fixed: 36 << 20 };

/// Reads a response of a repository with OAI-PMH.
pub fn check_oai_pmh(body: &[u8]) {
    limited(body.len(), PAGE, || oai_pmh::count_records(body));
}

/// Reads an RSS or Atom feed.
pub fn check_feed(body: &[u8]) {
    limited(body.len(), PAGE, || feed::count_entries(body));
}

/// Reads a zip or tar archive.
pub fn check_archive(body: &[u8]) {
    let path = std::env::temp_dir().join(format!("archive-{}", std::process::id()));
    if std::fs::write(&path, body).is_ok() {
        let _ = limited(body.len(), ARCHIVE, || folder::count_members(&path, 1 << 20));
    }
}

/// Reads record batches of Kafka. The memory of one piece is measured, because pieces are written one after the other.
pub fn check_kafka_batches(data: &[u8]) {
    let mut batches = Batches::new(data.to_vec().into(), 0, i64::MAX, Vec::new(), 1 << 20, None);
    let mut next = 0;
    loop {
        let piece = limited(data.len(), BATCHES, || batches.next_piece());
        assert!(piece.entries.len() <= 501, "a piece has {} entries", piece.entries.len());
        assert!(piece.next >= next, "the offset goes back from {next} to {}", piece.next);
        next = piece.next;
        if piece.is_last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::{check_archive, check_feed, check_kafka_batches, check_oai_pmh};
    use crate::check_dialects;

    /// Documents whose parts are as small as possible, so that they make the most of each byte.
    fn dense() -> Vec<Vec<u8>> {
        let repeat = |start: &str, part: &str, end: &str| [start, &part.repeat((1 << 20) / part.len()), end].concat();
        let oai = "<OAI-PMH xmlns=\"http://www.openarchives.org/OAI/2.0/\"><ListRecords>";
        let wide = format!("<OAI-PMH xmlns:a=\"{}\"><ListRecords>", "u".repeat(8000));
        let deep = "<a>".repeat(1 << 18);
        let attributes: String = (0..50_000).map(|number| format!(" a{number}=\"\"")).collect();
        vec![
            repeat(oai, "<record/>", "</ListRecords></OAI-PMH>").into_bytes(),
            repeat(&wide, "<record/>", "</ListRecords></OAI-PMH>").into_bytes(),
            repeat(oai, "<record><header><identifier>a</identifier></header></record>", "</ListRecords></OAI-PMH>")
                .into_bytes(),
            repeat("<feed xmlns=\"http://www.w3.org/2005/Atom\">", "<entry/>", "</feed>").into_bytes(),
            repeat("<feed xmlns=\"http://www.w3.org/2005/Atom\">", "<entry><id>a</id></entry>", "</feed>").into_bytes(),
            repeat("<rss><channel>", "<item/>", "</channel></rss>").into_bytes(),
            repeat("<rss><channel>", "<item><link>a</link></item>", "</channel></rss>").into_bytes(),
            deep.into_bytes(),
            format!("<feed{attributes}/>").into_bytes(),
            repeat("[", "0,", "0]").into_bytes(),
            repeat("{\"items\":[", "{},", "{}]}").into_bytes(),
            repeat("", "[", "").into_bytes(),
            repeat("{", "\"a\":0,", "\"b\":0}").into_bytes(),
            repeat("", "&amp;", "").into_bytes(),
            vec![0xff; 1 << 20],
            Vec::new(),
        ]
    }

    #[test]
    fn dense_documents_take_bounded_memory() {
        for document in dense() {
            println!("{:?}", String::from_utf8_lossy(&document[..document.len().min(60)]));
            check_oai_pmh(&document);
            check_feed(&document);
            check_archive(&document);
            check_kafka_batches(&document);
            check_dialects(&document);
        }
    }

    #[test]
    fn inflated_batches_take_bounded_memory() {
        // A batch of zeros, which are records of no bytes.
        for codec in [1, 4] {
            let zeros = vec![0; 20 << 20];
            let records = match codec {
                1 => {
                    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                    encoder.write_all(&zeros).unwrap();
                    encoder.finish().unwrap()
                }
                _ => zstd::encode_all(&zeros[..], 1).unwrap(),
            };
            let mut checked = i16::to_be_bytes(codec).to_vec();
            checked.extend((i32::MAX - 1).to_be_bytes());
            checked.extend([0; 16]);
            checked.extend([0xff; 14]);
            checked.extend(i32::MAX.to_be_bytes());
            checked.extend(records);
            let mut batch = 0_i64.to_be_bytes().to_vec();
            batch.extend(i32::try_from(checked.len() + 9).unwrap().to_be_bytes());
            batch.extend([0, 0, 0, 0, 2]);
            batch.extend(crc32c::crc32c(&checked).to_be_bytes());
            batch.extend(checked);
            check_kafka_batches(&batch);
        }
    }

    #[test]
    fn fixtures_take_bounded_memory() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
        let mut folders = vec![root];
        let mut count = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let document = std::fs::read(&path).unwrap();
                count += 1;
                check_oai_pmh(&document);
                check_feed(&document);
                check_archive(&document);
                check_kafka_batches(&document);
                check_dialects(&document);
            }
        }
        assert!(count > 100, "{count} fixtures");
    }
}
