//! Tests of the folder of an export: what a run continues, replaces and refuses.

use std::fs;

use serde_json::{json, value::to_raw_value};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{ChangePage, Contents, ExportError, ExportFolder, Format, NOTE, Written};

/// Writes a page with these changes into a folder with ten numbers in a file.
fn write(folder: &std::path::Path, seqs: &[u64]) -> Result<Written, ExportError> {
    let contents = Contents { journal: Uuid::nil(), format: Format::Ndjson(None), rows: 10, filter: Vec::new() };
    let folder = ExportFolder::open(folder, &contents)?;
    let (pages, received) = mpsc::channel(1);
    let changes = seqs.iter().map(|seq| to_raw_value(&json!({ "seq": seq })).unwrap()).collect();
    pages.try_send(ChangePage { changes, next: seqs.last().copied(), journal: Uuid::nil() }).unwrap();
    drop(pages);
    folder.write(received)
}

fn files(folder: &std::path::Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "ndjson"))
        .map(|path| (path.file_stem().unwrap().to_str().unwrap()[26..].to_owned(), fs::read_to_string(path).unwrap()))
        .collect();
    files.sort();
    files
}

fn edit_note(folder: &std::path::Path, edit: impl FnOnce(&mut serde_json::Value)) {
    let path = folder.join(NOTE);
    let mut note = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut note);
    fs::write(&path, note.to_string()).unwrap();
}

#[test]
fn file_that_was_kept_is_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[11, 12]).unwrap();
    // Retention has removed changes of the file, and a run without changes has kept the file.
    edit_note(folder.path(), |note| {
        note["last_file"] = json!(null);
        note["through"] = json!(14);
    });
    let written = write(folder.path(), &[15, 16]).unwrap();
    assert_eq!((written.files, written.kept), (1, 1));
    let line = |seq: u64| format!("{{\"seq\":{seq}}}\n");
    let expected = [("1", line(11) + &line(12)), ("5", line(15) + &line(16))];
    let found = files(folder.path());
    assert_eq!(found.iter().map(|(name, text)| (&name[1..], text.clone())).collect::<Vec<_>>(), expected);
}

#[test]
fn file_that_the_note_does_not_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[1, 2]).unwrap();
    edit_note(folder.path(), |note| {
        note["last_file"] = json!(null);
        note["through"] = json!(10);
    });
    let unknown = folder.path().join(format!("changes-{:020}.ndjson", 11));
    fs::write(&unknown, "of somebody").unwrap();
    let refused = write(folder.path(), &[11]).unwrap_err();
    assert!(matches!(&refused, ExportError::Unknown(path) if *path == unknown), "{refused}");
    assert_eq!(fs::read_to_string(&unknown).unwrap(), "of somebody");
}

/// A run that is killed after the file has its name, and before the note says so.
#[test]
fn file_of_a_killed_run_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[11]).unwrap();
    edit_note(folder.path(), |note| {
        assert_eq!(note["last_file"], json!({ "first": 11, "after": 10 }));
        note["through"] = json!(10);
    });
    write(folder.path(), &[11, 12]).unwrap();
    let found = files(folder.path());
    assert_eq!((found.len(), found[0].1.lines().count()), (1, 2));
}
