//! Metadata of a new item, as the headers of the first upload.

use axum::http::{HeaderName, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use crate::{filesets::platform::Dataset, format::fileset::public_url::without_secrets};

/// Maximum length of a value of the metadata, as it is sent.
const MAX_VALUE_BYTES: usize = 8 * 1024;

/// Maximum number of values of one kind, such as authors.
const MAX_VALUES: usize = 100;

/// Beginning of the identifier by which an item names its dataset.
pub(super) const OWNER: &str = "urn:tidings:";

/// Returns the identifier by which an item names its dataset. It identifies the version too, where an item is one of a
/// version.
pub(super) fn owner(dataset: &Dataset) -> String {
    format!("{OWNER}{}", dataset.identity())
}

/// Returns the headers with the metadata of a new item.
pub(super) fn headers(dataset: &Dataset, collection: &str, source: &Url) -> Vec<(HeaderName, HeaderValue)> {
    let of = &dataset.metadata;
    let one = |value: &Option<String>| value.iter().cloned().collect::<Vec<_>>();
    let values = [
        ("collection", vec![collection.to_owned()]),
        ("mediatype", vec!["data".to_owned()]),
        ("title", one(&of.title)),
        ("creator", of.creators.clone()),
        ("date", one(&of.date)),
        ("description", one(&of.description)),
        ("doi", one(&of.doi)),
        ("license", one(&of.license)),
        ("source", vec![without_secrets(source.as_str())]),
        ("external-identifier", vec![owner(dataset)]),
        ("version", one(&of.version)),
    ];
    let mut headers = Vec::new();
    for (name, values) in values {
        for (index, value) in values.iter().filter(|value| !value.trim().is_empty()).take(MAX_VALUES).enumerate() {
            let name = HeaderName::try_from(format!("x-archive-meta{index:02}-{name}"));
            headers.extend(name.ok().zip(HeaderValue::try_from(header_safe(value)).ok()));
        }
    }
    headers
}

/// Returns a value as a header can carry it: text in ASCII as it is, and any other percent-encoded, as in `uri(%C3%A9)`.
fn header_safe(value: &str) -> String {
    let is_plain = value.bytes().all(|b| matches!(b, b' '..=b'~'))
        && !value.contains("  ")
        && value.trim() == value
        && !value.starts_with("uri(")
        && value.len() <= MAX_VALUE_BYTES;
    if is_plain {
        return value.to_owned();
    }
    let mut encoded = "uri(".to_owned();
    for c in value.chars() {
        let piece = utf8_percent_encode(c.encode_utf8(&mut [0; 4]), NON_ALPHANUMERIC).to_string();
        if encoded.len() + piece.len() >= MAX_VALUE_BYTES {
            break;
        }
        encoded += &piece;
    }
    encoded + ")"
}

#[cfg(test)]
mod tests {
    use super::header_safe;

    #[test]
    fn values_are_safe_in_headers() {
        for (value, header) in [
            ("A title", "A title"),
            ("Ein Datensatz über X", "uri(Ein%20Datensatz%20%C3%BCber%20X)"),
            ("a\r\nx-evil: 1", "uri(a%0D%0Ax%2Devil%3A%201)"),
            ("a  b", "uri(a%20%20b)"),
            ("uri(x)", "uri(uri%28x%29)"),
        ] {
            assert_eq!(header_safe(value), header);
        }
        assert!(header_safe(&"ü".repeat(10_000)).len() <= 8192);
    }
}
