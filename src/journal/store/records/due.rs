//! The dates of visibility in the table `items` of the registry.

use super::{
    Records, Statement, StoreError, read_all, read_one, statements,
    value::{Cells, values},
};
use crate::{
    journal::{
        due::{DeniedItems, DueItem, DuePosition},
        store::rows,
    },
    model::{State, Timestamp, VisibilityDates},
};

/// Returns the query for items with dates, with a condition. It repeats the expression and the condition of the index
/// `items_by_date`, so that the databases use it.
macro_rules! due_where {
    ($condition:literal) => {
        concat!(
            "SELECT coalesce(i.visible_from, i.visible_until), i.object, i.uri, o.uri, i.visible_from, i.visible_until,
                i.state, o.source, i.state_at
             FROM items i JOIN objects o ON o.object = i.object
             WHERE coalesce(i.visible_from, i.visible_until) IS NOT NULL AND ",
            $condition
        )
    };
}

statements! {
    DUE = due_where!(
        "coalesce(i.visible_from, i.visible_until) <= $1
         ORDER BY coalesce(i.visible_from, i.visible_until), i.object, i.uri LIMIT $2"
    );
    /// Items with the same date after a position. SQLite seeks in an index by a comparison of several values only if the first
    /// of them is no expression. So the date has a condition of its own, and the later dates have a query of their own.
    AFTER_SAME = due_where!(
        "coalesce(i.visible_from, i.visible_until) = $1 AND (i.object, i.uri) > ($2, $3)
         ORDER BY i.object, i.uri LIMIT $4"
    );
    AFTER_DATE = due_where!(
        "coalesce(i.visible_from, i.visible_until) > $1
         ORDER BY coalesce(i.visible_from, i.visible_until), i.object, i.uri LIMIT $2"
    );
    NEXT = "SELECT coalesce(visible_from, visible_until) FROM items
        WHERE coalesce(visible_from, visible_until) IS NOT NULL ORDER BY coalesce(visible_from, visible_until) LIMIT 1";
    DENIED = "SELECT o.source, count(*), min(i.uri) FROM items i JOIN objects o ON o.object = i.object
        WHERE i.denied IS NOT NULL GROUP BY o.source ORDER BY o.source";
}

/// Items with announced dates. A batch writes them with the other columns of the registry.
pub trait DueStore: Records {
    /// Returns up to `limit` items whose date has come at `now`, in the order of the dates.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<DueItem>, StoreError> {
        read_all(self, &[Statement::new(DUE, values![now, limit])], read)
    }

    /// Returns up to `limit` items with dates after a position, in the order of the dates.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn due_after(&self, after: &DuePosition, limit: usize) -> Result<Vec<DueItem>, StoreError> {
        let DuePosition { at, object, item } = after;
        let same = Statement::new(AFTER_SAME, values![*at, *object, item.as_str(), limit]);
        let mut items = read_all(self, &[same, Statement::new(AFTER_DATE, values![*at, limit])], read)?;
        items.truncate(limit);
        Ok(items)
    }

    /// Returns the earliest date.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        read_one(self, Statement::new(NEXT, []), |row| row.time(0))
    }

    /// Returns the items whose source has denied that their date had come, by source.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn denied(&self) -> Result<Vec<DeniedItems>, StoreError> {
        read_all(self, &[Statement::new(DENIED, [])], |row| {
            Ok(DeniedItems { source: row.source(0)?, items: row.unsigned(1)?, example: row.uri(2)? })
        })
    }
}

impl<S: Records + ?Sized> DueStore for S {}

fn read(row: Cells<'_>) -> Result<DueItem, StoreError> {
    let state = row.optional_text(6)?.map(|name| State::parse(name).map_err(rows::damaged));
    Ok(DueItem {
        position: DuePosition { at: row.time(0)?, object: row.unsigned(1)?, item: row.text(2)?.to_owned() },
        object: row.uri(3)?,
        dates: VisibilityDates::new(row.optional_time(4)?, row.optional_time(5)?).map_err(rows::damaged)?,
        state: state.transpose()?,
        source: row.source(7)?,
        announced: row.optional_time(8)?,
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::{AFTER_DATE, AFTER_SAME, DUE};
    use crate::journal::store::{
        FILE_NAME,
        sqlite::{SqliteOptions, SqliteStore},
    };

    /// A page costs its items, however many items have the same date.
    #[test]
    fn pages_seek_in_the_index_of_the_dates() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap();
        let connection = Connection::open(folder.path().join(FILE_NAME)).unwrap();
        for (sql, expected) in [
            (AFTER_SAME, "items_by_date (<expr>=? AND (object,uri)>(?,?))"),
            (AFTER_DATE, "items_by_date (<expr>>?)"),
            (DUE, "items_by_date (<expr><?)"),
        ] {
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", sql.text)).unwrap();
            let mut rows = statement.raw_query();
            let mut plan = String::new();
            while let Some(row) = rows.next().unwrap() {
                plan += &format!("{}\n", row.get::<_, String>(3).unwrap());
            }
            assert!(plan.contains(expected) && !plan.contains("TEMP B-TREE"), "{}: {plan}", sql.text);
        }
        drop(store);
    }
}
