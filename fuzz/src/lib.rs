//! What every dialect promises of every message, however it was made.
//!
//! A message is read; it never panics. If it is refused, the refusal can be shown. If it is taken, the
//! change that comes of it can be written in every format, and what is written in those that are also
//! read is the same change when it is read back.

use std::sync::LazyLock;

use tidings::{
    format::{self, Dialect, DialectKind, FORMATS, Headers, Limits, Message, Reading, Redacted},
    journal::settle::{SourcePolicy, settle_without_registry},
    model::{Draft, SourceName},
};

/// Stands in an input where the headers end and the body begins, as in HTTP. Without it all is body.
const END_OF_HEADERS: &[u8] = b"\r\n\r\n";

/// The variable of the environment that names the one dialect to fuzz; every dialect without it.
const ONLY: &str = "FUZZ_DIALECT";

/// Every dialect, with each of its samples of settings.
static DIALECTS: LazyLock<Vec<(&DialectKind, Box<dyn Dialect>)>> = LazyLock::new(|| {
    let only = std::env::var(ONLY).ok();
    let chosen = |kind: &&&DialectKind| only.as_ref().is_none_or(|only| only == kind.name);
    let kinds: Vec<_> = format::DIALECTS.iter().copied().filter(|kind| chosen(&kind)).collect();
    assert!(!kinds.is_empty(), "{ONLY} names no dialect");
    kinds
        .into_iter()
        .flat_map(|kind| kind.sample_settings.iter().map(move |sample| (kind, set_up(kind, sample))))
        .collect()
});

static CONTENT_CHANGE: LazyLock<Box<dyn Dialect>> =
    LazyLock::new(|| set_up(format::dialect("content-change").expect("there is such a dialect"), "{}"));

static POLICY: LazyLock<SourcePolicy> = LazyLock::new(|| SourcePolicy {
    name: SourceName::parse("fuzz").expect("it is a name"),
    // So that every draft becomes a change.
    metadata_changes: true,
});

/// Has every dialect read one message, and checks what came of it.
pub fn check_dialects(input: &[u8]) {
    let (headers, body) = parts(input);
    DIALECTS.iter().for_each(|(kind, dialect)| check(kind, dialect.as_ref(), &headers, body));
}

fn check(kind: &DialectKind, dialect: &dyn Dialect, headers: &Headers, body: &[u8]) {
    let without = match kind.redact.map(|redact| redact(body)) {
        None | Some(Redacted::AsItCame | Redacted::Opaque) => None,
        Some(Redacted::Without(body)) => Some(body),
        Some(Redacted::Blanked(_, rejection)) => return assert_printable(&rejection.to_string()),
    };
    let body = without.as_deref().unwrap_or(body);
    let message = Message { content_type: headers.get("content-type"), headers, body };
    match dialect.read(&message) {
        Ok(Reading::Drafts(drafts)) => drafts.into_vec().into_iter().for_each(check_draft),
        Ok(Reading::Nothing(reason)) => assert_printable(reason),
        Err(rejection) => {
            assert_printable(&rejection.place.to_string());
            assert_printable(&rejection.to_string());
        }
    }
}

fn set_up(kind: &DialectKind, settings: &str) -> Box<dyn Dialect> {
    let settings = serde_json::from_str(settings).expect("the sample is JSON");
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
    let Some(modification) = settle_without_registry(draft, &POLICY) else { return };
    let told = Draft::from(modification.clone());
    for format in FORMATS {
        let written = (format.write_modification)(&modification);
        assert!(std::str::from_utf8(&written).is_ok(), "{} is not UTF-8", format.name);
        // The others are not read by this dialect.
        if !["atom", "json"].contains(&format.name) {
            continue;
        }
        let message = Message { content_type: Some(format.media_type), headers: &Headers::default(), body: &written };
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
