//! Outcome of an ingest, or of one of its files.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

use crate::model::State;

/// A status of Sandcrawler's vocabulary, as in `success` or `too-large-size`. The vocabulary is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IngestStatus(Cow<'static, str>);

/// Maximum length of the word of a capture service, in characters.
const MAX_WORD_CHARS: usize = 60;

/// Declares the statuses that the gateway itself gives.
macro_rules! statuses {
    ($($(#[$doc:meta])* $NAME:ident = $text:literal,)*) => {
        impl IngestStatus {
            $($(#[$doc])* pub const $NAME: Self = Self(Cow::Borrowed($text));)*

            /// All statuses that the gateway itself gives.
            pub const KNOWN: &'static [Self] = &[$(Self::$NAME),*];
        }
    };
}

statuses! {
    /// All files are archived.
    SUCCESS = "success",
    /// The only file is archived.
    SUCCESS_FILE = "success-file",
    /// All files were archived before.
    SUCCESS_EXISTING = "success-existing",
    /// A blocklist forbids the URL.
    SKIP_URL_BLOCKLIST = "skip-url-blocklist",
    /// The landing page or a file could not be requested.
    NO_CAPTURE = "no-capture",
    /// A redirection leads nowhere.
    BAD_REDIRECT = "bad-redirect",
    /// Redirections lead back to a URL that was requested before.
    REDIRECT_LOOP = "redirect-loop",
    /// There are too many redirections.
    REDIRECTS_EXCEEDED = "redirects-exceeded",
    /// The last response has a status other than 200 or 226.
    TERMINAL_BAD_STATUS = "terminal-bad-status",
    /// The body of the response is empty.
    EMPTY_BLOB = "empty-blob",
    /// The landing page is too large.
    BODY_TOO_LARGE = "body-too-large",
    /// The compression of the body is broken.
    BAD_GZIP_ENCODING = "bad-gzip-encoding",
    /// No platform is known for the dataset.
    NO_PLATFORM_MATCH = "no-platform-match",
    /// The platform has something else there than a version of a dataset.
    PLATFORM_SCOPE = "platform-scope",
    /// The files are not public, as during an embargo.
    PLATFORM_RESTRICTED = "platform-restricted",
    /// The platform does not have the dataset.
    PLATFORM_404 = "platform-404",
    /// The platform responded with another error status.
    PLATFORM_HTTP_ERROR = "platform-http-error",
    /// The platform could not be reached.
    PLATFORM_ERROR = "platform-error",
    /// The response of the platform is not what its interface promises.
    PLATFORM_BAD_ANSWER = "platform-bad-answer",
    /// The dataset has no files.
    EMPTY_MANIFEST = "empty-manifest",
    /// The files together are too large.
    TOO_LARGE_SIZE = "too-large-size",
    /// There are too many files.
    TOO_MANY_FILES = "too-many-files",
    /// A file could not be downloaded from the platform.
    ERROR_PLATFORM_DOWNLOAD = "error-platform-download",
    /// A file could not be uploaded to the archive.
    ERROR_ARCHIVEORG_UPLOAD = "error-archiveorg-upload",
    /// The path of a file leaves its folder, or cannot be a file name.
    UNSAFE_PATH = "unsafe-path",
    /// The archive had the file before. Only files have this status.
    EXISTS = "exists",
    /// The archive has other content under the path of a file.
    MISMATCH_EXISTING = "mismatch-existing",
    /// A file has another size than its manifest says.
    MISMATCH_SIZE = "mismatch-size",
    /// A file has another MD5 than its manifest says.
    MISMATCH_MD5 = "mismatch-md5",
    /// A file has another SHA-1 than its manifest says.
    MISMATCH_SHA1 = "mismatch-sha1",
    /// A file has another SHA-256 than its manifest says.
    MISMATCH_SHA256 = "mismatch-sha256",
    /// A file has another SHA-512 than its manifest says.
    MISMATCH_SHA512 = "mismatch-sha512",
    /// A capture is another one than the index of the web archive says.
    WAYBACK_CONTENT_ERROR = "wayback-content-error",
    /// The replay of the web archive failed.
    WAYBACK_ERROR = "wayback-error",
    /// The index of the web archive failed.
    CDX_ERROR = "cdx-error",
    /// More files need a capture than one dataset may have.
    TOO_MUCH_SPN = "too-much-spn",
    /// The capture service failed, or has no free session.
    SPN2_ERROR = "spn2-error",
    /// The capture service has a recent capture that the index lacks.
    SPN2_RECENT_CAPTURE = "spn2-recent-capture",
    /// The capture service does not capture FTP.
    SPN2_NO_FTP = "spn2-no-ftp",
    /// The capture service has captured a URL, and names only a part of it.
    SPN2_SUCCESS_PARTIAL_URL = "spn2-success-partial-url",
    /// The index of the web archive lacks a new capture.
    SPN2_CDX_LOOKUP_FAILURE = "spn2-cdx-lookup-failure",
    /// The replay of a new capture failed.
    SPN2_WAYBACK_ERROR = "spn2-wayback-error",
    /// The job of the capture service does not end.
    ERROR_PENDING = "error:pending",
    /// The capture service refuses the URL.
    INVALID_URL = "invalid-url",
    /// The captured server does not have the URL.
    NOT_FOUND = "not-found",
    /// The captured server refuses the request.
    FORBIDDEN = "forbidden",
    /// The name of the captured server is unknown.
    INVALID_HOST_RESOLUTION = "invalid-host-resolution",
    /// The captured server is behind a gateway that has waited too long.
    GATEWAY_TIMEOUT = "gateway-timeout",
    /// The captured server redirects too often.
    TOO_MANY_REDIRECTS = "too-many-redirects",
    /// The captured server is too slow.
    READ_TIMEOUT = "read-timeout",
    /// The captured server failed.
    REMOTE_SERVER_ERROR = "remote-server-error",
    /// The captured server wants cookies.
    BLOCKED_COOKIE = "blocked-cookie",
    /// The bundle cannot be read, or has two members with the same path.
    BAD_BUNDLE = "bad-bundle",
    /// The bundle lacks a file of the manifest.
    MISSING_IN_BUNDLE = "missing-in-bundle",
    /// Nothing was attempted.
    NOT_PROCESSED = "not-processed",
    /// The ingest took too long.
    TIMEOUT = "timeout",
    /// The ingest was cancelled.
    CANCELLED = "cancelled",
}

impl IngestStatus {
    /// Returns the status for another error of the capture service, as in `spn2-error:job-failed`.
    #[must_use]
    pub fn spn_error(word: &str) -> Self {
        let plain = word.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(MAX_WORD_CHARS);
        Self(format!("{}:{}", Self::SPN2_ERROR, plain.collect::<String>()).into())
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the files are archived.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.0.starts_with("success")
    }

    /// Returns whether a file with this status is as it was before the ingest, unless the ingest as a whole was a success:
    /// `exists` is the result of a step, and no state of the content.
    #[must_use]
    pub fn is_unchanged_file(&self) -> bool {
        self.is_success() || *self == Self::EXISTS
    }

    /// Returns the state of a dataset or file with this status: ACTIVE for a success, and otherwise the status in capital
    /// letters, as in `TOO_LARGE_SIZE`. A state has no digits, so `platform-404` is `PLATFORM_NOT_FOUND`,
    /// `mismatch-md5` is `MISMATCH_DIGEST`, and `spn2-error:…` is `SPN_ERROR`.
    #[must_use]
    pub fn state(&self) -> State {
        if self.is_success() {
            return State::ACTIVE;
        }
        let kind = match self.as_str().split(':').next().unwrap_or_default() {
            "platform-404" => "platform-not-found",
            "mismatch-md5" | "mismatch-sha1" | "mismatch-sha256" | "mismatch-sha512" => "mismatch-digest",
            kind => kind,
        };
        let letters = kind.chars().filter(|c| !c.is_ascii_digit()).map(|c| match c.to_ascii_uppercase() {
            letter @ 'A'..='Z' => letter,
            _ => '_',
        });
        State::parse(&letters.collect::<String>()).unwrap_or(State::COMPLETED_FAILURE)
    }
}

impl fmt::Display for IngestStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::IngestStatus;

    #[test]
    fn each_status_is_a_state() {
        for (status, state) in [
            ("success-existing", "ACTIVE"),
            ("too-large-size", "TOO_LARGE_SIZE"),
            ("platform-404", "PLATFORM_NOT_FOUND"),
            ("mismatch-sha256", "MISMATCH_DIGEST"),
            ("mismatch-sha512", "MISMATCH_DIGEST"),
            ("spn2-error:no-access", "SPN_ERROR"),
            ("error:pending", "ERROR"),
            ("", "COMPLETED_FAILURE"),
            ("404", "COMPLETED_FAILURE"),
        ] {
            assert_eq!(IngestStatus(status.into()).state().as_str(), state);
        }
        for status in IngestStatus::KNOWN {
            assert_ne!(status.state().as_str(), "COMPLETED_FAILURE", "{status}");
        }
    }
}
