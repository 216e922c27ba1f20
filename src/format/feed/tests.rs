//! Tests of the dialect `feed`.

use super::{DIALECT, ENTRY_KEY, ENTRY_SHARE, FEED_URL, Limits, RESPONSE_DATE, TOMBSTONES, entry_uri, identify};
use crate::{
    format::{Headers, Message, ParsedMessage},
    model::{Draft, DraftChange, DraftItems, DraftTime},
};

const FEED: &str = "http://h.example/feed.xml";

fn read_with(document: &str, more: &[(&str, &str)]) -> Result<Draft, String> {
    let dialect = (DIALECT.build)(serde_json::Value::Null, Limits::default()).unwrap();
    let headers: Headers = [(FEED_URL, FEED)].iter().chain(more).copied().collect();
    match dialect.read(&Message { content_type: None, headers: &headers, body: document.as_bytes() }) {
        Ok(ParsedMessage::Drafts(drafts)) => Ok(drafts[0].clone()),
        Ok(ParsedMessage::NoChange(reason)) => Err(reason.to_owned()),
        Err(rejection) => Err(rejection.to_string()),
    }
}

fn rss(item: &str) -> String {
    format!("<rss version='2.0'><channel><item>{item}</item></channel></rss>")
}

fn atom(content: &str) -> String {
    format!("<feed xmlns='http://www.w3.org/2005/Atom'><entry>{content}</entry></feed>")
}

fn items(draft: &Draft) -> Vec<(String, String)> {
    let DraftItems::Complete(items) = &draft.items else { panic!("{draft:?}") };
    let describe = |change: &DraftChange| match change.content() {
        Some(content) => format!(
            "{} {} {}",
            content.url.as_str(),
            content.media_type.as_ref().map_or("-", |media_type| media_type.as_str()),
            content.size.unwrap_or_default()
        ),
        None => "absent".to_owned(),
    };
    items.iter().map(|item| (item.uri.as_str().to_owned(), describe(&item.change))).collect()
}

#[test]
fn entry_has_the_uri_of_its_id_its_link_or_its_content() {
    for (item, object) in [
        ("<guid>urn:x:1</guid><link>http://h.example/1</link>", "urn:x:1"),
        (
            "<guid isPermaLink='false'>a b/ñ</guid><link>http://h.example/1</link>",
            "http://h.example/feed.xml#a%20b%2F%C3%B1",
        ),
        ("<guid> </guid><link>/1</link>", "http://h.example/1"),
    ] {
        assert_eq!(read_with(&rss(item), &[]).unwrap().object.as_str(), object, "{item}");
    }
    let untitled = read_with(&rss("<title>A  title</title>"), &[]).unwrap();
    assert!(untitled.object.as_str().starts_with("http://h.example/feed.xml#sha256-"), "{untitled:?}");
    assert_eq!(untitled.object, read_with(&rss("<title> A title</title>"), &[]).unwrap().object);
    let item = rss("<guid>urn:x:1</guid><link>http://h.example/1</link>");
    assert_eq!(read_with(&item, &[(ENTRY_KEY, "link")]).unwrap().object.as_str(), "http://h.example/1");
    assert!(read_with(&item, &[(ENTRY_KEY, "content")]).unwrap().object.as_str().contains("#sha256-"));
}

#[test]
fn key_follows_the_fragment_that_stands_for_a_query() {
    assert_eq!(entry_uri("http://h.example/f", "story:1", false).unwrap().as_str(), "http://h.example/f#story%3A1");
    assert_eq!(entry_uri("http://h.example/f", "story:1", true).unwrap().as_str(), "story:1");
    assert_eq!(entry_uri("http://h.example/f", "tag:h,2026:1", false).unwrap().as_str(), "tag:h,2026:1");
    assert_eq!(entry_uri("http://h.example/f#0a", "7", false).unwrap().as_str(), "http://h.example/f#0a/7");
}

#[test]
fn enclosures_and_remote_content_are_items() {
    let draft = read_with(
        &rss("<guid>urn:x:1</guid><link>http://h.example/1</link><enclosure url='http://h.example/a.mp3' length='5' type='audio/mpeg'/>"),
        &[],
    )
    .unwrap();
    let pair = |uri: &str, content: &str| (uri.to_owned(), content.to_owned());
    assert_eq!(
        items(&draft),
        [
            pair("urn:x:1", "http://h.example/1 - 0"),
            pair("http://h.example/a.mp3", "http://h.example/a.mp3 audio/mpeg 5")
        ]
    );
    let draft = read_with(
        &atom(
            "<id>urn:x:2</id><link href='/2' type='text/html'/><link rel='enclosure' href='b.pdf' type='application/pdf' length='9'/>\
             <content src='c.png' type='image/png'/>",
        ),
        &[],
    )
    .unwrap();
    assert_eq!(
        items(&draft),
        [
            pair("urn:x:2", "http://h.example/2 text/html 0"),
            pair("http://h.example/b.pdf", "http://h.example/b.pdf application/pdf 9"),
            pair("http://h.example/c.png", "http://h.example/c.png image/png 0"),
        ]
    );
}

#[test]
fn digest_ignores_dates_comments_and_white_space_only() {
    let digest = |item: &str| identify(rss(item).as_bytes(), FEED).unwrap().digest;
    let first =
        "<guid>1</guid><title>T</title><description>a b</description><category>x</category><category>y</category>";
    let same = "<guid>1</guid><title> T</title><description>a\n b</description><category>y</category><category>x</category>\
                <pubDate>Mon, 01 Jan 2024 00:00:00 GMT</pubDate><comments>http://h.example/1#c</comments>";
    assert_eq!(digest(first), digest(same));
    for other in [
        "<title>T2</title>",
        "<title>T</title><link>http://h.example/2</link>",
        "<title>T</title><category>z</category>",
        "<title>T</title><enclosure url='http://h.example/a' type='a/b' length='1'/>",
    ] {
        assert_ne!(digest("<guid>1</guid><title>T</title>"), digest(&format!("<guid>1</guid>{other}")), "{other}");
    }
}

#[test]
fn deleted_entry_is_absent() {
    let draft = read_with(
        "<feed xmlns='http://www.w3.org/2005/Atom' xmlns:at='http://purl.org/atompub/tombstones/1.0'>\
         <at:deleted-entry ref='urn:x:1' when='2024-01-01T00:00:00Z'/></feed>",
        &[],
    )
    .unwrap();
    assert_eq!((draft.object.as_str(), items(&draft)), ("urn:x:1", Vec::new()));
    assert_eq!(draft.time.reported().unwrap().to_string(), "2024-01-01T00:00:00.000Z");
}

#[test]
fn date_in_the_future_counts_as_the_date_of_the_response() {
    let response = (RESPONSE_DATE, "2024-01-01T00:00:00Z");
    for (date, expected) in [
        ("2024-01-01T12:00:00Z", "2024-01-01T12:00:00.000Z"),
        ("2034-01-01T12:00:00Z", "2024-01-01T00:00:00.000Z"),
        ("domani", "2024-01-01T00:00:00.000Z"),
    ] {
        let document = atom(&format!("<id>urn:x:1</id><updated>{date}</updated>"));
        let time = read_with(&document, &[response]).unwrap().time;
        assert_eq!(time.reported().unwrap().to_string(), expected);
    }
    assert_eq!(read_with(&atom("<id>urn:x:1</id>"), &[]).unwrap().time, DraftTime::Arrival);
}

#[test]
fn unreadable_entry_is_rejected_with_the_reason() {
    for (document, complaint) in [
        ("<feed xmlns='http://www.w3.org/2005/Atom'/>".to_owned(), "not exactly one entry"),
        (rss("<guid>1</guid></item><item><guid>2</guid>"), "not exactly one entry"),
        (rss(""), "neither an id nor a link nor content"),
        (atom("<id>urn:x:1</id><content type='x y'>a</content>"), "unsupported content type x y"),
        ("<html/>".to_owned(), "no root element"),
    ] {
        let found = read_with(&document, &[]).unwrap_err();
        assert!(found.contains(complaint), "{document}: {found}");
    }
    assert!(read_with(&atom("<id>a</id>"), &[(ENTRY_KEY, "x")]).unwrap_err().contains("there is no key \"x\""));
}

#[test]
fn share_of_an_entry_says_which_of_its_items_count() {
    let entry = rss("<guid>urn:x:1</guid><title>T</title><enclosure url='http://h/1' type='a/b' length='1'/>\
                     <media:content xmlns:media='http://search.yahoo.com/mrss/' url='http://h/2'/>");
    let items = |document: &str, share: &str| match read_with(document, &[(ENTRY_SHARE, share)]) {
        Ok(Draft { items: DraftItems::Listed(items), .. }) => {
            let shown = |item: &crate::model::DraftItem| (item.uri.to_string(), item.change == DraftChange::Absent);
            Ok(items.iter().map(shown).collect::<Vec<_>>())
        }
        Ok(other) => panic!("{other:?}"),
        Err(reason) => Err(reason),
    };
    let pair = |uri: &str, is_absent| (uri.to_owned(), is_absent);
    let whole = r#"{"isDescribed":false,"described":["http://h/1"],"gone":["http://h/3"]}"#;
    let expected = [pair("urn:x:1", false), pair("http://h/2", false), pair("http://h/3", true)];
    assert_eq!(items(&entry, whole).unwrap(), expected);
    let files = r#"{"isDescribed":true,"described":[],"gone":[]}"#;
    assert_eq!(items(&entry, files).unwrap(), [pair("http://h/1", false), pair("http://h/2", false)]);
    let nothing = r#"{"isDescribed":true,"described":["http://h/1","http://h/2"],"gone":[]}"#;
    assert!(items(&entry, nothing).unwrap_err().contains("other feeds describe"));
    let lost = format!(
        "<feed xmlns='http://www.w3.org/2005/Atom'><at:deleted-entry xmlns:at='{TOMBSTONES}' ref='urn:x:1' \
         when='2026-01-01T00:00:00Z'/></feed>"
    );
    assert_eq!(items(&lost, whole).unwrap(), [pair("http://h/3", true)]);
    assert!(items(&entry, "{").unwrap_err().contains("EOF"));
}

#[test]
fn files_are_recognised_up_to_a_size() {
    let enclosure =
        |number: usize| format!("<link rel='enclosure' href='http://h.example/{number}/{}'/>", "x".repeat(1000));
    let document = atom(&format!("<id>urn:x:1</id>{}", (0..20).map(enclosure).collect::<String>()));
    assert_eq!(identify(document.as_bytes(), FEED).unwrap().files.len(), 8);
    assert_eq!(items(&read_with(&document, &[]).unwrap()).len(), 21, "all of them are items");
}
