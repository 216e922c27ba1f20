//! Messages in files: where they are, what media type they have, which headers go with them.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// The largest message that is read, in bytes: more than a gateway takes, and less than a machine has.
pub(super) const MAX_BYTES: u64 = 64 << 20;

/// How the names of messages in a folder end. Other files there may be anything, secrets included.
const MESSAGES: [&str; 4] = ["xml", "json", "jsonld", "bin"];

/// The messages of some paths.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// Files of messages, in order.
    pub(super) files: Vec<PathBuf>,
    /// Files of folders that are no messages by their names.
    pub(super) left_out: Vec<PathBuf>,
}

/// The messages of `paths`: a file as it is, of a folder the files whose names end as those of messages, those of its
/// folders too, sorted by path. Of a folder only regular files count, and no sidecars.
///
/// # Errors
/// When a path cannot be read; the message names it.
pub(super) fn all_of(paths: &[PathBuf]) -> Result<Messages, String> {
    let mut messages = Messages::default();
    for path in paths {
        if path.metadata().map_err(|error| cannot_read(path, &error))?.is_dir() {
            let mut found = Vec::new();
            walk(path, &mut found)?;
            found.sort();
            let (mut files, mut left_out) = found.into_iter().partition(|path| is_message(path));
            messages.files.append(&mut files);
            messages.left_out.append(&mut left_out);
        } else {
            messages.files.push(path.clone());
        }
    }
    Ok(messages)
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), String> {
    for entry in folder.read_dir().map_err(|error| cannot_read(folder, &error))? {
        let entry = entry.map_err(|error| cannot_read(folder, &error))?;
        // Links are not followed: they may lead round in circles.
        let kind = entry.file_type().map_err(|error| cannot_read(&entry.path(), &error))?;
        if kind.is_dir() {
            walk(&entry.path(), found)?;
        } else if kind.is_file() && !is_sidecar(&entry.path()) {
            found.push(entry.path());
        }
    }
    Ok(())
}

fn is_message(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    MESSAGES.iter().any(|message| extension.eq_ignore_ascii_case(message))
}

fn is_sidecar(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".headers") || name.ends_with(".settings.json")
}

/// The media type that the name of a file tells.
pub(super) fn media_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("xml") => "application/atom+xml",
        Some("json") => "application/json",
        Some("jsonld") => "application/ld+json",
        _ => "application/octet-stream",
    }
}

/// The headers in a file's sidecar: `event.json.headers`, or `event.headers`, beside `event.json`.
///
/// # Errors
/// When there is a sidecar that cannot be read or has a line that is no header.
pub(super) fn headers_beside(path: &Path) -> Result<Vec<(String, String)>, String> {
    let mut whole = path.as_os_str().to_owned();
    whole.push(".headers");
    for sidecar in [PathBuf::from(whole), path.with_extension("headers")] {
        match read(&sidecar) {
            Ok(text) => {
                let text = String::from_utf8_lossy(&text);
                let lines = text.lines().filter(|line| !line.trim().is_empty());
                let headers = lines.map(header).collect::<Result<_, _>>();
                return headers.map_err(|reason| format!("{}: {reason}", sidecar.display()));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(cannot_read(&sidecar, &error)),
        }
    }
    Ok(Vec::new())
}

/// Takes `Name: value`.
///
/// # Errors
/// When it is something else. The text is not repeated, since it may hold a password.
pub(super) fn header(line: &str) -> Result<(String, String), String> {
    let parts = line.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    parts.filter(|(name, _)| !name.is_empty()).ok_or_else(|| "a header is written as in Name: value".to_owned())
}

/// Reads a file whole.
///
/// # Errors
/// When it cannot be read, or is larger than [`MAX_BYTES`].
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_bounded(File::open(path)?)
}

/// Reads everything.
///
/// # Errors
/// When it cannot be read, or is more than [`MAX_BYTES`].
pub(super) fn read_bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it has more than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

/// Says that a path cannot be read.
pub(super) fn cannot_read(path: &Path, error: &io::Error) -> String {
    format!("cannot read {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::{all_of, header, headers_beside, media_type};

    #[test]
    fn a_folder_has_its_files_in_order_without_sidecars() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("b")).unwrap();
        for name in ["c.xml", "a.json", "b/2.BIN", "b/1.jsonld", "a.headers", "a.json.headers", "a.settings.json"] {
            fs::write(path(name), "Name: value\n\nOther:x:y\n").unwrap();
        }
        std::os::unix::fs::symlink(folder.path(), path("circle")).unwrap();
        let names = ["a.json", "b/1.jsonld", "b/2.BIN", "c.xml"];
        assert_eq!(all_of(&[folder.path().to_owned()]).unwrap().files, names.map(path));
        let mut given = names.map(path).to_vec();
        given.insert(0, path("c.xml"));
        assert_eq!(all_of(&[path("c.xml"), folder.path().to_owned()]).unwrap().files, given);
        assert!(all_of(&[path("none")]).unwrap_err().starts_with("cannot read "));
    }

    #[test]
    fn other_files_of_a_folder_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let others = ["journal.lock", "journal.sqlite", "no-extension", "tidings.toml", "xml"];
        for name in others.into_iter().chain(["a.xml"]) {
            fs::write(path(name), "").unwrap();
        }
        let messages = all_of(&[folder.path().to_owned(), path("tidings.toml")]).unwrap();
        assert_eq!(messages.files, ["a.xml", "tidings.toml"].map(path), "one that is named itself is a message");
        assert_eq!(messages.left_out, others.map(path));
    }

    #[test]
    fn headers_stand_beside() {
        let folder = tempfile::tempdir().unwrap();
        let event = folder.path().join("event.json");
        assert_eq!(headers_beside(&event).unwrap(), []);
        fs::write(folder.path().join("event.headers"), "A: 1\n").unwrap();
        assert_eq!(headers_beside(&event).unwrap(), [("A".to_owned(), "1".to_owned())]);
        fs::write(folder.path().join("event.json.headers"), "B: x:y\n\n").unwrap();
        assert_eq!(headers_beside(&event).unwrap(), [("B".to_owned(), "x:y".to_owned())]);
        fs::write(folder.path().join("event.json.headers"), "nonsense").unwrap();
        assert!(headers_beside(&event).unwrap_err().ends_with("a header is written as in Name: value"));
        assert!(header(": x").is_err());
    }

    #[test]
    fn the_name_tells_the_media_type() {
        for (name, expected) in [
            ("a.xml", "application/atom+xml"),
            ("a.json", "application/json"),
            ("a.jsonld", "application/ld+json"),
            ("a.bin", "application/octet-stream"),
            ("a", "application/octet-stream"),
        ] {
            assert_eq!(media_type(Path::new(name)), expected);
        }
    }
}
