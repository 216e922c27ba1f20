//! Parsers of foreign documents. None panics, and each takes a bounded number of bytes for each byte of its input.

use tidings::{
    filesets::readers,
    format::{
        Limits, fedora_objects, fedora_relations, fedora_rest, ldp,
        stated_dates::{DatePredicates, DateStatements},
        web_links,
    },
    harvest::{download, feed, folder, gateway, oai_pmh},
    kafka::Batches,
    model::Uri,
};

use crate::measure::{MemoryLimit, limited};

/// A parser of foreign documents.
pub(crate) struct Parser {
    /// Name, which is the one of its fuzz target.
    pub(crate) name: &'static str,
    /// Reads a document and checks the memory that this takes.
    pub(crate) check: fn(&[u8]),
}

/// All parsers of foreign documents except the dialects. A new parser is one more row, and one more target in
/// `fuzz/fuzz_targets`.
pub(crate) static PARSERS: &[Parser] = &[
    Parser { name: "archives", check: check_archive },
    Parser { name: "bags", check: check_bag },
    Parser { name: "feed_documents", check: |body| check(body, PAGE, feed::count_entries) },
    Parser { name: "gateway_pages", check: |body| check(body, PAGE, gateway::count_elements) },
    Parser { name: "kafka_batches", check: check_kafka_batches },
    Parser { name: "landing_pages", check: check_landing_page },
    Parser { name: "oai_pmh", check: |body| check(body, PAGE, oai_pmh::count_records) },
    Parser { name: "platform_documents", check: |body| check(body, JSON, readers::count_documents) },
    Parser { name: "repository", check: check_repository },
    Parser { name: "robots", check: |body| check(body, ROBOTS, |body| download::robots_allow(body, "/a/b.pdf?c=%20")) },
];

/// Memory of the text of a page and of its records.
const PAGE: MemoryLimit = MemoryLimit { per_byte: 64, fixed: 1 << 20 };

/// Memory of what is used of a JSON document.
const JSON: MemoryLimit = MemoryLimit { per_byte: 64, fixed: 1 << 20 };

/// Memory of the directory of an archive.
const ARCHIVE: MemoryLimit = MemoryLimit { per_byte: 32, fixed: 512 << 10 };

/// Memory of a piece of records, with its decompressor, for a batch of any size.
const BATCHES: MemoryLimit = MemoryLimit { per_byte: 64, fixed: 36 << 20 };

/// Memory of the files of a bag. Each has its place, with the one of the bag.
const BAG: MemoryLimit = MemoryLimit { per_byte: 64, fixed: 1 << 20 };

/// Memory of the links of a page: 8 MiB of targets, which are kept twice.
const LINKS: MemoryLimit = MemoryLimit { per_byte: 32, fixed: 1 << 20 };

/// Memory of the rules of a host.
const ROBOTS: MemoryLimit = MemoryLimit { per_byte: 32, fixed: 64 << 10 };

/// Memory of the response to a lookup.
const RESPONSE: MemoryLimit = MemoryLimit { per_byte: 64, fixed: 256 << 10 };

fn check<T>(body: &[u8], limit: MemoryLimit, read: impl FnOnce(&[u8]) -> T) {
    limited(body.len(), limit, || read(body));
}

/// Reads a zip or tar archive.
fn check_archive(body: &[u8]) {
    let path = std::env::temp_dir().join(format!("archive-{}", std::process::id()));
    if std::fs::write(&path, body).is_ok() {
        let _ = limited(body.len(), ARCHIVE, || folder::count_members(&path, 1 << 20));
    }
}

/// Reads the files of a bag: manifest, places of other files, and facts.
fn check_bag(body: &[u8]) {
    check(body, BAG, readers::count_bag_files);
}

/// Reads a landing page, and a `Link` header.
fn check_landing_page(body: &[u8]) {
    check(body, LINKS, readers::page_has_links);
    check(body, LINKS, readers::header_has_links);
}

/// Reads record batches of Kafka. The memory of one piece is measured, because pieces are written one after the other.
fn check_kafka_batches(data: &[u8]) {
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

/// Reads the response to a lookup, of each kind. A parsed response respects the limits, and an error is short.
fn check_repository(body: &[u8]) {
    let limits = Limits::default();
    let check = |read: &dyn Fn() -> Result<usize, String>| match limited(body.len(), RESPONSE, read) {
        Ok(count) => assert!(count <= limits.items, "{count} items"),
        Err(reason) => assert!(reason.len() < 4096, "{} bytes are too long", reason.len()),
    };
    let text = |error: tidings::format::Rejection| error.to_string();
    check(&|| fedora_rest::datastream_profile(body, limits).map(|_| 1).map_err(text));
    check(&|| fedora_rest::datastream_history(body, limits).map(|all| all.len()).map_err(text));
    check(&|| fedora_rest::datastreams(body, limits).map(|all| all.len()).map_err(text));
    let from = Uri::parse("http://purl.org/dc/terms/available").into_iter().collect();
    let predicates = DatePredicates { from, until: Vec::new() };
    let places = |dates: &DateStatements| dates.places().len();
    check(&|| fedora_relations::relations(body, &predicates, limits).map(|read| places(&read.dates)).map_err(text));
    // Only the size of the response limits a page of objects.
    check(&|| fedora_objects::object_profile(body, limits).map(|_| 1).map_err(text));
    check(&|| fedora_objects::object_page(body, limits).map(|_| 1).map_err(text));
    check(&|| {
        let described = ldp::parse_description(body, "http://h/rest/a", &predicates, limits);
        described.map(|described| described.types.len().max(places(&described.dates))).map_err(text)
    });
    if let Ok(header) = std::str::from_utf8(body) {
        for target in limited(body.len(), RESPONSE, || web_links::link_targets([header], "type")) {
            assert!(header.contains(&target));
        }
    }
}
