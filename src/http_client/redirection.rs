//! Texts of headers, and the targets of redirections. Servers write UTF-8 and Latin-1 into headers, not only ASCII.

use std::borrow::Cow;

use axum::http::{HeaderMap, HeaderValue, header::LOCATION};
use url::Url;

/// Returns the text of a header: as UTF-8, or else as Latin-1, which has a character for each byte.
#[must_use]
pub fn header_text(value: &HeaderValue) -> Cow<'_, str> {
    let bytes = value.as_bytes();
    std::str::from_utf8(bytes).map_or_else(|_| bytes.iter().map(|b| char::from(*b)).collect(), Cow::Borrowed)
}

/// Returns the target of a redirection, relative to the URL of the request; `None` if it is no URL.
#[must_use]
pub fn redirection_target(headers: &HeaderMap, url: &Url) -> Option<Url> {
    url.join(&header_text(headers.get(LOCATION)?)).ok()
}

#[cfg(test)]
mod tests {
    use super::{HeaderMap, HeaderValue, LOCATION, Url, redirection_target};

    #[test]
    fn targets_are_read_from_utf8_and_latin1() {
        let url = Url::parse("https://h.example/a/b").unwrap();
        for (value, target) in [
            ("/s3/ü.csv".as_bytes(), Some("https://h.example/s3/%C3%BC.csv")),
            (b"c\xfc", Some("https://h.example/a/c%C3%BC")),
            (b"//[", None),
        ] {
            let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_bytes(value).unwrap())]);
            assert_eq!(redirection_target(&headers, &url).map(String::from).as_deref(), target);
        }
    }
}
