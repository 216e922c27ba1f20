//! The file store in a bucket of an S3-compatible server: settings, and the description of failed requests.

#[cfg_attr(not(feature = "s3"), path = "s3/absent.rs")]
mod client;

use std::{fmt, path::PathBuf};

use url::Url;

use self::client::connection_error;
use crate::web::Secret;

pub(super) use self::client::open;

/// Maximum size of a file in S3, in bytes: a larger object cannot be copied to its name in one request (`CopyObject`).
pub(super) const MAX_FILE_BYTES: u64 = 5 << 30;

/// Settings of a bucket. Printing them omits the keys.
#[derive(Clone, Debug)]
pub struct S3Settings {
    /// URL of the server, without user, query and fragment. The name of the bucket is added to its path.
    pub endpoint: Url,
    /// Region, which is a part of each signature.
    pub region: S3Name,
    /// The bucket.
    pub bucket: S3Name,
    /// Folders in the bucket below which all objects are; empty for the bucket itself.
    pub prefix: Vec<S3Name>,
    /// Identifier of the key.
    pub access_key: Secret,
    /// The key.
    pub secret_key: Secret,
    /// PEM file of the CA certificates to trust instead of those of the operating system.
    pub ca: Option<PathBuf>,
}

impl S3Settings {
    /// Returns the `s3:` URL of the bucket, or of the folder in it.
    pub(super) fn url(&self) -> String {
        let mut url = format!("s3://{}", self.bucket);
        self.prefix.iter().for_each(|folder| url.push_str(&format!("/{folder}")));
        url
    }
}

impl fmt::Display for S3Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.url(), self.endpoint)
    }
}

/// Name of a bucket, of a region, or of a folder in a bucket: letters, digits, `.`, `_` and `-`, 1 to 63 characters, of
/// which the first one is a letter or a digit. So it needs no encoding in a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Name(String);

impl S3Name {
    /// Parses a name; `None` if the text is anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_name = text.len() <= 63
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
        is_name.then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for S3Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns whether an error says that the bucket is missing, and not only an object.
pub(super) fn is_bucket_missing(error: &object_store::Error) -> bool {
    error_code(&error.to_string()) == Some("NoSuchBucket")
}

/// Describes a failed request, and what to do in this table of the configuration. The text of the library contains the whole response, in which servers
/// repeat keys and signatures, so only the status and the error code are taken from it.
pub(super) fn describe(error: &object_store::Error, table: &str) -> String {
    if let Some(reason) = connection_error(error) {
        return format!("{reason}; check {table}.endpoint, and whether the server runs");
    }
    let text = error.to_string();
    let (status, code) = (status(&text), error_code(&text));
    let facts: Vec<&str> = [status, code].into_iter().flatten().collect();
    let facts = facts.join(", ");
    match (code.unwrap_or_default(), status.unwrap_or_default().get(..3).unwrap_or_default()) {
        ("NoSuchBucket", _) => format!("the bucket does not exist ({facts}); create it, or correct {table}.bucket"),
        ("RequestTimeTooSkewed", _) => {
            format!("the clocks of this machine and of the server differ ({facts}); set the wrong one")
        }
        ("AuthorizationHeaderMalformed" | "PermanentRedirect" | "TemporaryRedirect", _) | (_, "301" | "307") => {
            format!("the bucket is in another region ({facts}); correct {table}.region and {table}.endpoint")
        }
        (_, "401" | "403") => format!(
            "the server refuses the request ({facts}); check {table}.access_key, {table}.secret_key, and the rights of \
             this key in the bucket"
        ),
        _ if text.contains("redirect without LOCATION") => {
            format!("the bucket is in another region; correct {table}.region and {table}.endpoint")
        }
        _ if facts.is_empty() => format!("the response is not that of an S3 server; check {table}.endpoint"),
        _ => format!("the server answers {facts}"),
    }
}

/// Returns the status in a text of the library, as in `404 Not Found`.
fn status(text: &str) -> Option<&str> {
    let (_, after) = text.split_once("status code: ")?;
    after.split_once(':').map(|(status, _)| status)
}

/// Returns the error code of the response in a text of the library.
fn error_code(text: &str) -> Option<&str> {
    let (_, after) = text.split_once("<Code>")?;
    let (code, _) = after.split_once("</Code>")?;
    (code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::{S3Name, describe, is_bucket_missing};

    fn error(text: &str) -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn failure_is_described_without_the_response() {
        let response = |status: &str, code: &str| {
            format!(
                "Server returned non-2xx status code: {status}: <Error><Code>{code}</Code><AWSAccessKeyId>hush</AWSAccessKeyId></Error>"
            )
        };
        for (text, expected) in [
            (
                response("403 Forbidden", "SignatureDoesNotMatch"),
                "refuses the request (403 Forbidden, SignatureDoesNotMatch)",
            ),
            (
                response("404 Not Found", "NoSuchBucket"),
                "the bucket does not exist (404 Not Found, NoSuchBucket); create it",
            ),
            (response("403 Forbidden", "RequestTimeTooSkewed"), "the clocks of this machine and of the server differ"),
            (response("301 Moved Permanently", "PermanentRedirect"), "the bucket is in another region"),
            (
                response("500 Internal Server Error", "InternalError"),
                "the server answers 500 Internal Server Error, InternalError",
            ),
            ("hush".to_owned(), "the response is not that of an S3 server"),
        ] {
            let described = describe(&error(&text), "files.s3");
            assert!(described.contains(expected) && !described.contains("hush"), "{described}");
        }
        assert!(is_bucket_missing(&error(&response("404 Not Found", "NoSuchBucket"))));
        assert!(!is_bucket_missing(&error(&response("404 Not Found", "NoSuchKey"))));
    }

    #[test]
    fn names_need_no_encoding() {
        for (text, is_name) in [("a.b-c_1", true), ("", false), ("a/b", false), ("..", false), ("a b", false)] {
            assert_eq!(S3Name::parse(text).is_some(), is_name, "{text}");
        }
    }
}
