//! What every dialect promises of every message, however it was made.
//!
//! A message is read; it never panics. If it is refused, the refusal can be shown. If it is taken, the
//! change that comes of it can be written in every format, and what is written in those that are also
//! read is the same change when it is read back.

use std::sync::LazyLock;

use serde_json::{Value, json};
use tidings::{
    format::{self, Dialect, DialectKind, FORMATS, Headers, Limits, Message, Reading, Redacted},
    journal::settle::{SourcePolicy, settle_alone},
    model::{Draft, SourceName},
};

/// Stands in an input where the headers end and the body begins, as in HTTP. Without it all is body.
const END_OF_HEADERS: &[u8] = b"\r\n\r\n";
/// A header by which an input asks for the dialect with a base URL set.
const WITH_BASE_URL: &str = "fuzz-base-url";

static CONTENT_CHANGE: LazyLock<Box<dyn Dialect>> = LazyLock::new(|| set_up("content-change", Value::Null));
static POLICY: LazyLock<SourcePolicy> = LazyLock::new(|| SourcePolicy {
    name: SourceName::parse("fuzz").expect("it is a name"),
    // So that every draft becomes a change.
    metadata_changes: true,
});

/// A dialect, with and without settings.
pub struct Subject {
    kind: &'static DialectKind,
    plain: Box<dyn Dialect>,
    with_base_url: Option<Box<dyn Dialect>>,
}

/// Whether a dialect has the setting `base_url`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BaseUrl {
    /// It has not.
    None,
    /// It has, and does without.
    Optional,
    /// It has, and needs it.
    Required,
}

impl Subject {
    /// The dialect of that name.
    pub fn new(name: &str, base_url: BaseUrl) -> Self {
        let kind = format::dialect(name).expect("there is such a dialect");
        let with_base_url = || set_up(name, json!({ "base_url": "http://h.example/rest" }));
        match base_url {
            BaseUrl::None => Self { kind, plain: set_up(name, Value::Null), with_base_url: None },
            BaseUrl::Optional => {
                Self { kind, plain: set_up(name, Value::Null), with_base_url: Some(with_base_url()) }
            }
            BaseUrl::Required => Self { kind, plain: with_base_url(), with_base_url: None },
        }
    }

    /// Reads one message and checks what came of it.
    pub fn check(&self, input: &[u8]) {
        let (headers, body) = parts(input);
        let asked = headers.get(WITH_BASE_URL).is_some();
        let dialect = self.with_base_url.as_ref().filter(|_| asked).unwrap_or(&self.plain);
        let without = match self.kind.redact.map(|redact| redact(body)) {
            None | Some(Redacted::AsItCame | Redacted::Opaque) => None,
            Some(Redacted::Without(body)) => Some(body),
            Some(Redacted::Blanked(_, rejection)) => return assert_printable(&rejection.to_string()),
        };
        let body = without.as_deref().unwrap_or(body);
        let message = Message { content_type: headers.get("content-type"), headers: &headers, body };
        match dialect.read(&message) {
            Ok(Reading::Drafts(drafts)) => drafts.into_vec().into_iter().for_each(check_draft),
            Ok(Reading::Nothing(reason)) => assert_printable(reason),
            Err(rejection) => {
                assert_printable(&rejection.place.to_string());
                assert_printable(&rejection.to_string());
            }
        }
    }
}

fn set_up(name: &str, settings: Value) -> Box<dyn Dialect> {
    let kind = format::dialect(name).expect("there is such a dialect");
    (kind.build)(settings, Limits::default()).expect("it takes the settings")
}

/// Lines `Name: value`, then the body.
fn parts(input: &[u8]) -> (Headers, &[u8]) {
    let end = input.windows(END_OF_HEADERS.len()).position(|window| window == END_OF_HEADERS);
    let Some(end) = end else { return (Headers::default(), input) };
    let Ok(head) = std::str::from_utf8(&input[..end]) else { return (Headers::default(), input) };
    let headers = head.lines().filter_map(|line| line.split_once(": ")).collect();
    (headers, &input[end + END_OF_HEADERS.len()..])
}

fn check_draft(draft: Draft) {
    let Some(modification) = settle_alone(draft, &POLICY) else { return };
    let told = Draft::from(modification.clone());
    for format in FORMATS {
        let written = (format.write_modification)(&modification);
        assert!(std::str::from_utf8(&written).is_ok(), "{} is not UTF-8", format.name);
        // The others are not read by this dialect.
        if !["atom", "json"].contains(&format.name) {
            continue;
        }
        let message =
            Message { content_type: Some(format.media_type), headers: &Headers::default(), body: &written };
        match CONTENT_CHANGE.read(&message) {
            Ok(Reading::Drafts(read)) => assert_eq!(read[0], told, "{}", String::from_utf8_lossy(&written)),
            other => panic!("{other:?}\n{}", String::from_utf8_lossy(&written)),
        }
    }
}

/// A terminal and a log can show it, and it is not as long as the message.
pub fn assert_printable(text: &str) {
    assert!(!text.is_empty(), "there is nothing to show");
    assert!(!text.contains(char::is_control), "{text:?} cannot be shown");
    assert!(text.len() < 8192, "{} bytes are too much to show", text.len());
}
