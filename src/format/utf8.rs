//! Decodes bodies as UTF-8 and rejects other encodings with the location.

use super::{Location, Rejection};

/// Returns the text of `body` without a byte order mark.
///
/// # Errors
/// Fails if the body is not UTF-8.
pub(super) fn utf8(body: &[u8]) -> Result<&str, Rejection> {
    if body.starts_with(&[0xFE, 0xFF]) || body.starts_with(&[0xFF, 0xFE]) {
        return Err(Rejection::malformed(Location::Message, "the body is UTF-16; send it in UTF-8"));
    }
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    std::str::from_utf8(body).map_err(|error| {
        // The bytes before this offset are valid UTF-8.
        let before = String::from_utf8_lossy(&body[..error.valid_up_to()]);
        Rejection::malformed(
            Location::in_text(&before, before.len()),
            "the body is not UTF-8 from here on; send it in UTF-8",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::utf8;

    #[test]
    fn byte_order_mark_is_skipped() {
        assert_eq!(utf8(b"\xEF\xBB\xBFa").unwrap(), "a");
    }

    #[test]
    fn invalid_utf_8_is_rejected_with_location() {
        assert!(utf8(b"\xFF\xFEa\0").unwrap_err().to_string().contains("UTF-16"));
        assert!(utf8("a\né".as_bytes()).is_ok());
        let complaint = utf8(b"a\n\xC3\xA9\xE9 ").unwrap_err().to_string();
        assert!(complaint.starts_with("line 2, column 2: the body is not UTF-8"), "{complaint}");
    }
}
