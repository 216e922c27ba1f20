//! JSON: the model's own shape (`docs/json.md`), written, and read with the place of every complaint.

use serde::{Serialize, de::DeserializeOwned};
use serde_path_to_error::Segment;

use super::{FormatKind, Place, Rejection, xml};
use crate::model::{Change, ContentObjectModification};

/// Our JSON as a format.
pub(super) static JSON: FormatKind = FormatKind {
    name: "json",
    media_type: "application/json",
    about: "the model as JSON, one object a change",
    write: |change: &Change| write(change),
    write_modification: |modification: &ContentObjectModification| write(modification),
};

#[expect(clippy::expect_used, reason = "the model has no map with keys that are not strings, and a Vec takes all")]
fn write(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("the model has a JSON shape for every value")
}

/// Reads one JSON document, and nothing after it.
///
/// # Errors
/// Malformed, with line and column, when it is not JSON; unprocessable, with a pointer to the
/// member, when it is JSON of another shape.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Rejection> {
    let text = xml::utf8(body)?;
    let mut document = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut document).map_err(|error| {
        let place = pointer(error.path());
        complaint(text, error.inner(), place)
    })?;
    document.end().map_err(|error| complaint(text, &error, Place::Message))?;
    Ok(value)
}

/// A complaint about the shape is placed by its member, one about JSON itself by line and column.
fn complaint(text: &str, error: &serde_json::Error, member: Place) -> Rejection {
    let reason = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    let reason = reason.strip_suffix(&position).unwrap_or(&reason);
    if error.is_data() {
        Rejection::unprocessable(member, reason)
    } else {
        let offset = offset(text, error.line(), error.column());
        Rejection::malformed(Place::in_text(text, offset), format!("this is not well-formed JSON: {reason}"))
    }
}

/// The offset of a place that serde_json gives as line and column: the column counts bytes, from 1,
/// and is 0 for a newline itself.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let line_start = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum::<usize>();
    line_start + column.saturating_sub(1)
}

/// RFC 6901 section 3.
fn pointer(path: &serde_path_to_error::Path) -> Place {
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
    Place::Pointer(pointer)
}
