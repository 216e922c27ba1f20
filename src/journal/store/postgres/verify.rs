//! Verification of a journal in a database, which may be in use. It reads one consistent snapshot and changes nothing.
//!
//! In addition to the checks of every store ([`examine`]), the numbers that the store maintains are compared with the
//! rows that they count, and the event keys with the changes.

use super::{ConnectionOptions, PostgresOpenError, PostgresUrl, row, tables::PostgresTables};
use crate::journal::store::{Report, StoreError, verify::examine};

/// Queries for the first errors of each kind, with the text of their findings. The first column completes the text.
const CHECKS: [(&str, &str); 10] = [
    (
        "the number of the newest change is {} in journal_head, but changes has another",
        "SELECT head FROM journal_head WHERE head <> (SELECT coalesce(max(seq), 0) FROM changes)",
    ),
    (
        "the time of the newest change is {} in journal_head, but changes has another",
        "SELECT received FROM journal_head
         WHERE received IS DISTINCT FROM (SELECT received FROM changes ORDER BY seq DESC LIMIT 1)",
    ),
    (
        "journal_head says that {} seeds were written, but a newer one exists",
        "SELECT seeds FROM journal_head WHERE seeds < (SELECT max(number) FROM seeds)",
    ),
    ("journal_head has {} rows instead of one", "SELECT count(*) FROM journal_head HAVING count(*) <> 1"),
    (
        "an item refers to the missing object {}",
        "SELECT object FROM items WHERE NOT EXISTS (SELECT FROM objects WHERE objects.object = items.object)
         GROUP BY object ORDER BY object LIMIT 10",
    ),
    (
        "the object {} has another number of items than its row says",
        "SELECT object FROM objects WHERE items <> (SELECT count(*) FROM items WHERE items.object = objects.object)
         ORDER BY object LIMIT 10",
    ),
    (
        "quarantine_size says {} messages, but the quarantine has another number or size",
        "SELECT messages FROM quarantine_size, (SELECT count(*) AS n, coalesce(sum(size), 0) AS b FROM quarantine) AS q
         WHERE messages <> n OR bytes <> b",
    ),
    (
        "the key of an event refers to change {}, which is missing",
        "SELECT seq FROM event_keys WHERE seq >= (SELECT coalesce(min(seq), 1) FROM changes)
         AND NOT EXISTS (SELECT FROM changes WHERE changes.seq = event_keys.seq) ORDER BY seq LIMIT 10",
    ),
    (
        "several event keys refer to change {}",
        "SELECT seq FROM event_keys GROUP BY seq HAVING count(*) > 1 ORDER BY seq LIMIT 10",
    ),
    (
        "the key of the event of change {} has another time than the change",
        "SELECT seq FROM event_keys JOIN changes USING (seq) WHERE event_keys.received <> changes.received
         ORDER BY seq LIMIT 10",
    ),
];

/// Verifies the journal in a database. Calls `progress` with the number of changes that were
/// read, and with the number of all changes to read.
///
/// # Errors
/// Fails if the database cannot be opened as a journal, or the connection is lost. The report contains the errors in the
/// journal.
pub fn verify(
    url: &PostgresUrl,
    options: &ConnectionOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, PostgresOpenError> {
    let tables = PostgresTables::open(url, options)?;
    tables.check_version()?;
    let mut report = Report::default();
    match examine_database(&tables, &mut report, progress) {
        Ok(()) => {}
        Err(StoreError::Damaged(what) | StoreError::Refused(what) | StoreError::TooLarge(what)) => {
            report.add(format!("cannot read the rest of the database: {what}"));
        }
        Err(error) => return Err(tables.failed(error)),
    }
    Ok(report)
}

fn examine_database(
    tables: &PostgresTables,
    report: &mut Report,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), StoreError> {
    tables.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
    // The quick checks are first, because a report has a limited number of findings.
    for (finding, sql) in CHECKS {
        for found in tables.query(sql, &[])? {
            let number: Option<i64> = row::get(&found, 0)?;
            let number = number.map_or_else(|| "missing".to_owned(), |number| number.to_string());
            report.add(finding.replace("{}", &number));
        }
    }
    examine(tables, report, progress)?;
    tables.run("COMMIT")
}
