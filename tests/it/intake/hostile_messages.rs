//! WatchedGateway messages: a hook refuses each of them with a reason or accepts it correctly, within bounded memory,
//! and continues to serve.

use serde_json::{Value, json};

use crate::support::resource_watch::{WatchedGateway, is_clear};

const SOURCES: [&str; 4] = ["fedora3", "fedora", "islandora", "content-change"];
const ATOM: &str = "http://www.w3.org/2005/Atom";
const MEBIBYTE: u64 = 1 << 20;

fn in_root(root: &str, inside: &str) -> Vec<u8> {
    format!("<{root} xmlns='{ATOM}'>{inside}</{root}>").into_bytes()
}

/// Returns the "billion laughs" attack: nested XML entities, each with ten references to the next one.
fn laughs() -> String {
    let entities: String =
        (1..10).map(|n| format!("<!ENTITY l{n} '{}'>", format!("&l{};", n - 1).repeat(10))).collect();
    format!("<!DOCTYPE feed [<!ENTITY l0 'lol'>{entities}]><feed xmlns='{ATOM}'><title>&l9;</title></feed>")
}

/// Returns the messages for every hook, by name.
fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let utf_16 = |mark: [u8; 2], bytes: fn(u16) -> [u8; 2]| {
        let text = format!("<feed xmlns='{ATOM}'/>");
        mark.into_iter().chain(text.encode_utf16().flat_map(bytes)).collect::<Vec<u8>>()
    };
    let namespace = "n".repeat(1_000_000);
    let attributes: String = (0..10_000).map(|n| format!(" a{n}='1'")).collect();
    vec![
        ("a million entries", in_root("feed", &"<entry/>".repeat(1_000_000))),
        ("many entries", in_root("feed", &"<entry/>".repeat(400_000))),
        ("many links", in_root("feed", &"<link/>".repeat(500_000))),
        ("many categories", in_root("entry", &"<category scheme='fedora-types:pid' term='x'/>".repeat(80_000))),
        ("an entity bomb", laughs().into_bytes()),
        (
            "an external entity",
            b"<!DOCTYPE feed [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><feed xmlns='http://www.w3.org/2005/Atom'>&x;</feed>"
                .to_vec(),
        ),
        ("deep elements", in_root("feed", &"<a>".repeat(1_000_000))),
        ("deep elements of an entry", in_root("entry", &"<a>".repeat(1_000_000))),
        ("a long namespace of many elements", {
            let inside = format!("<x xmlns='&amp;{namespace}'>{}</x>", "<a/>".repeat(500_000));
            in_root("feed", &inside)
        }),
        ("a huge attribute", in_root("feed", &format!("<link rel='via' href='http://h/{}'/>", "x".repeat(3_000_000)))),
        ("many attributes", in_root("entry", &format!("<category{attributes}/>"))),
        ("a huge name", format!("<{}/>", "x".repeat(3_000_000)).into_bytes()),
        ("a huge text", in_root("entry", &format!("<title>{}</title>", "x".repeat(3_000_000)))),
        ("many references", in_root("feed", &format!("<title>{}</title>", "&#65;".repeat(700_000)))),
        ("deep arrays", vec![b'['; 4_000_000]),
        ("deep objects", "{\"object\":".repeat(400_000).into_bytes()),
        ("deep members", format!("{{\"object\":\"urn:x:1\",\"x\":{}", "[".repeat(4_000_000)).into_bytes()),
        ("many numbers", format!("{{\"type\":[{}0]}}", "0,".repeat(1_900_000)).into_bytes()),
        ("many empty objects", format!("{{\"object\":{{\"id\":\"urn:x:1\",\"url\":[{}{{}}]}}}}", "{},".repeat(1_200_000)).into_bytes()),
        ("many items", {
            let item = r#"{"uri":"urn:x:1","change":"ADD"},"#;
            let items = item.repeat(110_000);
            format!(r#"{{"object":"urn:x:1","items":[{}]}}"#, items.trim_end_matches(',')).into_bytes()
        }),
        ("a huge member", format!("{{\"{}\":1}}", "x".repeat(3_000_000)).into_bytes()),
        ("a huge string", format!("{{\"object\":\"http://h/{}\"}}", "x".repeat(3_000_000)).into_bytes()),
        ("control characters", b"{\"object\":\"\\u0000\\u001b[2J\",\"\\u0007\":\"\x1b\"}".to_vec()),
        ("half a surrogate", b"{\"object\":\"\\ud800\"}".to_vec()),
        ("a huge number", format!("{{\"object\":{}}}", "9".repeat(1_000_000)).into_bytes()),
        ("a number without end", b"{\"object\":1e999999999}".to_vec()),
        ("nothing", Vec::new()),
        ("white space", vec![b' '; 4_000_000]),
        ("a byte order mark", b"\xEF\xBB\xBF".to_vec()),
        ("two byte order marks", "\u{FEFF}\u{FEFF}<feed/>".into()),
        ("bytes that are not UTF-8", b"<feed xmlns='http://www.w3.org/2005/Atom'><title>\xff\xc0\x80</title></feed>".to_vec()),
        ("a surrogate in UTF-8", b"{\"object\":\"\xED\xA0\x80\"}".to_vec()),
        ("UTF-16, little end first", utf_16([0xFF, 0xFE], u16::to_le_bytes)),
        ("UTF-16, big end first", utf_16([0xFE, 0xFF], u16::to_be_bytes)),
        ("NULs", vec![0; 1_000_000]),
        ("a NUL in XML", in_root("feed", "<title>\0</title>")),
        ("half a document", in_root("feed", "").split_off(3)),
        ("half a JSON document", br#"{"object":{"id":"urn:x"#.to_vec()),
        ("the end before the beginning", b"</feed>".to_vec()),
        ("a processing instruction", format!("<?{}?><feed/>", "x".repeat(1_000_000)).into_bytes()),
        ("a comment without end", format!("<!--{}", "-".repeat(1_000_000)).into_bytes()),
        ("angle brackets", vec![b'<'; 4_000_000]),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_survive_every_hostile_message() {
    let gateway = WatchedGateway::start("");
    for (name, body) in messages() {
        for source in SOURCES {
            let (status, answer) = gateway.post(source, "application/octet-stream", body.clone()).await;
            assert!(is_clear(status, &answer), "{name} to {source}: {status} {answer}");
            assert!(matches!(status, 400 | 413 | 422), "{name} to {source}: {status} {answer}");
            gateway.still_serves(name);
        }
    }
    // A JSON value takes 32 bytes of memory, and the shortest one with its comma two bytes of text.
    let most = gateway.most_memory();
    assert!(most < 400 * MEBIBYTE, "{most} bytes");
}

#[tokio::test]
async fn exceeded_limit_is_named() {
    let gateway = WatchedGateway::start("");
    for (source, body, status, told) in [
        ("content-change", in_root("feed", &"<entry/>".repeat(1_000_000)), 413, "limits.body_bytes"),
        ("content-change", in_root("feed", &"<entry/>".repeat(400_000)), 422, "at most 10000 entries"),
        ("content-change", in_root("feed", &"<a>".repeat(1_000)), 422, "more than 64 deep"),
        ("fedora3", in_root("entry", &"<a>".repeat(1_000)), 422, "more than 64 deep"),
        ("fedora3", laughs().into_bytes(), 400, "a document type declaration is refused"),
    ] {
        let (answered, problem) = gateway.post(source, "application/atom+xml", body).await;
        assert_eq!(answered, status, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(told), "{problem}");
    }
}

fn message(items: usize) -> String {
    let item = |n: usize| json!({ "uri": format!("http://h/o/{n}"), "change": "ADD", "stateAfter": "ACTIVE" });
    json!({ "object": "http://h/o", "items": (0..items).map(item).collect::<Vec<_>>() }).to_string()
}

#[tokio::test]
async fn item_limit_accepts_ten_thousand_and_refuses_one_more() {
    let gateway = WatchedGateway::start("");
    let (status, problem) = gateway.post("content-change", "application/json", message(10_001)).await;
    assert_eq!((status, problem["place"].as_str()), (422, Some("/items")), "{problem}");
    let (status, answer) = gateway.post("content-change", "application/json", message(10_000)).await;
    assert_eq!(status, 201, "{answer}");
    let purge = r#"{"object":"http://h/o","purge":true}"#;
    let (status, answer) = gateway.post("content-change", "application/json", purge).await;
    assert_eq!(status, 201, "{answer}");
    let changes = gateway.changes().await;
    let of_purge = changes[1]["items"].as_array().unwrap();
    let deleted = |item: &&Value| item["change"] == "DELETE" && item["stateBefore"] == "ACTIVE";
    assert_eq!((of_purge.len(), of_purge.iter().filter(deleted).count()), (10_000, 10_000));
    let feed = gateway.http.get(format!("{}/feed", gateway.url)).send().await.unwrap().text().await.unwrap();
    assert_eq!(feed.matches("<entry>").count() + feed.matches("<entry ").count(), 20_000);
    gateway.still_serves("ten thousand items");
}
