//! Both sides of a migration: a locked journal that is read, and a database that is filled.
//!
//! The table `migration` exists while a migration fills the database. Until it is dropped, no gateway opens the journal.

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{ConnectionOptions, PostgresUrl, row, tables::PostgresTables, value::Value};
use crate::journal::store::{
    StoreError, StoreLocation,
    migrate::{JournalFacts, MigrationError, MigrationSource, MigrationTarget, Position},
    rows,
    tables::{Cell, ColumnType, Row, Table, TableReader},
};

/// Query for other sessions of the gateway, which name their node.
const OTHER_SESSIONS: &str = "SELECT string_agg(DISTINCT application_name, ', ') FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'tidings/%' AND pid <> pg_backend_pid()";

/// Statement after which no gateway writes. Every transaction of a gateway writes to one of these tables first.
const LOCK: &str = "LOCK TABLE journal_head, writers IN EXCLUSIVE MODE";

/// Statement that creates the table with the position of the migration; a complete journal lacks the table.
const CREATE_POSITION: &str = "CREATE TABLE migration (position text NOT NULL);
    COMMENT ON TABLE migration IS 'Position of an unfinished migration into this database.'";

const FACTS: &str = "SELECT identity, head, seeds FROM journal_head";

/// Query for the newest identifiers ever given.
const NEWEST: &str = "SELECT (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM quarantine_id_seq),
        (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM dead_letters_id_seq)";

const SET_FACTS: &str = "UPDATE journal_head SET identity = $1, head = $2, seeds = $3,
        received = (SELECT received FROM changes ORDER BY seq DESC LIMIT 1),
        accepted = (SELECT coalesce(max(accepted), 0) FROM objects)";

const SET_NEWEST: &str = "SELECT setval('quarantine_id_seq', greatest($1::bigint, 1), $1 > 0),
        setval('dead_letters_id_seq', greatest($2::bigint, 1), $2 > 0)";

const COUNT_QUARANTINE: &str = "UPDATE quarantine_size SET (messages, bytes) =
        (SELECT count(*), coalesce(sum(size), 0)::bigint FROM quarantine)";

/// Opens a session, and checks that no gateway uses the database.
fn open(url: &PostgresUrl, options: &ConnectionOptions) -> Result<PostgresTables, MigrationError> {
    let tables = PostgresTables::open(url, options)?;
    let others = tables.query_one(OTHER_SESSIONS, &[]).and_then(|row| row::get::<Option<String>>(&row, 0));
    match others.map_err(|error| tables.failed(error))? {
        Some(sessions) => Err(MigrationError::InUse { url: url.clone(), sessions }),
        None => Ok(tables),
    }
}

/// A journal that is locked for a migration.
pub(in crate::journal::store) struct PostgresSource(PostgresTables);

impl PostgresSource {
    /// Opens and locks the journal in a database.
    pub(in crate::journal::store) fn open(
        url: &PostgresUrl,
        options: &ConnectionOptions,
    ) -> Result<Self, MigrationError> {
        let tables = open(url, options)?;
        tables.check_version()?;
        let begun = tables.run(&format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {LOCK}"));
        begun.map_err(|error| tables.failed(error))?;
        Ok(Self(tables))
    }
}

impl TableReader for PostgresSource {
    fn count(&self, table: Table) -> Result<u64, StoreError> {
        self.0.count(table)
    }

    fn page(&self, table: Table, after: &[Cell]) -> Result<Vec<Row>, StoreError> {
        self.0.page(table, after)
    }
}

impl MigrationSource for PostgresSource {
    fn facts(&self) -> Result<JournalFacts, StoreError> {
        let (facts, newest) = (self.0.query_one(FACTS, &[])?, self.0.query_one(NEWEST, &[])?);
        Ok(JournalFacts {
            identity: row::get(&facts, 0)?,
            head: row::seq(&facts, 1)?,
            newest_seed: row::get(&facts, 2)?,
            newest_quarantined: row::get(&newest, 0)?,
            newest_dead_letter: row::get(&newest, 1)?,
        })
    }
}

/// A database that a migration fills.
pub(in crate::journal::store) struct PostgresTarget(PostgresTables);

impl PostgresTarget {
    /// Opens the half-finished migration in a database, or creates the tables of an empty one.
    pub(in crate::journal::store) fn open(
        url: &PostgresUrl,
        options: &ConnectionOptions,
    ) -> Result<Self, MigrationError> {
        let target = Self(open(url, options)?);
        if target.position().map_err(|error| target.0.failed(error))?.is_none() {
            target.0.create_tables()?;
            if target.has_rows().map_err(|error| target.0.failed(error))? {
                return Err(MigrationError::NotEmpty(StoreLocation::Postgres(url.clone())));
            }
        }
        // A server crash may lose the newest pages together with the position after them. The last commit is durable.
        target.0.run("SET synchronous_commit = off").map_err(|error| target.0.failed(error))?;
        Ok(target)
    }

    fn has_rows(&self) -> Result<bool, StoreError> {
        let queries: Vec<_> = Table::ALL.iter().map(|table| format!("EXISTS (SELECT FROM {})", table.name())).collect();
        row::get(&self.0.query_one(&format!("SELECT {}", queries.join(" OR ")), &[])?, 0)
    }

    /// Runs statements in a transaction.
    fn transaction(&self, work: impl FnOnce() -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.0.run("BEGIN")?;
        let result = work();
        self.0.run(if result.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
        result
    }
}

impl TableReader for PostgresTarget {
    fn count(&self, table: Table) -> Result<u64, StoreError> {
        self.0.count(table)
    }

    fn page(&self, table: Table, after: &[Cell]) -> Result<Vec<Row>, StoreError> {
        self.0.page(table, after)
    }
}

impl MigrationTarget for PostgresTarget {
    fn position(&self) -> Result<Option<Position>, StoreError> {
        let exists = self.0.query_one("SELECT to_regclass('tidings.migration') IS NOT NULL", &[])?;
        if !row::get::<bool>(&exists, 0)? {
            return Ok(None);
        }
        let stored = self.0.query_one("SELECT position FROM migration", &[])?;
        Position::from_json(row::get(&stored, 0)?).map(Some)
    }

    fn begin(&mut self, position: &Position) -> Result<(), StoreError> {
        let json = position.to_json()?;
        self.transaction(|| {
            self.0.run(CREATE_POSITION)?;
            self.0.execute("INSERT INTO migration (position) VALUES ($1)", &[&json]).map(drop)
        })
    }

    fn write(&mut self, table: Table, rows: &[Row], before: &Position, after: &Position) -> Result<(), StoreError> {
        let (before, after) = (before.to_json()?, after.to_json()?);
        self.transaction(|| {
            let columns: Vec<_> = (0..table.columns().len()).map(|index| column(table, index, rows)).collect();
            let columns = columns.into_iter().collect::<Result<Vec<_>, _>>()?;
            let values: Vec<Value<'_>> = columns.iter().map(|column| &**column as Value<'_>).collect();
            self.0.execute(&insert_sql(table), &values)?;
            let sql = "UPDATE migration SET position = $1 WHERE position = $2";
            match self.0.execute(sql, &[&after, &before])? {
                1 => Ok(()),
                _ => Err(StoreError::Refused("another process continues the same migration".to_owned())),
            }
        })
    }

    fn begin_comparison(&mut self) -> Result<(), StoreError> {
        // Without statistics, the queries of the comparison could have slow plans.
        let names: Vec<_> = Table::ALL.iter().map(|table| table.name()).collect();
        self.0.run(&format!("ANALYZE {}", names.join(", ")))?;
        self.0.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    }

    fn finish(self: Box<Self>, facts: JournalFacts) -> Result<(), StoreError> {
        let JournalFacts { identity, head, newest_seed, newest_quarantined, newest_dead_letter } = facts;
        self.0.run("COMMIT; SET synchronous_commit = on")?;
        self.transaction(|| {
            self.0.execute(SET_FACTS, &[&identity, &rows::number(head.0), &newest_seed])?;
            self.0.execute(COUNT_QUARANTINE, &[])?;
            self.0.query(SET_NEWEST, &[&newest_quarantined, &newest_dead_letter])?;
            self.0.run("DROP TABLE migration")
        })
    }
}

/// Returns the statement that inserts rows, one array for each column. An item gets the number of its object instead of
/// the object's URI.
fn insert_sql(table: Table) -> String {
    let names: Vec<_> = table.columns().iter().map(|(name, _)| *name).collect();
    let arrays: Vec<_> = table.columns().iter().enumerate().map(|(index, (_, kind))| array(index + 1, *kind)).collect();
    let (names, arrays) = (names.join(", "), arrays.join(", "));
    let selected = match table {
        Table::Items => {
            let (_, others) = names.split_once(", ").unwrap_or_default();
            format!("(SELECT object FROM objects WHERE objects.uri = n.object), {others}")
        }
        _ => names.clone(),
    };
    // The tables of messages and dead letters give identifiers by themselves otherwise.
    let given = if matches!(table, Table::Quarantine | Table::DeadLetters) { "OVERRIDING SYSTEM VALUE" } else { "" };
    let name = table.name();
    format!("INSERT INTO {name} ({names}) {given} SELECT {selected} FROM unnest({arrays}) AS n({names})")
}

fn array(number: usize, kind: ColumnType) -> String {
    let kind = match kind {
        ColumnType::Integer => "bigint",
        ColumnType::Boolean => "boolean",
        ColumnType::Text => "text",
        ColumnType::Uuid => "uuid",
        ColumnType::Bytes => "bytea",
    };
    format!("${number}::{kind}[]")
}

/// Returns the values of a column of the rows as an array.
fn column(table: Table, index: usize, rows: &[Row]) -> Result<Box<dyn ToSql + Sync>, StoreError> {
    let (name, kind) = table.columns()[index];
    let wrong = || rows::damaged(format!("the column {name} of {} has a value of a wrong type", table.name()));
    let cells = rows.iter().map(|row| row.cells().get(index).unwrap_or(&Cell::Null));
    Ok(match kind {
        ColumnType::Integer => Box::new(values(cells, |cell| integer(cell).ok_or_else(wrong))?),
        ColumnType::Boolean => Box::new(values(cells, |cell| integer(cell).map(|value| value != 0).ok_or_else(wrong))?),
        ColumnType::Text => Box::new(values(cells, |cell| match cell {
            Cell::Text(text) => Ok(text.clone()),
            _ => Err(wrong()),
        })?),
        ColumnType::Uuid => Box::new(values(cells, |cell| match cell {
            Cell::Bytes(bytes) => Uuid::from_slice(bytes).map_err(|_| wrong()),
            _ => Err(wrong()),
        })?),
        ColumnType::Bytes => Box::new(values(cells, |cell| match cell {
            Cell::Bytes(bytes) => Ok(bytes.clone()),
            _ => Err(wrong()),
        })?),
    })
}

fn integer(cell: &Cell) -> Option<i64> {
    if let Cell::Integer(value) = cell { Some(*value) } else { None }
}

/// Converts the cells that are not null.
fn values<'c, T>(
    cells: impl Iterator<Item = &'c Cell>,
    convert: impl Fn(&Cell) -> Result<T, StoreError>,
) -> Result<Vec<Option<T>>, StoreError> {
    cells.map(|cell| if *cell == Cell::Null { Ok(None) } else { convert(cell).map(Some) }).collect()
}
