//! Tests of the division of feeds.

use super::{FeedDocument, MAX_PARTS};

/// Limit on all entries of a document.
const ALL_BYTES: usize = 8 << 20;

fn parse(text: &str) -> FeedDocument<'_> {
    FeedDocument::parse(text, ALL_BYTES).unwrap()
}

fn parts(text: &str) -> (Vec<String>, Option<String>) {
    let document = parse(text);
    let parts = document.parts.iter().map(|part| document.xml(part).to_owned()).collect();
    (parts, document.broken.clone())
}

#[test]
fn entries_of_each_vocabulary_are_found() {
    for (text, expected) in [
        ("\n<?xml version='1.0'?><feed xmlns='a'><id>1</id><entry><entry/></entry><entry/></feed>", 2),
        ("<rss version='0.91'><channel><title>t</title><item><item/></item><item/></channel></rss>", 2),
        ("<rss><channel/><item/></rss>", 1),
        ("<rdf:RDF xmlns:rdf='r'><channel><items/></channel><item/><item/></rdf:RDF>", 2),
    ] {
        let (parts, broken) = parts(text);
        assert_eq!((parts.len(), broken), (expected, None), "{text}: {parts:?}");
    }
}

#[test]
fn interval_of_updates_is_read() {
    for (elements, minutes) in [
        ("<ttl> 90 </ttl>", Some(90)),
        ("<ttl>0</ttl>", None),
        ("<sy:updatePeriod>daily</sy:updatePeriod><sy:updateFrequency>4</sy:updateFrequency>", Some(360)),
        ("<ttl>30</ttl><sy:updatePeriod>hourly</sy:updatePeriod>", Some(60)),
        ("<sy:updatePeriod>often</sy:updatePeriod><item><ttl>5</ttl></item>", None),
    ] {
        let text = format!("<rss xmlns:sy='s'><channel>{elements}</channel></rss>");
        let interval = parse(&text).interval;
        assert_eq!(interval.map(|interval| interval.as_secs() / 60), minutes, "{elements}");
    }
}

#[test]
fn links_and_marks_of_archives_are_read() {
    let history = "xmlns:fh='http://purl.org/syndication/history/1.0' xmlns:a='http://www.w3.org/2005/Atom'";
    let links =
        "<a:link rel='prev-archive' href='1?a=b&amp;c'/><a:link rel='next' href='2'/><a:link rel='next' href='3'/>";
    for (text, is_complete, is_archive) in [
        (format!("<feed xmlns='http://www.w3.org/2005/Atom' {history}><fh:archive/>{links}</feed>"), false, true),
        (
            format!("<rss {history}><channel>{links}<fh:complete/><item><fh:archive/></item></channel></rss>"),
            true,
            false,
        ),
        (format!("<rss {history}><channel>{links}<complete/></channel></rss>"), false, false),
    ] {
        let document = parse(&text);
        assert_eq!((document.is_complete, document.is_archive), (is_complete, is_archive), "{text}");
        let links = document.links;
        assert_eq!((links.previous_archive.as_deref(), links.next.as_deref()), (Some("1?a=b&c"), Some("2")), "{text}");
    }
}

#[test]
fn entry_alone_keeps_the_context() {
    let document = parse("<rss xmlns:a='x\"y'><channel xmlns:b='b' xml:base='c'><item/></channel></rss>");
    assert_eq!(
        document.alone(&document.parts[0]),
        "<rss version=\"2.0\" xmlns:a=\"x&quot;y\" xmlns:b=\"b\" xml:base=\"c\"><channel><item/></channel></rss>"
    );
}

#[test]
fn complete_entries_of_a_truncated_feed_are_kept() {
    let whole = "<rss><channel><item><a>1</a></item><item>2</item></channel></rss>";
    assert_eq!(parts(whole), (vec!["<item><a>1</a></item>".to_owned(), "<item>2</item>".to_owned()], None));
    for length in "<rss>".len()..whole.len() {
        let (parts, broken) = parts(&whole[..length]);
        assert!(broken.is_some(), "{}", &whole[..length]);
        assert_eq!(parts.len(), whole[..length].matches("</item>").count(), "{}", &whole[..length]);
    }
}

#[test]
fn foreign_documents_are_refused_with_their_beginning() {
    for text in ["", "<!DOCTYPE html><html/>", "text", "{}"] {
        let error = FeedDocument::parse(text, ALL_BYTES).unwrap_err().to_string();
        assert_eq!(error, format!("the response is not a feed; it begins with {text:?}"));
    }
}

#[test]
fn deep_nesting_is_refused() {
    let text = format!("<feed><entry/>{}", "<a>".repeat(100_000));
    let (parts, broken) = parts(&text);
    assert_eq!((parts.len(), broken.unwrap().as_str()), (1, "the feed has more than 512 nested elements"));
}

#[test]
fn entries_have_a_number_and_a_size() {
    let many = format!("<feed>{}</feed>", "<entry/>".repeat(MAX_PARTS + 1));
    let (found, broken) = parts(&many);
    assert_eq!((found.len(), broken.unwrap().contains("more than 20000 entries")), (MAX_PARTS, true));
    let large = format!("<feed xmlns='{}'>{}</feed>", "u".repeat(8000), "<entry/>".repeat(MAX_PARTS));
    let (found, broken) = parts(&large);
    assert!(found.len() < ALL_BYTES / 8000 && broken.unwrap().contains("too large with the attributes"), "{found:?}");
    let declarations: String = (0..200).map(|n| format!(" xmlns:a{n}='{}'", "u".repeat(10_000))).collect();
    assert!(FeedDocument::parse(&format!("<feed{declarations}><entry/></feed>"), ALL_BYTES).is_err());
}
