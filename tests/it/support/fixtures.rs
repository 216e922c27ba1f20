//! Messages under `fixtures/<dialect>/`. Beside `<case>.<xml|json|bin>` may be `<case>.headers` (lines `Name:
//! value`) and `<case>.settings.json`. Cases without settings use `default.settings.json` if it exists.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tidings::format::{self, Headers, Limits, Message, ParsedMessage, Redaction, Rejection};

/// Returns the fixture folder of a dialect.
pub(crate) fn folder(dialect: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(dialect)
}

/// Returns the messages of a dialect in the order of their names.
pub(crate) fn of(dialect: &str) -> Vec<PathBuf> {
    let folder = folder(dialect);
    let mut fixtures: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            !name.ends_with(".headers") && !name.ends_with(".settings.json")
        })
        .collect();
    fixtures.sort();
    assert!(!fixtures.is_empty(), "{dialect} has no fixture");
    fixtures
}

/// Reads the message with its dialect, after the dialect has removed its secrets.
pub(crate) fn read(dialect: &str, fixture: &Path) -> Result<ParsedMessage, Rejection> {
    let body = fs::read(fixture).unwrap();
    let headers: Headers = fs::read_to_string(fixture.with_extension("headers"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split_once(": "))
        .collect();
    let settings = fs::read(fixture.with_extension("settings.json"))
        .or_else(|_| fs::read(fixture.with_file_name("default.settings.json")))
        .map_or(serde_json::Value::Null, |settings| serde_json::from_slice(&settings).unwrap());
    let kind = format::dialect(dialect).unwrap();
    let without = match kind.redact.map(|redact| redact(&body)) {
        None | Some(Redaction::Unchanged | Redaction::Opaque) => None,
        Some(Redaction::Removed(body)) => Some(body),
        Some(Redaction::Blanked(_, rejection)) => return Err(rejection),
    };
    let body = without.as_ref().unwrap_or(&body);
    let dialect = (kind.build)(settings, Limits::default()).unwrap();
    dialect.read(&Message { content_type: headers.get("content-type"), headers: &headers, body })
}
