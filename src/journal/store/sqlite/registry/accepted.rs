//! Objects in the order of their times of acceptance.

use rusqlite::{Connection, OptionalExtension, Transaction};

use super::{
    super::{rows, value::params},
    RegistryReader,
    page::{PAGE_BYTES, PAGE_ITEMS, size},
};
use crate::{
    journal::{
        acceptance::{AcceptanceTime, AcceptedObject, AcceptedPage, AcceptedPosition, AcceptedQuery, ObjectTimes},
        store::{ItemSelection, StoreError},
    },
    model::{SourceName, Uri},
};

/// Statement for the objects of one time of acceptance after a row, or of later times. SQLite finds a place in the index by
/// these two conditions, and not by the comparison of both columns at once.
macro_rules! page {
    ($time:literal, $place:literal) => {
        concat!(
            "SELECT ",
            $time,
            ", object, uri FROM objects WHERE ",
            $time,
            $place,
            " AND ",
            $time,
            " < ?3
                AND (?4 IS NULL OR source = ?4) AND (?5 IS NULL OR parent = ?5)
                AND (?6 IS NULL OR instr(types, ?6) > 0)
            ORDER BY ",
            $time,
            ", object LIMIT ?7"
        )
    };
}

const SAME_TIME: &str = page!("accepted", " = ?1 AND object > ?2");
const LATER: &str = page!("accepted", " > ?1");
const SAME_TIME_PUBLISHED: &str = page!("published", " = ?1 AND object > ?2");
const LATER_PUBLISHED: &str = page!("published", " > ?1");

/// Statement for the time of the last of the next objects, of which a page with conditions is a part.
macro_rules! window {
    ($time:literal) => {
        concat!("SELECT ", $time, " FROM objects WHERE ", $time, " > ?1 ORDER BY ", $time, " LIMIT 1 OFFSET ?2")
    };
}

const WINDOW: &str = window!("accepted");
const WINDOW_PUBLISHED: &str = window!("published");

const NEWEST: &str = "SELECT coalesce(max(accepted), 0) FROM objects";
const TIMES: &str = "SELECT accepted, published FROM objects WHERE uri = ?";

/// Returns the newest time of acceptance.
pub(in super::super) fn newest_acceptance(connection: &Connection) -> Result<AcceptanceTime, StoreError> {
    Ok(AcceptanceTime(connection.prepare_cached(NEWEST)?.query_row([], |row| row.get(0))?))
}

/// Returns the times of acceptance of an object, if it has a row.
pub(in super::super) fn object_times(connection: &Connection, uri: &Uri) -> Result<Option<ObjectTimes>, StoreError> {
    let times = connection.prepare_cached(TIMES)?.query_row(params![uri.as_str()], |row| {
        let published: Option<i64> = row.get(1)?;
        Ok(ObjectTimes { accepted: AcceptanceTime(row.get(0)?), published: published.map(AcceptanceTime) })
    });
    Ok(times.optional()?)
}

/// Reads a page of objects in the order of their times of acceptance, from one consistent snapshot.
pub(in super::super) fn page_by_acceptance(
    connection: &Connection,
    query: &AcceptedQuery,
) -> Result<AcceptedPage, StoreError> {
    let transaction = connection.unchecked_transaction()?;
    let (statements, window) = match query.public {
        true => ([SAME_TIME_PUBLISHED, LATER_PUBLISHED], WINDOW_PUBLISHED),
        false => ([SAME_TIME, LATER], WINDOW),
    };
    let end = query.window().map(|objects| {
        let mut statement = transaction.prepare_cached(window)?;
        statement.query_row(params![query.after.time.0, rows::number(objects)], |row| row.get(0)).optional()
    });
    let (before, rest_of_window) = query.bounds(end.transpose()?.flatten().map(AcceptanceTime));
    let mut page = PageReader { query, before, page: AcceptedPage::default(), items: 0, bytes: 0 };
    for sql in statements {
        if page.page.next.is_none() {
            page.read(&transaction, sql)?;
        }
    }
    page.page.next = page.page.next.or(rest_of_window);
    Ok(page.page)
}

struct PageReader<'q> {
    query: &'q AcceptedQuery,
    /// Time before which the objects were accepted.
    before: i64,
    page: AcceptedPage,
    /// Number of items of the objects of the page.
    items: usize,
    /// Number of bytes of URIs and content locations.
    bytes: usize,
}

impl PageReader<'_> {
    /// Adds the rows of a statement, until the page is full.
    fn read(&mut self, transaction: &Transaction<'_>, sql: &str) -> Result<(), StoreError> {
        let AcceptedQuery { after, source, parent, object_type, limit, .. } = self.query;
        let object_type = object_type.as_ref().map(rows::to_json).transpose()?;
        // One more, to know whether there is one.
        let at_most = limit.saturating_sub(self.page.objects.len()).saturating_add(1);
        let mut statement = transaction.prepare_cached(sql)?;
        let mut found = statement.query(params![
            after.time.0,
            after.object,
            self.before,
            source.as_ref().map(SourceName::as_str),
            parent.as_ref().map(Uri::as_str),
            object_type,
            rows::number(at_most as u64),
        ])?;
        let mut reader = RegistryReader::new(transaction)?;
        while let Some(row) = found.next()? {
            if self.page.objects.len() >= *limit || self.items >= PAGE_ITEMS || self.bytes >= PAGE_BYTES {
                self.page.next = self.page.objects.last().map(|last| last.position);
                break;
            }
            let position = AcceptedPosition { time: AcceptanceTime(row.get(0)?), object: row.get(1)? };
            let uri = rows::uri(&row.get::<_, String>(2)?)?;
            let state = match reader.object(&uri, &ItemSelection::All) {
                Ok(found) => found.map(|(_, state)| state),
                Err(StoreError::Damaged(what)) => {
                    tracing::warn!(object = %uri, what, "a damaged object is left out of a list");
                    None
                }
                Err(error) => return Err(error),
            };
            self.items += state.as_ref().map_or(0, |state| state.items.len());
            self.bytes += uri.as_str().len() + state.as_ref().map_or(0, size);
            self.page.objects.push(AcceptedObject { position, uri, state });
        }
        Ok(())
    }
}
