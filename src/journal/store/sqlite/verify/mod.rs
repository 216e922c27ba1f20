//! Verification of a journal in a file, which may be in use, or of a backup. It reads a consistent snapshot and changes
//! nothing.
//!
//! In addition to the checks of every store ([`examine`]), the file itself and the runs of event keys are checked.

mod events;

use std::path::Path;

use rusqlite::Connection;

use super::{
    FILE_NAME,
    backup::open_to_read,
    lock::{Trace, read_trace},
    loss::{check_files, check_head},
    open::version,
    open_error::{OpenError, explain, explain_store},
    schema,
    tables::SqliteTables,
};
use crate::journal::store::{Report, StoreError, verify::examine};

/// Verifies the journal or backup at `path`. Calls `progress` with the number of changes that were read, and with
/// the number of all changes to read.
///
/// # Errors
/// Fails if the file cannot be opened as a journal. The report contains the errors in the file.
pub fn verify(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, OpenError> {
    let mut report = Report::default();
    // Before the journal, whose newest change is then at least as new.
    let trace = files(path, &mut report);
    let connection = open_to_read(path)?;
    let named = version(&connection).and_then(|version| schema::name_as_current(&connection, version));
    named.map_err(|error| explain(path, &error))?;
    if let Err(error) = check_head(path, &connection, trace) {
        report.add(error.to_string());
    }
    if let Err(error) = examine_file(&connection, &mut report, progress) {
        if error.is_transient() {
            return Err(explain_store(path, error));
        }
        let (StoreError::Damaged(what) | StoreError::Refused(what) | StoreError::TooLarge(what)) = error else {
            return Err(explain_store(path, error));
        };
        report.add(format!("cannot read the rest of the file: {what}"));
    }
    Ok(report)
}

/// Checks that the files in the folder of a journal belong together, and returns its mark. A backup has no such files.
fn files(path: &Path, report: &mut Report) -> Trace {
    let Some(folder) = path.parent().filter(|_| path.file_name().is_some_and(|name| name == FILE_NAME)) else {
        return Trace::None;
    };
    let trace = read_trace(folder).unwrap_or(Trace::None);
    if let Err(error) = check_files(folder, trace) {
        report.add(error.to_string());
    }
    trace
}

fn examine_file(
    connection: &Connection,
    report: &mut Report,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), StoreError> {
    // A read transaction gives all queries the same snapshot.
    connection.execute_batch("BEGIN")?;
    let mut failed = None;
    for check in ["PRAGMA integrity_check(100)", "PRAGMA foreign_key_check"] {
        failed = structure(connection, check, report).err().or(failed);
    }
    examine(&SqliteTables { connection }, report, progress)?;
    events::examine(connection, report)?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// Runs SQLite's own checks of the file: pages, trees, indexes, references.
fn structure(connection: &Connection, check: &str, report: &mut Report) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(check)?;
    let mut result = statement.query([])?;
    while let Some(row) = result.next()? {
        match row.get::<_, String>(0)? {
            ok if ok == "ok" => {}
            table if check.contains("foreign") => {
                report.add(format!("a row of {table} refers to a missing row"));
            }
            error => report.add(format!("the file: {error}")),
        }
    }
    Ok(())
}
