//! Message files: their selection in folders, their media types and their header sidecars.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Maximum size of a message, in bytes: larger than a gateway accepts, smaller than the memory of a machine.
pub(super) const MAX_BYTES: u64 = 64 << 20;

/// Extensions of message files in a folder. Other files are skipped, because they may contain secrets.
const MESSAGE_EXTENSIONS: [&str; 4] = ["xml", "json", "jsonld", "bin"];

/// Message files that the given paths select.
#[derive(Debug, Default)]
pub(super) struct MessageFiles {
    /// Message files, in the order in which they are posted.
    pub(super) files: Vec<PathBuf>,
    /// Files in folders that do not have the extension of a message.
    pub(super) skipped: Vec<PathBuf>,
}

/// Selects the message files of `paths`. A file is selected whatever its name is. In a folder and its subfolders,
/// regular files with the extension of a message are selected, sorted by path; header sidecars are not.
///
/// # Errors
/// Fails if a path cannot be read; the error names it.
pub(super) fn message_files(paths: &[PathBuf]) -> Result<MessageFiles, String> {
    let mut messages = MessageFiles::default();
    for path in paths {
        if path.metadata().map_err(|error| cannot_read(path, &error))?.is_dir() {
            let mut found = Vec::new();
            collect_files(path, &mut found)?;
            found.sort();
            let (mut files, mut skipped) = found.into_iter().partition(|path| is_message(path));
            messages.files.append(&mut files);
            messages.skipped.append(&mut skipped);
        } else {
            messages.files.push(path.clone());
        }
    }
    Ok(messages)
}

fn collect_files(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), String> {
    for entry in folder.read_dir().map_err(|error| cannot_read(folder, &error))? {
        let entry = entry.map_err(|error| cannot_read(folder, &error))?;
        // Symbolic links are not followed, because they may form a cycle.
        let kind = entry.file_type().map_err(|error| cannot_read(&entry.path(), &error))?;
        if kind.is_dir() {
            collect_files(&entry.path(), found)?;
        } else if kind.is_file() && !is_sidecar(&entry.path()) {
            found.push(entry.path());
        }
    }
    Ok(())
}

fn is_message(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    MESSAGE_EXTENSIONS.iter().any(|message| extension.eq_ignore_ascii_case(message))
}

fn is_sidecar(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".headers") || name.ends_with(".settings.json")
}

/// Returns the media type that the extension of a file implies.
pub(super) fn media_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("xml") => "application/atom+xml",
        Some("json") => "application/json",
        Some("jsonld") => "application/ld+json",
        _ => "application/octet-stream",
    }
}

/// Reads the headers in the sidecar of a file: `event.json.headers` or `event.headers` for `event.json`.
///
/// # Errors
/// Fails if the sidecar cannot be read or has a line that is not a header.
pub(super) fn sidecar_headers(path: &Path) -> Result<Vec<(String, String)>, String> {
    let mut appended = path.as_os_str().to_owned();
    appended.push(".headers");
    for sidecar in [PathBuf::from(appended), path.with_extension("headers")] {
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

/// Parses a header line, `Name: value`.
///
/// # Errors
/// Fails if the line has another form. The error does not repeat the line, because it may contain a password.
pub(super) fn header(line: &str) -> Result<(String, String), String> {
    let parts = line.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    parts.filter(|(name, _)| !name.is_empty()).ok_or_else(|| "write a header as NAME: VALUE".to_owned())
}

/// Reads a file.
///
/// # Errors
/// Fails if the file cannot be read or is larger than [`MAX_BYTES`].
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_bounded(File::open(path)?)
}

/// Reads the whole input.
///
/// # Errors
/// Fails if the input cannot be read or is larger than [`MAX_BYTES`].
pub(super) fn read_bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it is larger than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

/// Returns the message for a path that cannot be read.
pub(super) fn cannot_read(path: &Path, error: &io::Error) -> String {
    format!("cannot read {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::{header, media_type, message_files, sidecar_headers};

    #[test]
    fn files_of_a_folder_are_sorted_without_sidecars() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("b")).unwrap();
        for name in ["c.xml", "a.json", "b/2.BIN", "b/1.jsonld", "a.headers", "a.json.headers", "a.settings.json"] {
            fs::write(path(name), "Name: value\n\nOther:x:y\n").unwrap();
        }
        std::os::unix::fs::symlink(folder.path(), path("circle")).unwrap();
        let names = ["a.json", "b/1.jsonld", "b/2.BIN", "c.xml"];
        assert_eq!(message_files(&[folder.path().to_owned()]).unwrap().files, names.map(path));
        let mut given = names.map(path).to_vec();
        given.insert(0, path("c.xml"));
        assert_eq!(message_files(&[path("c.xml"), folder.path().to_owned()]).unwrap().files, given);
        assert!(message_files(&[path("none")]).unwrap_err().starts_with("cannot read "));
    }

    #[test]
    fn other_files_of_a_folder_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let others = ["journal.lock", "journal.sqlite", "no-extension", "tidings.toml", "xml"];
        for name in others.into_iter().chain(["a.xml"]) {
            fs::write(path(name), "").unwrap();
        }
        let messages = message_files(&[folder.path().to_owned(), path("tidings.toml")]).unwrap();
        assert_eq!(messages.files, ["a.xml", "tidings.toml"].map(path), "a file given by name is a message");
        assert_eq!(messages.skipped, others.map(path));
    }

    #[test]
    fn sidecar_headers_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let event = folder.path().join("event.json");
        assert_eq!(sidecar_headers(&event).unwrap(), []);
        fs::write(folder.path().join("event.headers"), "A: 1\n").unwrap();
        assert_eq!(sidecar_headers(&event).unwrap(), [("A".to_owned(), "1".to_owned())]);
        fs::write(folder.path().join("event.json.headers"), "B: x:y\n\n").unwrap();
        assert_eq!(sidecar_headers(&event).unwrap(), [("B".to_owned(), "x:y".to_owned())]);
        fs::write(folder.path().join("event.json.headers"), "nonsense").unwrap();
        assert!(sidecar_headers(&event).unwrap_err().ends_with("write a header as NAME: VALUE"));
        assert!(header(": x").is_err());
    }

    #[test]
    fn media_type_depends_on_the_extension() {
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
