//! The tables, and the conversion of journals of older versions.

use rusqlite::Connection;

use crate::journal::store::StoreError;

/// Identifies a file as a journal of Tidings (`PRAGMA application_id`): the letters `TDNG`.
pub(super) const APPLICATION_ID: i32 = 0x5444_4E47;

/// Version of the tables (`PRAGMA user_version`).
pub(super) const VERSION: i64 = 21;

/// Oldest version that this program opens and converts.
pub(super) const OLDEST_VERSION: i64 = 16;

/// Statements that create the tables.
const SCHEMA: &str = include_str!("schema.sql");

/// Statements that convert the tables of each older version to those of the next one, from [`OLDEST_VERSION`] on.
const CONVERSIONS: [&str; 5] = [
    include_str!("convert_version_16.sql"),
    include_str!("convert_version_17.sql"),
    include_str!("convert_version_18.sql"),
    include_str!("convert_version_19.sql"),
    include_str!("convert_version_20.sql"),
];

/// Views that stand for the tables and the column that versions before 21 lack, for a connection that only reads.
const VIEWS_OF_VERSION_20: &str = "
    CREATE TEMP VIEW order_times AS SELECT 0 AS seq, 0 AS order_time WHERE false;
    CREATE TEMP VIEW segments AS SELECT 0 AS first, 0 AS last, '' AS manifest WHERE false;
    CREATE TEMP VIEW restores AS SELECT *, NULL AS identities FROM main.restores;
";

/// View that gives the objects of versions before 20 the columns of the current version, for a connection that only reads.
const OBJECTS_OF_VERSION_19: &str = "
    CREATE TEMP VIEW objects AS SELECT *, 0 AS accepted, NULL AS published FROM main.objects;
";

/// View that gives the items of version 18 and 17 the columns of the current version, for a connection that only reads.
const ITEMS_OF_VERSION_18: &str = "
    CREATE TEMP VIEW items AS SELECT *, NULL AS visible_from, NULL AS visible_until, NULL AS came, NULL AS denied
        FROM main.items;
";

/// Views that give the tables of version 17 the names of the current version, for a connection that only reads.
const VIEWS_OF_VERSION_17: &str = "
    CREATE TEMP VIEW subscriptions AS SELECT *, NULL AS paused_by, NULL AS delivered FROM main.subscriptions;
    CREATE TEMP VIEW sources AS SELECT '' AS source, 0 AS first_event, 0 AS last_event, 0 AS week, 0 AS longest_pause,
        0 AS earlier_pause WHERE false;
";

/// Views that give the tables of version 16 the names of the current version, for a connection that only reads.
const VIEWS_OF_VERSION_16: &str = "
    CREATE TEMP VIEW changes AS SELECT seq, id, received, checksum, json, sight AS visibility, key FROM main.changes;
    CREATE TEMP VIEW items AS SELECT object, uri, existence, existence_at, existence_confirmed, content, content_at,
        content_confirmed, state, state_at, state_confirmed, begins_in AS initial_state, begins_in_at AS initial_state_at,
        begins_in_confirmed AS initial_state_confirmed, unheard AS unannounced,
        NULL AS visible_from, NULL AS visible_until, NULL AS came, NULL AS denied FROM main.items;
    CREATE TEMP VIEW seeds AS SELECT number, seq, object, filled AS delta FROM main.seeds;
    CREATE TEMP VIEW crawls AS SELECT source, hex(id) AS id, part AS parts, place AS position, objects, began AS started,
        moved AS updated, done AS finished FROM main.walks;
    CREATE TEMP VIEW incomplete_changes AS SELECT seq, source, untold AS missing, json FROM main.incomplete;
    CREATE TEMP VIEW quarantine AS SELECT id, received, source, content_type, headers, place AS location, reason, size, body
        FROM main.quarantine;
    CREATE TEMP VIEW subscriptions AS SELECT name, origin AS made_by, definition, cursor, paused, ended,
        NULL AS paused_by, NULL AS delivered FROM main.subscriptions;
    CREATE TEMP VIEW sources AS SELECT '' AS source, 0 AS first_event, 0 AS last_event, 0 AS week, 0 AS longest_pause,
        0 AS earlier_pause WHERE false;
";

/// Creates the tables of a new journal (version 0), or converts those of an older version, in one transaction. A crash leaves
/// the journal at one of the versions.
pub(super) fn migrate(connection: &mut Connection, version: i64) -> Result<(), StoreError> {
    if version == VERSION {
        return Ok(());
    }
    let transaction = connection.transaction()?;
    if version == 0 {
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        let identity = uuid::Uuid::new_v4();
        transaction.execute("INSERT INTO meta VALUES ('identity', ?)", [identity.as_bytes().as_slice()])?;
        transaction.execute("INSERT INTO meta VALUES ('token_key', randomblob(16))", [])?;
    } else {
        for conversion in CONVERSIONS.iter().skip(usize::try_from(version - OLDEST_VERSION).unwrap_or_default()) {
            transaction.execute_batch(conversion)?;
        }
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    Ok(transaction.commit()?)
}

/// Gives a connection that reads a file of this version the names of the current one.
pub(super) fn name_as_current(connection: &Connection, version: i64) -> rusqlite::Result<()> {
    let views: &[&str] = match version {
        VERSION => &[],
        OLDEST_VERSION => &[VIEWS_OF_VERSION_16, OBJECTS_OF_VERSION_19, VIEWS_OF_VERSION_20],
        17 => &[VIEWS_OF_VERSION_17, ITEMS_OF_VERSION_18, OBJECTS_OF_VERSION_19, VIEWS_OF_VERSION_20],
        18 => &[ITEMS_OF_VERSION_18, OBJECTS_OF_VERSION_19, VIEWS_OF_VERSION_20],
        19 => &[OBJECTS_OF_VERSION_19, VIEWS_OF_VERSION_20],
        _ => &[VIEWS_OF_VERSION_20],
    };
    connection.execute_batch(&views.concat())
}

/// Returns the number after which new changes are numbered, if it is greater than that of the newest change. A restored
/// journal skips the numbers that the lost journal may have given.
pub(super) fn floor(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT coalesce(max(floor), 0) FROM restores", [], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Connection, OLDEST_VERSION, VERSION, migrate};

    /// Returns table, name, type and key of each column, and the indexes.
    fn columns(connection: &Connection) -> BTreeSet<(String, String, String, u32)> {
        let sql = "SELECT t.name, c.name, c.type, c.pk FROM sqlite_schema t, pragma_table_info(t.name) c
            UNION ALL SELECT tbl_name, name, 'index', 0 FROM sqlite_schema WHERE type = 'index'";
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))).unwrap();
        columns.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn documentation_names_the_version_and_all_tables() {
        let page = include_str!("../../../../docs/journal-file.md");
        assert!(page.contains(&format!("in SQLite ({VERSION})")));
        let mut new = Connection::open_in_memory().unwrap();
        migrate(&mut new, 0).unwrap();
        let tables: BTreeSet<_> = columns(&new).into_iter().map(|(table, ..)| table).collect();
        let tables = tables.iter().filter(|table| !table.starts_with("sqlite_"));
        let missing: Vec<_> = tables.filter(|table| !page.contains(&format!("`{table}`"))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn converted_journal_has_the_tables_of_a_new_one() {
        let mut converted = Connection::open_in_memory().unwrap();
        converted.execute_batch(include_str!("../../../../fixtures/journal/version-16.sql")).unwrap();
        migrate(&mut converted, OLDEST_VERSION).unwrap();
        let mut new = Connection::open_in_memory().unwrap();
        migrate(&mut new, 0).unwrap();
        assert_eq!(columns(&converted), columns(&new));
    }
}
