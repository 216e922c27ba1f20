//! The table of documents: answers with which a partner could fill the memory of the gateway or keep its threads busy.
//!
//! The next document is one more row here, whichever partner sends it.

use super::{
    datasets::{filled, numbered},
    harvests::{
        Outcome::{self, Cut, Read, Refused},
        Protocol, atom, list, record, snapshot,
    },
    many,
};

const MEBIBYTE: usize = 1 << 20;

/// The partner that sends a document, and what the gateway must do with it.
pub(super) enum Partner {
    /// A repository, a feed or another gateway, which is harvested.
    Harvested(Protocol, Outcome),
    /// A platform of datasets, which answers with the document at this path. The attempt ends with this status.
    Platform(&'static str, &'static str),
}

/// A row of the table.
pub(super) struct Document {
    pub(super) name: &'static str,
    pub(super) partner: Partner,
    /// Makes the document.
    pub(super) make: fn() -> Vec<u8>,
}

const fn repository(name: &'static str, outcome: Outcome, make: fn() -> Vec<u8>) -> Document {
    Document { name, partner: Partner::Harvested(Protocol::OaiPmh, outcome), make }
}

const fn feed(name: &'static str, outcome: Outcome, make: fn() -> Vec<u8>) -> Document {
    Document { name, partner: Partner::Harvested(Protocol::Feed, outcome), make }
}

const fn gateway(name: &'static str, outcome: Outcome, make: fn() -> Vec<u8>) -> Document {
    Document { name, partner: Partner::Harvested(Protocol::Gateway, outcome), make }
}

const fn platform(path: &'static str, status: &'static str, make: fn() -> Vec<u8>) -> Document {
    Document { name: path, partner: Partner::Platform(path, status), make }
}

pub(super) const DOCUMENTS: &[Document] = &[
    repository("records without content and a long namespace", Refused("bytes with the namespaces"), || {
        list(&format!(" xmlns:a='{}'", "u".repeat(8000)), &"<record/>".repeat(many(100_000).min(100_000)))
    }),
    repository("records without content", Refused("more than 100000 records"), || {
        list("", &"<record/>".repeat(many(800_000)))
    }),
    repository("broken records", Refused("more than 100000 records"), || {
        list("", &"<record><x></record>".repeat(many(200_000)))
    }),
    repository("records of a usual size", Read(1500), || {
        let metadata = format!("<m>{}</m>", "Text about a record. ".repeat(200));
        list("", &(0..many(1500)).map(|number| record(number, &metadata)).collect::<String>())
    }),
    repository("small records", Read(4000), || {
        list("", &(0..many(4000)).map(|number| record(number, "<m/>")).collect::<String>())
    }),
    repository("attributes", Read(1), || {
        let attributes: String = (0..many(100_000)).map(|number| format!(" a{number}='x'")).collect();
        list("", &record(1, &format!("<m{attributes}/>")))
    }),
    repository("namespaces", Read(0), || {
        let namespaces: String = (0..many(100_000)).map(|number| format!(" xmlns:a{number}='u'")).collect();
        list("", &record(1, &format!("<m{namespaces}/>")))
    }),
    repository("deep elements", Read(1), || list("", &record(1, &"<m>".repeat(many(300_000))))),
    repository("long names", Read(1), || list("", &record(1, &format!("<{}/>", "n".repeat(many(4_000_000)))))),
    repository("sets", Read(1), || {
        list("", &record(1, "<m/>").replace("</header>", &"<setSpec/>".repeat(many(400_000))))
    }),
    repository("ampersands", Refused("longer than"), || list("", &"&".repeat(many(4_000_000)))),
    repository("a long token", Refused("the resumption token has more than 4096 bytes"), || {
        list("", &format!("{}<resumptionToken>{}</resumptionToken>", record(1, "<m/>"), "t".repeat(many(2_000_000))))
    }),
    feed("entries without content and a long namespace", Refused("too large with the attributes"), || {
        atom(&format!(" xmlns:a='{}'", "u".repeat(8000)), &"<entry/>".repeat(many(100_000)))
    }),
    feed("entries of an id alone", Cut("more than 20000 entries"), || {
        let entry = |number: usize| format!("<entry><id>urn:x:{number}</id></entry>");
        atom("", &(0..many(40_000)).map(entry).collect::<String>())
    }),
    feed("deletions", Cut("more than 20000 entries"), || {
        let entry = |number: usize| format!("<at:deleted-entry ref='urn:x:{number}' when='2026-01-01T00:00:00Z'/>");
        let deletions: String = (0..many(40_000)).map(entry).collect();
        atom(" xmlns:at='http://purl.org/atompub/tombstones/1.0'", &deletions)
    }),
    feed("links of an entry", Read(0), || {
        let links: String =
            (0..many(20_000)).map(|number| format!("<link rel='enclosure' href='/{number}'/>")).collect();
        atom("", &format!("<entry><id>urn:x:1</id>{links}</entry>"))
    }),
    feed("links of a feed", Read(1), || {
        let links = format!("<link rel='next' href='/{}'/>", "x".repeat(100)).repeat(many(40_000));
        atom("", &format!("{links}<entry><id>urn:x:1</id></entry>"))
    }),
    feed("attributes of a feed", Refused("is not a feed"), || {
        atom(&format!(" xmlns:a='{}'", "u".repeat(many(4_000_000))), "<entry><id>urn:x:1</id></entry>")
    }),
    gateway("objects without content", Refused("more than 10000 elements"), || {
        snapshot("{},".repeat(many(2_000_000)).trim_end_matches(','))
    }),
    gateway("deep JSON", Refused("is no page"), || snapshot(&"[".repeat(many(4_000_000)))),
    gateway("wide JSON", Read(1), || {
        snapshot(&format!("{{{}}}", (0..many(100_000)).map(|n| format!("\"a{n}\":0")).collect::<Vec<_>>().join(",")))
    }),
    // Documents of platforms have the sizes of the limits in every run.
    platform("/links", "too-many-files", || {
        numbered("<html>", 139_810, |n| format!("<link rel=item href=\"{n:x}\">\n"), "")
    }),
    platform("/unquoted", "too-many-files", || {
        numbered("<html>", 600_000, |n| format!("<link rel=item href={n:x}>\n"), "")
    }),
    platform("/no-text", "no-platform-match", || vec![0xFF; 16 * MEBIBYTE - 1]),
    platform("/too-large", "body-too-large", || vec![0xFF; 128 * MEBIBYTE]),
    platform("/paragraphs", "no-platform-match", || {
        filled("<html>", "<p>A <a href=b>link</a> &amp; text</p>\n", 16 * MEBIBYTE, "")
    }),
    platform("/attributes", "error-platform-download", || {
        numbered("<link ", 1_000_000, |n| format!("a{n}=b "), "rel=item href=x>")
    }),
    platform("/long-link", "no-platform-match", || filled("<link rel=item href=\"", "x", 16 * MEBIBYTE, "\">")),
    platform("/long-links", "too-many-files", || {
        numbered("", 4000, |n| format!("<link rel=item href=\"{n}{}\">", "ü".repeat(1900)), "")
    }),
    platform("/anchors", "platform-http-error", || {
        numbered("", 400_000, |n| format!("<a href=\"{n}/manifest-md5.txt\">x</a>"), "")
    }),
    platform("/entities/ro-crate-metadata.json", "empty-manifest", || {
        filled("{\"@graph\":[{\"a\":0}", ",{\"a\":0}", 8 * MEBIBYTE, "]}")
    }),
    platform("/many/ro-crate-metadata.json", "platform-bad-answer", || {
        filled("{\"@graph\":[{\"a\":0}", ",{\"a\":0}", 60 * MEBIBYTE, "]}")
    }),
    platform("/files/ro-crate-metadata.json", "too-many-files", || {
        numbered("{\"@graph\":[0", 120_000, |n| format!(",{{\"@id\":\"{n}\",\"@type\":[\"File\",\"File\"]}}"), "]}")
    }),
    platform("/deep/ro-crate-metadata.json", "platform-bad-answer", || filled("{\"@graph\":", "[", 8 * MEBIBYTE, "")),
    platform("/wide/ro-crate-metadata.json", "empty-manifest", || {
        filled("{\"@graph\":[{\"@type\":[0", ",0", 8 * MEBIBYTE, "]}]}")
    }),
    platform("/name/ro-crate-metadata.json", "empty-manifest", || {
        filled("{\"@graph\":[{\"@id\":\"", "x", 8 * MEBIBYTE, "\"}]}")
    }),
    platform("/key/ro-crate-metadata.json", "platform-bad-answer", || filled("{\"", "x", 8 * MEBIBYTE, "\":0}")),
    platform("/bag/manifest-sha256.txt", "too-many-files", || {
        let digest = "a".repeat(64);
        numbered("", 90_000, |n| format!("{digest}  data/{n}\n"), "")
    }),
    platform("/short/manifest-sha256.txt", "platform-bad-answer", || filled("", "a  b\n", 8 * MEBIBYTE, "")),
];
