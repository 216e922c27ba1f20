//! Filters of templates for parts of URIs.

use minijinja::{Error, ErrorKind, value::Value};
use percent_encoding::utf8_percent_encode;
use url::{Url, form_urlencoded};

use super::PATH;

/// Filter `path`: the path and the query of a URI, encoded as in the URI. They begin with a slash.
pub(super) fn uri_path(uri: &str) -> Result<Value, Error> {
    let url = parse_uri(uri)?;
    let query = url.query().map_or_else(String::new, |query| format!("?{query}"));
    Ok(Value::from_safe_string(format!("/{}{query}", url.path().trim_start_matches('/'))))
}

/// Filter `authority`: the host of a URI, with the port if it is not that of the scheme.
pub(super) fn uri_authority(uri: &str) -> Result<Value, Error> {
    let url = parse_uri(uri)?;
    let host = url.host_str().unwrap_or_default();
    let authority = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    Ok(Value::from_safe_string(authority))
}

/// Filter `segments`: a text as segments of a path, percent-encoded except for its slashes.
pub(super) fn segments(text: &Value) -> Result<Value, Error> {
    let text = text_of(text)?;
    let encoded: Vec<_> = text.split('/').map(|segment| utf8_percent_encode(segment, PATH).to_string()).collect();
    Ok(Value::from_safe_string(encoded.join("/")))
}

/// Filter `form_decoded`: a text without the encoding of forms, in which `+` is a space.
pub(super) fn form_decoded(text: &Value) -> Result<String, Error> {
    // Without these characters, the whole text is the name of one field.
    let escaped = text_of(text)?.replace('=', "%3D").replace('&', "%26");
    Ok(form_urlencoded::parse(escaped.as_bytes()).map(|(name, _)| name.into_owned()).collect())
}

/// Returns a value as text. A fact that is not there is the same error as where it is written.
fn text_of(value: &Value) -> Result<String, Error> {
    if value.is_undefined() { Err(ErrorKind::UndefinedError.into()) } else { Ok(value.to_string()) }
}

fn parse_uri(uri: &str) -> Result<Url, Error> {
    Url::parse(uri).map_err(|_| Error::new(ErrorKind::InvalidOperation, "it is not a URI"))
}
