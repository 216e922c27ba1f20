//! Properties that the parsers of foreign documents have for every input.
//!
//! Reading never panics. The error of a refused message is printable. The change from an accepted message can be
//! written in every format. Formats that can also be read give the same change when they are read back.

// The tests of the program read documents with the same parsers and limits.
#[path = "../../tests/memory/documents.rs"]
#[cfg(test)]
mod documents;
#[path = "../../tests/memory/measure.rs"]
mod measure;
#[path = "../../tests/memory/parsers.rs"]
mod parsers;

use std::sync::LazyLock;

use measure::{MemoryLimit, limited};
use tidings::{
    format::{self, Dialect, DialectKind, FORMATS, Headers, Limits, Message, ParsedMessage, Redaction},
    journal::settle::{SourcePolicy, settle_without_registry},
    model::{Draft, DraftChange, DraftItems, ItemChange, SourceName},
};

/// Memory of a parsed message: its drafts, and the document while it is parsed. An empty entry of Atom has 8 bytes, and takes more
/// than a kilobyte with all facts that it can have; `limits.items` bounds their number, so 10 000 take 40 MB at most.
const MESSAGE: MemoryLimit = MemoryLimit { per_byte: 192, fixed: 256 << 10 };

/// Separator between headers and body in an input, as in HTTP. An input without it is only a body.
const END_OF_HEADERS: &[u8] = b"\r\n\r\n";

/// Environment variable that names the only dialect to fuzz. Default: all dialects.
const ONLY: &str = "FUZZ_DIALECT";

/// Every dialect with each of its sample settings.
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
    // Every draft becomes a change.
    metadata_changes: true,
});

/// Reads a document with the parser of this name, and checks the memory that this takes.
///
/// # Panics
/// Panics if there is no such parser.
pub fn check_parser(name: &str, input: &[u8]) {
    let parser = parsers::PARSERS.iter().find(|parser| parser.name == name);
    (parser.expect("there is such a parser").check)(input);
}

/// Reads a message in every dialect and checks the result.
pub fn check_dialects(input: &[u8]) {
    let (headers, body) = split(input);
    DIALECTS.iter().for_each(|(kind, dialect)| check(kind, dialect.as_ref(), &headers, body));
}

fn check(kind: &DialectKind, dialect: &dyn Dialect, headers: &Headers, body: &[u8]) {
    let redacted = match kind.redact.map(|redact| redact(body)) {
        None | Some(Redaction::Unchanged | Redaction::Opaque) => None,
        Some(Redaction::Removed(body)) => Some(body),
        Some(Redaction::Blanked(_, rejection)) => return assert_printable(&rejection.to_string()),
    };
    let body = redacted.as_deref().unwrap_or(body);
    let message = Message { content_type: headers.get("content-type"), headers, body };
    match limited(body.len(), MESSAGE, || dialect.read(&message)) {
        Ok(ParsedMessage::Drafts(drafts)) => drafts.into_vec().into_iter().for_each(check_draft),
        Ok(ParsedMessage::NoChange(reason)) => assert_printable(reason),
        Err(rejection) => {
            assert_printable(&rejection.location.to_string());
            assert_printable(&rejection.to_string());
        }
    }
}

fn set_up(kind: &DialectKind, settings: &str) -> Box<dyn Dialect> {
    let settings = serde_json::from_str(settings).expect("the sample is JSON");
    (kind.build)(settings, Limits::default()).expect("the sample is valid")
}

/// Splits an input into headers and body.
fn split(input: &[u8]) -> (Headers, &[u8]) {
    let end = input.windows(END_OF_HEADERS.len()).position(|window| window == END_OF_HEADERS);
    let Some(end) = end else { return (Headers::default(), input) };
    let Ok(head) = std::str::from_utf8(&input[..end]) else { return (Headers::default(), input) };
    let headers = head.lines().filter_map(|line| line.split_once(": ")).collect();
    (headers, &input[end + END_OF_HEADERS.len()..])
}

fn check_draft(draft: Draft) {
    let Some(modification) = settle_without_registry(draft, &POLICY) else { return };
    let expected = Draft::from(modification.clone());
    for format in FORMATS {
        let written = (format.write_modification)(&modification);
        assert!(std::str::from_utf8(&written).is_ok(), "{} is not UTF-8", format.name);
        // The dialect reads only these formats.
        if !["atom", "json"].contains(&format.name) {
            continue;
        }
        let expected = if format.name == "atom" { in_atom(expected.clone()) } else { expected.clone() };
        let message = Message { content_type: Some(format.media_type), headers: &Headers::default(), body: &written };
        match CONTENT_CHANGE.read(&message) {
            Ok(ParsedMessage::Drafts(read)) => assert_eq!(read[0], expected, "{}", String::from_utf8_lossy(&written)),
            other => panic!("{other:?}\n{}", String::from_utf8_lossy(&written)),
        }
    }
}

/// Returns the facts of a draft that Atom can express: neither the message of a source about its work, nor the digest of an
/// original.
fn in_atom(mut draft: Draft) -> Draft {
    draft.report = None;
    if let DraftItems::Listed(items) = draft.items {
        draft.items = DraftItems::Listed(items.map(|mut item| {
            if let DraftChange::Reported(ItemChange::Add { content, .. } | ItemChange::Update { content, .. }) =
                &mut item.change
            {
                let original = content.as_mut().and_then(|content| content.original.as_mut());
                original.into_iter().for_each(|original| original.digest = None);
            }
            item
        }));
    }
    draft
}

/// Asserts that a text can be printed to a terminal or a log, and is shorter than a message may be.
pub fn assert_printable(text: &str) {
    assert!(!text.is_empty(), "the text is empty");
    assert!(!text.contains(char::is_control), "{text:?} has control characters");
    assert!(text.len() < 8192, "{} bytes are too long", text.len());
}

#[cfg(test)]
mod tests {
    use super::{check_dialects, documents, parsers};

    /// Measures everything, in one test, because the allocator counts what the whole program allocates.
    #[test]
    fn documents_and_fixtures_take_bounded_memory() {
        for document in documents::all() {
            println!("{:?}", String::from_utf8_lossy(&document[..document.len().min(60)]));
            check_dialects(&document);
        }
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
                println!("{}", path.display());
                let document = std::fs::read(&path).unwrap();
                count += 1;
                parsers::PARSERS.iter().for_each(|parser| (parser.check)(&document));
                check_dialects(&document);
            }
        }
        assert!(count > 100, "{count} fixtures");
    }
}
