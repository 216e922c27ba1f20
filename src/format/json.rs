//! The model as JSON (`docs/json.md`): writes it, and reads it with the location of every error.

use serde::{Serialize, de::DeserializeOwned};
use serde_path_to_error::Segment;

use super::{Batch, ExtraHeaders, FormatKind, Location, Rejection, utf8::utf8};
use crate::model::{Change, ContentObjectModification};

/// The model as JSON, as a format.
pub(super) static JSON: FormatKind = FormatKind {
    name: "json",
    media_type: "application/json",
    about: "the model as JSON, one object a change",
    write: |change: &Change| write(change),
    write_modification: |modification: &ContentObjectModification| write(modification),
    covers: None,
    extra_headers: ExtraHeaders::None,
    routed: None,
    // Like a page of `/changes` but without a position, which push receivers do not need.
    batch: Some(Batch { media_type: "application/json", open: "{\"changes\":[", between: ",", close: "]}" }),
};

#[expect(clippy::expect_used, reason = "the model has no map with keys that are not strings, and a Vec takes all")]
fn write(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("the model has a JSON shape for every value")
}

/// Parses exactly one JSON document.
///
/// # Errors
/// Malformed JSON is rejected with line and column, an unexpected shape with a pointer to the member.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Rejection> {
    let text = utf8(body)?;
    // Tracking the path to each member costs more than parsing, so it is done only after an error.
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(value);
    }
    let mut document = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut document).map_err(|error| {
        let location = pointer(error.path());
        complaint(text, error.inner(), location)
    })?;
    document.end().map_err(|error| complaint(text, &error, Location::Message))?;
    Ok(value)
}

/// Creates the rejection: errors of shape are located by member, syntax errors by line and column.
fn complaint(text: &str, error: &serde_json::Error, member: Location) -> Rejection {
    if error.is_data() {
        Rejection::unprocessable(member, reason(error))
    } else {
        let offset = if error.is_eof() { text.len() } else { offset(text, error.line(), error.column()) };
        Rejection::malformed(Location::in_text(text, offset), syntax_reason(text, error))
    }
}

/// Describes a syntax error, and says so if the text is XML and therefore probably meant for another source.
pub(super) fn syntax_reason(text: &str, error: &serde_json::Error) -> String {
    let reason = format!("this is not well-formed JSON: {}", reason(error));
    if text.trim_start_matches('\u{FEFF}').trim_start().starts_with('<') {
        reason + "; it looks like XML, which a source with another dialect reads"
    } else {
        reason
    }
}

/// Returns the text of an error without its line and column.
fn reason(error: &serde_json::Error) -> String {
    let reason = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    reason.strip_suffix(&position).unwrap_or(&reason).to_owned()
}

/// Converts line and column of serde_json to an offset. The column counts bytes from 1 and is 0 for a newline.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let line_start = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum::<usize>();
    (line_start + column).saturating_sub(1)
}

/// Converts a path to a JSON pointer (RFC 6901 section 3).
fn pointer(path: &serde_path_to_error::Path) -> Location {
    let mut pointer = String::new();
    for segment in path {
        pointer.push('/');
        match segment {
            Segment::Seq { index } => pointer.push_str(&index.to_string()),
            Segment::Map { key } | Segment::Enum { variant: key } => {
                pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
            }
            Segment::Unknown => pointer.push('?'),
        }
    }
    Location::Pointer(pointer)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::read;
    use crate::model::Draft;

    fn complaint(body: &str) -> String {
        read::<Draft>(body.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn syntax_errors_have_line_and_column() {
        for (body, placed) in [
            ("{\n  \"object\" 1}", "line 2, column 12: this is not well-formed JSON: expected `:`"),
            ("{\"é\": 1, !}", "line 1, column 10: "),
            ("{\"object\": \"a\nb\"}", "line 1, column 14: "),
            ("{", "line 1, column 2: "),
            ("{\"object\":\"urn:x:1\",\"purge\":true}\n}", "line 2, column 1: "),
            ("{\"x\":nul}", "line 1, column 9: "),
            (
                "<a/>",
                "line 1, column 1: this is not well-formed JSON: expected value; it looks like XML, which a source with",
            ),
        ] {
            assert!(complaint(body).starts_with(placed), "{body}: {}", complaint(body));
        }
        assert!(complaint(&format!("{{\"x\":{}", "[".repeat(100_000))).contains("EOF while parsing a list"));
    }

    #[test]
    fn shape_errors_have_a_pointer() {
        let item =
            |member: &str| format!(r#"{{"object":"urn:x:1","items":[{{"uri":"urn:x:1","change":"ADD",{member}}}]}}"#);
        for (body, placed) in [
            (r#"{"object":"x"}"#.to_owned(), "/object: it is not an absolute URI"),
            (r#"{"items":[]}"#.to_owned(), "the JSON document: missing field `object`"),
            (r#"{"object":"urn:x:1","types":["urn:x:1",7]}"#.to_owned(), "/types/1: invalid type: integer"),
            (r#"{"object":"urn:x:1","user":{"uri":"x"}}"#.to_owned(), "/user/uri: it is not"),
            (r#"{"object":"urn:x:1","items":[{"change":"ADD"}]}"#.to_owned(), "/items/0: missing field `uri`"),
            (r#"{"object":"urn:x:1","items":["urn:x:1"]}"#.to_owned(), "/items/0: invalid type: string"),
            (item(r#""stateAfter":"a""#), "/items/0/stateAfter: \"a\" is not a state"),
            (item(r#""stateBefore":"ACTIVE""#), "/items/0: an ADD has no state before"),
            (item(r#""change":"ADD""#), "/items/0: duplicate field `change`"),
            (item(r#""content":{"url":"urn:x:1","size":-1}"#), "/items/0/content/size: invalid value"),
            (item(r#""content":{"url":"urn:x:1","mediaType":"words"}"#), "/items/0/content/mediaType: \"words\""),
            (
                item(r#""content":{"url":"urn:x:1","digest":{"algorithm":"md5","value":"0"}}"#),
                "/items/0/content/digest: ",
            ),
        ] {
            assert!(complaint(&body).starts_with(placed), "{body}: {}", complaint(&body));
        }
    }

    #[test]
    fn pointer_is_escaped() {
        let complaint = read::<BTreeMap<String, u8>>(br#"{"a/b~c":"x"}"#).unwrap_err().to_string();
        assert!(complaint.starts_with("/a~1b~0c: invalid type"), "{complaint}");
    }
}
