//! Documents whose parts are as small, as many, as deep or as wide as possible, so that parsers make the most of each byte.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};

/// Size of most documents, in bytes.
const SIZE: usize = 256 << 10;

fn repeated(start: &str, part: &str, end: &str) -> Vec<u8> {
    [start, &part.repeat(SIZE / part.len()), end].concat().into_bytes()
}

/// Repeats a part with its number in place of `#`, so that no two are equal.
fn numbered(start: &str, part: &str, end: &str) -> Vec<u8> {
    let parts: String = (0..SIZE / part.len()).map(|number| part.replace('#', &format!("{number:x}"))).collect();
    [start, &parts, end].concat().into_bytes()
}

/// Returns all documents. Each parser reads each of them.
pub(crate) fn all() -> Vec<Vec<u8>> {
    let mut all = [markup(), json(), texts(), pages()].concat();
    all.extend([1, 4].map(inflated_batch));
    all
}

/// Lists of OAI-PMH and feeds.
fn markup() -> Vec<Vec<u8>> {
    let oai = "<OAI-PMH xmlns=\"http://www.openarchives.org/OAI/2.0/\"><ListRecords>";
    let wide = format!("<OAI-PMH xmlns:a=\"{}\"><ListRecords>", "u".repeat(8000));
    let atom = "<feed xmlns=\"http://www.w3.org/2005/Atom\">";
    let profile = "<objectDatastreams>";
    vec![
        repeated(oai, "<record/>", "</ListRecords></OAI-PMH>"),
        repeated(&wide, "<record/>", "</ListRecords></OAI-PMH>"),
        repeated(oai, "<record><header><identifier>a</identifier></header></record>", "</ListRecords></OAI-PMH>"),
        repeated(atom, "<entry/>", "</feed>"),
        repeated(atom, "<entry><id>a</id></entry>", "</feed>"),
        numbered(atom, "<entry><id>#</id></entry>", "</feed>"),
        repeated("<rss><channel>", "<item/>", "</channel></rss>"),
        repeated("<rss><channel>", "<item><link>a</link></item>", "</channel></rss>"),
        numbered(profile, "<datastream dsid='#'/>", "</objectDatastreams>"),
        repeated("", "<a>", ""),
        numbered("<feed", " a#=''", "/>"),
        repeated("", "&amp;", ""),
    ]
}

/// JSON of platforms, archives, gateways and repositories.
fn json() -> Vec<Vec<u8>> {
    let member = |name: &str, part: &str| repeated(&format!("{{\"{name}\":["), part, "0]}");
    let mut all: Vec<_> = ["files", "data", "errors", "authors", "@graph", "objects", "changes", "creators", "items"]
        .into_iter()
        .flat_map(|name| ["{},", "\"\",", "0,", "[],"].map(|part| member(name, part)))
        .collect();
    let page = "{\"journal\":\"00000000-0000-0000-0000-000000000001\",\"head\":1,\"seeds\":0,\"next\":1,";
    let description = "[{\"@id\":\"http://h/rest/a\",\"@type\":[";
    all.extend([
        repeated("[", "0,", "0]"),
        repeated("[", "[],", "0]"),
        repeated("[", "{},", "{}]"),
        repeated("[[\"a\"],", "[\"\",\"\"],", "[]]"),
        repeated("[[", "\"\",", "\"\"]]"),
        repeated("", "[", ""),
        repeated("", "{\"a\":", ""),
        repeated("{", "\"a\":0,", "\"b\":0}"),
        numbered("{", "\"#\":\"\",", "\"b\":0}"),
        numbered("{\"files\":{\"entries\":{", "\"#\":{},", "\"b\":{}}}}"),
        numbered("{\"folder_structure\":{", "\"#\":\"\",", "\"b\":\"\"}}"),
        repeated("{\"title\":\"", "\\u0061", "\"}"),
        repeated("{\"message\":\"", "a", "\"}"),
        repeated(&format!("{page}\"objects\":["), "0,", "0]}"),
        repeated(&format!("{page}\"changes\":["), "{},", "{}]}"),
        numbered("{\"@graph\":[", "{\"@id\":\"#\",\"@type\":\"File\"},", "{}]}"),
        repeated("{\"@graph\":[{\"@id\":\"a\",\"@type\":[", "\"\",", "\"File\"]}]}"),
        repeated(description, "\"a:b\",", "\"a:b\"]}]"),
        repeated("[", "{\"@id\":\"http://h/rest/a\"},", "{}]"),
    ]);
    all
}

/// Manifests of bags, rules for robots, and `Link` headers.
fn texts() -> Vec<Vec<u8>> {
    let digest = "0".repeat(64);
    vec![
        numbered("", &format!("{digest} #\n"), ""),
        numbered("", "http://h/# 1 #\n", ""),
        repeated("", "a: b\n", ""),
        repeated("User-agent: *\n", "allow:/\n", ""),
        numbered("User-agent: tidings\nUser-agent: *\n", "allow:/#\n", ""),
        numbered("User-agent: *\n", "disallow: /*#*%20*$\n", ""),
        repeated("", "<a>;rel=type,", ""),
        numbered("", "<#>;rel=item,", ""),
        numbered("", "<#>;rel=\"item describedby cite-as\",", ""),
        repeated("", "<", ""),
        repeated("", "\"", ""),
        repeated("", "\n", ""),
        repeated("", "\u{e9}", ""),
        vec![0xff; SIZE],
        vec![0; SIZE],
        Vec::new(),
    ]
}

/// Landing pages.
fn pages() -> Vec<Vec<u8>> {
    let target = "t".repeat(4000);
    vec![
        numbered("<html>", "<link rel=item href=#>", ""),
        numbered("<html>", &format!("<link rel=\"item cite-as describedby\" href=#{target}>"), ""),
        numbered("<html>", "<a href=manifest-#>", ""),
        numbered("<html><link ", "#=b ", "rel=item href=a>"),
        repeated("<!--", "-", ""),
        repeated("<script>", "<link rel=item href=a>", ""),
    ]
}

/// Returns a Kafka batch that has 20 MiB of zeros, which are records without content, in a few kB.
fn inflated_batch(codec: i16) -> Vec<u8> {
    let zeros = vec![0; 20 << 20];
    let records = match codec {
        1 => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&zeros).unwrap();
            encoder.finish().unwrap()
        }
        _ => zstd::encode_all(&zeros[..], 1).unwrap(),
    };
    let mut checked = codec.to_be_bytes().to_vec();
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
    batch
}
