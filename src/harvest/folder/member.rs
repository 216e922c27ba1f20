//! Files of folders and archives in one form: path, size, digest and media type.

use std::{
    ffi::OsString,
    io::{self, Read},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use percent_encoding::{percent_decode_str, percent_encode};
use tokio_util::sync::CancellationToken;

use crate::{
    files::{FileFacts, FileHasher},
    format::NOT_UNRESERVED,
};

/// Number of bytes that are read at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// Maximum length of a path or URL in a remark, in characters.
const MAX_SHOWN_CHARS: usize = 200;

/// A file with its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    /// The content was read.
    Read(FileFacts),
    /// The file exists, but its content cannot be read.
    Unreadable,
}

/// Returns a relative path in the form of URLs: percent-encoded octets between slashes.
pub(super) fn encoded(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| percent_encode(part.as_bytes(), NOT_UNRESERVED).to_string()).collect();
    parts.join("/")
}

/// Returns the path of an encoded one.
pub(super) fn decoded(path: &str) -> PathBuf {
    let part = |part: &str| OsString::from_vec(percent_decode_str(part).collect());
    path.split('/').filter(|part| !part.is_empty()).map(part).collect()
}

/// Returns a name for people, without the end of a very long one.
pub(super) fn short_name(name: &str) -> String {
    match name.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// Returns whether a path has a part that begins with a dot, as hidden files have.
pub(super) fn is_hidden(path: &Path) -> bool {
    path.iter().any(|part| part.as_bytes().first() == Some(&b'.'))
}

/// Reads content to its end. At most `budget` bytes may be read, which is reduced by the size.
///
/// # Errors
/// Fails if the content cannot be read or is larger, or if `stop` is cancelled.
pub(super) fn read(content: &mut dyn Read, budget: &mut u64, stop: &CancellationToken) -> io::Result<FileFacts> {
    let mut hasher = FileHasher::default();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        if stop.is_cancelled() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the gateway is stopping"));
        }
        let read = match content.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        *budget = budget.checked_sub(read as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        hasher.update(&buffer[..read]);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{decoded, encoded, is_hidden};

    #[test]
    fn path_is_encoded_and_decoded_without_loss() {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
        for (path, url) in [
            (&b"a/b.pdf"[..], "a/b.pdf"),
            (b"\xc3\xa9 #?%/x+y", "%C3%A9%20%23%3F%25/x%2By"),
            (b"latin\xe9", "latin%E9"),
            (b"a\nb", "a%0Ab"),
        ] {
            let path = Path::new(OsStr::from_bytes(path));
            assert_eq!(encoded(path), url);
            assert_eq!(decoded(url), path);
        }
        assert_eq!(decoded(""), Path::new(""));
    }

    #[test]
    fn hidden_parts_hide_a_path() {
        for (path, expected) in [("a/b", false), (".a/b", true), ("a/.b", true), ("a.b", false), ("", false)] {
            assert_eq!(is_hidden(Path::new(path)), expected, "{path}");
        }
    }
}
