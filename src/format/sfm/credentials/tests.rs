//! Tests with bodies of many kinds: no result may contain the secret.

use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::{Value, json};

use super::{super::super::Location, Redaction, redact};

/// The only letter of every secret; no other text contains it.
const SECRET: &str = "QQQQ";

fn redacted(body: &[u8]) -> Vec<u8> {
    match redact(body) {
        Redaction::Unchanged => body.to_vec(),
        Redaction::Opaque => Vec::new(),
        Redaction::Removed(body) | Redaction::Blanked(body, _) => body,
    }
}

fn leaks(body: &[u8]) -> bool {
    redacted(body).contains(&b'Q')
}

#[test]
fn well_formed_json_loses_only_credentials() {
    for (body, expected) in [
        (
            "{\"id\": \"1\",\n \"credentials\": {\"key\": \"QQQQ\",\n  \"x\": [{\"}\": \"\\\"]QQQQ\"}]},\n \"options\": {}}",
            "{\"id\": \"1\",\n \"credentials\": null\n,\n \"options\": {}}",
        ),
        (r#"{"credentials":"QQQQ","credentials":["QQQQ"]}"#, r#"{"credentials":null,"credentials":null}"#),
        (r#"{"credentials" : 7 , "a": true}"#, r#"{"credentials" : null , "a": true}"#),
        (r#"[{"a":{"Credentials":{"k":"QQQQ"}}}]"#, r#"[{"a":{"Credentials":null}}]"#),
        (r#"{"\u0063redential\u0073":{"k":"QQQQ"}}"#, r#"{"\u0063redential\u0073":null}"#),
        (r#"{"\u0043REDENTIALS":"QQQQ"}"#, r#"{"\u0043REDENTIALS":null}"#),
        (r#"{"a":"{\"credentials\":\"QQQQ\"}","b":1}"#, r#"{"a":"","b":1}"#),
        (r#""{\"\\u0063redentials\":\"QQQQ\"}""#, r#""""#),
        (r#"{"a":"\u007b'credentials': 'QQQQ'}"}"#, r#"{"a":""}"#),
        (r#"{"\ud800":1,"credentials":"QQQQ"}"#, r#"{"\ud800":1,"credentials":null}"#),
        ("\u{FEFF}{\"credentials\":\"QQQQ\"}", "\u{FEFF}{\"credentials\":null}"),
    ] {
        let Redaction::Removed(redacted_body) = redact(body.as_bytes()) else { panic!("{body}") };
        assert_eq!(String::from_utf8(redacted_body).unwrap(), expected, "{body}");
    }
}

#[test]
fn body_without_credentials_is_unchanged() {
    for body in [&b"{\"id\":\"1\""[..], b"{\"cred\":1}", b"[\"credential\"]", b" {\"\\u0063redential"] {
        assert!(matches!(redact(body), Redaction::Unchanged));
    }
    // The word in a message for people is not a member name.
    let body = br#"{"warnings":[{"message":"Bad credentials"}]}"#;
    assert_eq!(redacted(body), body);
}

#[test]
fn non_json_bodies_are_opaque() {
    let utf_16: Vec<u8> = "{\"a\": \"\u{e9}\"".encode_utf16().flat_map(u16::to_be_bytes).collect();
    assert!(matches!(redact(&utf_16), Redaction::Unchanged));
    for body in
        [&b"\x1f\x8b\x08\x00\x00"[..], b"eyJjcmVkZW50aWFscyI6MX0=", b"\"text\"", b"{\"a\": \xff}", b"{\x01\x02}", b""]
    {
        assert!(matches!(redact(body), Redaction::Opaque), "{body:?}");
    }
}

#[test]
fn name_is_found_with_escaped_backslashes() {
    for escaped in [
        r"\u005cu0063redentials",
        r"\u005Cu005cu0063redentials",
        r"\\u005cu005cu0063redentials",
        r"c\u005cu0072edentials",
    ] {
        let body = format!(r#"{{"a":"{{\"{escaped}\":\"QQQQ\"}}"}}"#);
        assert!(!leaks(body.as_bytes()), "{body}");
        assert!(!leaks(&body.as_bytes()[..body.len() - 1]), "{body}");
        let utf_16: Vec<u8> = body.encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(!leaks(&utf_16), "{body}");
    }
}

#[test]
fn malformed_json_is_blanked_after_the_name() {
    for body in [
        r#"{"credentials": {"key": "QQQQ"#,
        r#"{"credentials": {"key": QQQQ}, "id": "1"}"#,
        r#"{"credentials" {"key": "QQQQ"}}"#,
        r#"{"credentials", {"key": "QQQQ"}}"#,
        r#"{credentials: {"key": "QQQQ"}}"#,
        r#"{'credentials': {'key': 'QQQQ'}}"#,
        r#"{"credentials": {"key": "a"}, "secret": "QQQQ"}}"#,
        r#"{"credentials": {"key": "a}", "secret": "QQQQ"}"#,
        r#"{"credentials": {"key": a}b", "secret": "QQQQ"}"#,
        r#"{"credentials": {"key": "abc, "secret": "QQQQ"}, "id": "1"}"#,
        r#"{"\u0063\u0072edentials": {"key": "QQQQ"},}"#,
        r#"{"\\u0063redentials": {"key": "QQQQ"},}"#,
        r#"{"CREDENTIALS": "QQQQ" "id": "1"}"#,
        r#"{"credentials": null, "credentials": {"key": "QQQQ"},,}"#,
        "{\"id\": \"credentials\n\", \"credentials\": \"QQQQ\"}",
    ] {
        assert!(matches!(redact(body.as_bytes()), Redaction::Blanked(..)), "{body}");
        assert!(!leaks(body.as_bytes()), "{body}");
    }
    assert!(!leaks(b"{\"credentials\": {\"\xff\": \"QQQQ\"}}"));
    assert!(!leaks(b"\xff{\"credentials\": {\"key\": \"QQQQ\"}}"));
    for bytes in [u16::to_le_bytes, u16::to_be_bytes] {
        for text in [r#"{"credentials": {"key": "QQQQ"}}"#, r#"{"\u0063redentials": {"key": "QQQQ"}}"#] {
            let body: Vec<u8> = text.encode_utf16().flat_map(bytes).collect();
            assert!(!leaks(&body));
        }
    }
    let deep = format!("{}{{\"credentials\":\"QQQQ\"}}{}", "[".repeat(5000), "]".repeat(5000));
    assert!(!leaks(deep.as_bytes()));
}

#[test]
fn error_location_is_valid_for_both_bodies() {
    let body = "{\n \"credentials\": {\"k\": \"éQQQQ\"},\n \"é\": 1,, \"id\": \"1\"}";
    let Redaction::Blanked(redacted_body, rejection) = redact(body.as_bytes()) else { panic!("it is broken") };
    assert_eq!(rejection.location, Location::Line { line: 3, column: 9 });
    let redacted_body = String::from_utf8(redacted_body).unwrap();
    let columns = |text: &str| text.lines().map(|line| line.chars().count()).collect::<Vec<_>>();
    assert_eq!(columns(&redacted_body), columns(body));
    assert!(redacted_body.starts_with("{\n \"credentials ") && !redacted_body.contains('é'));
}

#[test]
fn redaction_is_idempotent() {
    for body in [r#"{"credentials":{"k":"QQQQ"},"a":[1]}"#, r#"{"credentials":{"k":"QQQQ"},"a":[1}"#] {
        let once = redacted(body.as_bytes());
        assert_eq!(redacted(&once), once);
    }
}

#[test]
fn adversarial_bodies_take_linear_time() {
    for body in ["c\0\0\0".repeat(300_000), "\\".repeat(1_000_000), "\\u0063".repeat(200_000), "\"".repeat(1_000_001)] {
        let began = std::time::Instant::now();
        redacted(body.as_bytes());
        // With quadratic time this would take hours.
        assert!(began.elapsed() < std::time::Duration::from_secs(60));
    }
}

/// Any JSON without the letter of the secrets.
fn any_json() -> impl Strategy<Value = Value> {
    let text = || "[a-p \\\\\"{}\\[\\],:é\n]{0,6}";
    let leaf = prop_oneof![Just(json!(null)), any::<bool>().prop_map(Value::from), any::<i32>().prop_map(Value::from)];
    let leaf = prop_oneof![leaf, text().prop_map(Value::from)];
    leaf.prop_recursive(3, 16, 4, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((text(), inner), 0..4).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// JSON with a member `credentials`, and the range of its name in the text.
fn with_secret() -> impl Strategy<Value = (String, std::ops::Range<usize>)> {
    let name = prop_oneof![Just("credentials"), Just("\\u0063redentials"), Just("Credential\\u0073")];
    let secret = any_json().prop_map(|value| {
        let text = value.to_string();
        if value.is_object() {
            format!("{{\"k\": {text}, \"s\": \"QQQQ\"}}")
        } else {
            format!("[{text},\"QQQQ\",{{\"k\":\"\\\"QQQQ\"}}]")
        }
    });
    (any_json(), name, secret, any_json(), any::<bool>()).prop_map(|(before, name, secret, after, deep)| {
        let (open, close) = if deep { ("[{\"x\":", "}]") } else { ("", "") };
        let head = format!("{open}{{\"a\": {before},\n \"");
        let at = head.len()..head.len() + name.len();
        (format!("{head}{name}\": {secret},\n \"z\": {after}}}{close}"), at)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn well_formed_bodies_leak_no_secret((json, _) in with_secret()) {
        prop_assert!(json.contains(SECRET));
        let redacted_body = redacted(json.as_bytes());
        prop_assert!(!redacted_body.contains(&b'Q'), "{}", String::from_utf8_lossy(&redacted_body));
        // All other members remain.
        let mut all: Value = serde_json::from_str(&json).unwrap();
        let inner = if all.is_array() { &mut all[0]["x"] } else { &mut all };
        for name in ["credentials", "Credentials"] {
            if inner.get(name).is_some() {
                inner[name] = Value::Null;
            }
        }
        prop_assert_eq!(serde_json::from_slice::<Value>(&redacted_body).unwrap(), all);
    }

    #[test]
    fn truncated_bodies_leak_no_secret((json, _) in with_secret(), at in any::<Index>()) {
        prop_assert!(!leaks(&json.as_bytes()[..at.index(json.len())]));
    }

    #[test]
    fn damaged_bodies_leak_no_secret(
        (json, name) in with_secret(),
        at in any::<Index>(),
        deed in 0..3,
        with in prop_oneof![prop::sample::select(b"{}[]\",:\\ \n\0x7\xff".to_vec()), any::<u8>()],
    ) {
        let mut body = json.into_bytes();
        let at = at.index(body.len());
        prop_assume!(with != b'Q' && !(name.start..=name.end).contains(&at));
        match deed {
            0 => body.insert(at, with),
            1 => body[at] = with,
            _ => drop(body.remove(at)),
        }
        prop_assert!(!leaks(&body), "{}", String::from_utf8_lossy(&body));
    }
}
