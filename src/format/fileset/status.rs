//! Outcome of an ingest, or of one of its files.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

use crate::model::State;

/// A status of Sandcrawler's vocabulary, as in `success` or `too-large-size`. The vocabulary is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IngestStatus(Cow<'static, str>);

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
    /// The strategy is not configured.
    NO_STRATEGY_HELPER = "no-strategy-helper",
    /// A file could not be downloaded from the platform.
    ERROR_PLATFORM_DOWNLOAD = "error-platform-download",
    /// A file could not be uploaded to the archive.
    ERROR_ARCHIVEORG_UPLOAD = "error-archiveorg-upload",
    /// The path of a file leaves its folder, or cannot be a file name.
    UNSAFE_PATH = "unsafe-path",
    /// A file has another size than its manifest says.
    MISMATCH_SIZE = "mismatch-size",
    /// A file has another MD5 than its manifest says.
    MISMATCH_MD5 = "mismatch-md5",
    /// A file has another SHA-1 than its manifest says.
    MISMATCH_SHA1 = "mismatch-sha1",
    /// A file has another SHA-256 than its manifest says.
    MISMATCH_SHA256 = "mismatch-sha256",
    /// The bundle cannot be read, or has two members with the same path.
    BAD_BUNDLE = "bad-bundle",
    /// The bundle lacks a file of the manifest.
    MISSING_IN_BUNDLE = "missing-in-bundle",
    /// The ingest took too long.
    TIMEOUT = "timeout",
    /// The ingest was cancelled.
    CANCELLED = "cancelled",
}

impl IngestStatus {
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
            "mismatch-md5" | "mismatch-sha1" | "mismatch-sha256" => "mismatch-digest",
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
