//! The tables with their neutral names and types, for verification and migration.
//!
//! Each table is read over a cursor of the transaction, a few rows at a time, because the server would otherwise send
//! all rows of a page, however large.

use std::{cell::RefCell, collections::HashMap, time::Duration};

use tokio_postgres::Row as PostgresRow;
use uuid::Uuid;

use super::{
    ConnectionOptions, PostgresOpenError, PostgresUrl,
    connection::{Connector, Session},
    driver::Driver,
    open::check_server,
    row::{self, get},
    schema,
    value::Value,
};
use crate::journal::store::{
    StoreError, rows,
    tables::{Cell, Column, ColumnType, PAGE_BYTES, PAGE_ROWS, Row, Table, TableReader},
};

/// Maximum time of one query. Counting and ordering may read a whole table.
const QUERY_LIMIT: Duration = Duration::from_secs(60 * 60);

/// Settings of a session that reads whole tables: index order for the cursors, and no time limit of the server below
/// [`QUERY_LIMIT`]. A transaction may be idle while its reader writes to another store.
const SESSION_SETTINGS: &str = "
    SET statement_timeout = '1h';
    SET idle_in_transaction_session_timeout = '1h';
    SET enable_seqscan = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
";

/// Session that reads tables within a transaction. Each call waits until its statement ends.
pub(super) struct PostgresTables {
    // Dropped first, because it belongs to the runtime of the driver.
    session: Session,
    driver: Driver,
    url: PostgresUrl,
    /// Key of the last row that each open cursor has returned.
    cursors: RefCell<HashMap<Table, Vec<Cell>>>,
}

impl PostgresTables {
    /// Opens a session with a server that is suitable for a journal.
    pub(super) fn open(url: &PostgresUrl, options: &ConnectionOptions) -> Result<Self, PostgresOpenError> {
        let connector = Connector::new(url, options, Uuid::new_v4());
        let driver = Driver::new().map_err(PostgresOpenError::Thread)?;
        let failed = |error| PostgresOpenError::storage(url, error);
        let session = driver.run(QUERY_LIMIT, async { Ok(connect(url, &connector).await) }).map_err(failed)??;
        let opened = Self { session, driver, url: url.clone(), cursors: RefCell::default() };
        opened.run(SESSION_SETTINGS).map_err(failed)?;
        Ok(opened)
    }

    /// Explains the failure of a statement before the tables are read.
    pub(super) fn failed(&self, error: StoreError) -> PostgresOpenError {
        PostgresOpenError::storage(&self.url, error)
    }

    /// Runs statements without values and without results.
    pub(super) fn run(&self, sql: &str) -> Result<(), StoreError> {
        self.driver.run(QUERY_LIMIT, self.session.run(sql))
    }

    /// Runs a query and returns its rows.
    pub(super) fn query(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<PostgresRow>, StoreError> {
        self.driver.run(QUERY_LIMIT, self.session.query_text(sql, values))
    }

    /// Runs a query and returns the row that it always has.
    pub(super) fn query_one(&self, sql: &str, values: &[Value<'_>]) -> Result<PostgresRow, StoreError> {
        let row = self.query(sql, values)?.into_iter().next();
        row.ok_or_else(|| rows::damaged("a row that every journal has is missing"))
    }

    /// Runs a statement and returns the number of affected rows.
    pub(super) fn execute(&self, sql: &str, values: &[Value<'_>]) -> Result<u64, StoreError> {
        self.driver.run(QUERY_LIMIT, self.session.execute_text(sql, values))
    }

    /// Creates the tables if there are none, and updates those of an older version.
    pub(super) fn create_tables(&self) -> Result<(), PostgresOpenError> {
        let created = self.driver.run(QUERY_LIMIT, async {
            let checked = schema::inspect(&self.url, &self.session).await;
            Ok(match checked {
                Ok(_) => schema::migrate(&self.url, &self.session).await,
                Err(error) => Err(error),
            })
        });
        created.map_err(|error| self.failed(error))?
    }

    /// Checks that the database has a complete journal of the current version.
    pub(super) fn check_version(&self) -> Result<(), PostgresOpenError> {
        let checked =
            self.driver.run(QUERY_LIMIT, async { Ok(schema::check_is_current(&self.url, &self.session).await) });
        checked.map_err(|error| self.failed(error))?
    }

    /// Opens a cursor over the rows after a key. Another cursor over the table is closed.
    async fn open_cursor(&self, table: Table, after: &[Cell], is_open: bool) -> Result<(), StoreError> {
        let name = table.name();
        if is_open {
            self.session.run(&format!("CLOSE read_{name}")).await?;
        }
        let sql = format!("DECLARE read_{name} NO SCROLL CURSOR FOR {}", page_sql(table, !after.is_empty()));
        let values = after.iter().map(key_value).collect::<Result<Vec<_>, _>>()?;
        self.session.query_text(&sql, &values).await.map(drop)
    }

    async fn read_page(&self, table: Table, after: &[Cell]) -> Result<Vec<Row>, StoreError> {
        let position = self.cursors.borrow_mut().remove(&table);
        if position.as_deref() != Some(after) {
            self.open_cursor(table, after, position.is_some()).await?;
        }
        let fetch = format!("FETCH {} FROM read_{}", rows_per_fetch(table), table.name());
        let (mut page, mut bytes) = (Vec::new(), 0);
        while page.len() < PAGE_ROWS && bytes < PAGE_BYTES {
            let fetched = self.session.query_text(&fetch, &[]).await?;
            if fetched.is_empty() {
                break;
            }
            for found in &fetched {
                let row = read_row(table, found)?;
                bytes += row.size();
                page.push(row);
            }
        }
        let last = page.last().map_or(after, Row::key).to_vec();
        self.cursors.borrow_mut().insert(table, last);
        Ok(page)
    }
}

impl TableReader for PostgresTables {
    fn count(&self, table: Table) -> Result<u64, StoreError> {
        let sql = format!("SELECT count(*) FROM {}", table.name());
        row::unsigned(&self.query_one(&sql, &[])?, 0)
    }

    fn page(&self, table: Table, after: &[Cell]) -> Result<Vec<Row>, StoreError> {
        self.driver.run(QUERY_LIMIT, self.read_page(table, after))
    }
}

fn key_value(cell: &Cell) -> Result<Value<'_>, StoreError> {
    match cell {
        Cell::Integer(number) => Ok(number),
        Cell::Text(text) => Ok(text),
        Cell::Null | Cell::Bytes(_) => Err(rows::damaged("a key is neither a number nor a text")),
    }
}

async fn connect(url: &PostgresUrl, connector: &Connector) -> Result<Session, PostgresOpenError> {
    let session = connector.try_connect().await.map_err(|error| PostgresOpenError::connect(url, &error))?;
    check_server(url, &session).await?;
    Ok(session)
}

/// Returns the number of rows that one statement fetches. Only messages of the quarantine are large.
fn rows_per_fetch(table: Table) -> usize {
    if table == Table::Quarantine { 4 } else { 64 }
}

/// Returns the query for all rows, or for those after a key.
fn page_sql(table: Table, has_key: bool) -> String {
    let names: Vec<_> = table.columns().iter().map(|(name, _)| *name).collect();
    if table == Table::Items {
        let columns: Vec<_> = names.iter().skip(2).map(|name| format!("i.{name}")).collect();
        let after = if has_key { "WHERE o.uri >= $1 AND (o.uri > $1 OR i.uri > $2)" } else { "" };
        return format!(
            "SELECT o.uri, i.uri, {} FROM objects o JOIN items i ON i.object = o.object {after} ORDER BY o.uri, i.uri",
            columns.join(", ")
        );
    }
    let key = names[..table.key_length()].join(", ");
    let values: Vec<_> = (1..=table.key_length()).map(|number| format!("${number}")).collect();
    let after = if has_key { format!("WHERE ({key}) > ({})", values.join(", ")) } else { String::new() };
    format!("SELECT {} FROM {} {after} ORDER BY {key}", names.join(", "), table.name())
}

fn read_row(table: Table, found: &PostgresRow) -> Result<Row, StoreError> {
    let cells = table.columns().iter().enumerate().map(|(index, column)| read_cell(found, index, *column));
    Ok(Row::new(table, cells.collect::<Result<_, _>>()?))
}

fn read_cell(found: &PostgresRow, index: usize, (_, kind): Column) -> Result<Cell, StoreError> {
    Ok(match kind {
        ColumnType::Integer => get::<Option<i64>>(found, index)?.map_or(Cell::Null, Cell::Integer),
        ColumnType::Boolean => {
            get::<Option<bool>>(found, index)?.map_or(Cell::Null, |value| Cell::Integer(value.into()))
        }
        ColumnType::Text => get::<Option<String>>(found, index)?.map_or(Cell::Null, Cell::Text),
        ColumnType::Uuid => {
            get::<Option<Uuid>>(found, index)?.map_or(Cell::Null, |value| Cell::Bytes(value.into_bytes().to_vec()))
        }
        ColumnType::Bytes => get::<Option<Vec<u8>>>(found, index)?.map_or(Cell::Null, Cell::Bytes),
    })
}
