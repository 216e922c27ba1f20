//! The tables of a file, for verification and migration.

use rusqlite::{
    Connection, params_from_iter,
    types::{ToSqlOutput, ValueRef},
};

use super::rows;
use crate::journal::store::{
    StoreError,
    tables::{Cell, PAGE_BYTES, PAGE_ROWS, Row, Table, TableReader},
};

/// Temporary table with all event keys, which a migration fills (see `migrate`).
pub(super) const ALL_KEYS: &str = "all_event_keys";

/// Reader of the tables over a connection, which must be in a transaction.
pub(super) struct SqliteTables<'c> {
    pub(super) connection: &'c Connection,
}

/// Returns the name of a table in the file.
pub(super) fn table_name(table: Table) -> &'static str {
    if table == Table::EventKeys { ALL_KEYS } else { table.name() }
}

impl TableReader for SqliteTables<'_> {
    fn count(&self, table: Table) -> Result<u64, StoreError> {
        let sql = format!("SELECT count(*) FROM {}", table_name(table));
        let count: i64 = self.connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
        u64::try_from(count).map_err(rows::damaged)
    }

    fn page(&self, table: Table, after: &[Cell]) -> Result<Vec<Row>, StoreError> {
        let sql = page_sql(table, !after.is_empty());
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut result = statement.query(params_from_iter(after.iter().map(value)))?;
        let (mut page, mut bytes) = (Vec::new(), 0);
        while page.len() < PAGE_ROWS
            && bytes < PAGE_BYTES
            && let Some(row) = result.next()?
        {
            let cells = (0..table.columns().len()).map(|index| row.get_ref(index).map(cell));
            let row = Row::new(table, cells.collect::<rusqlite::Result<_>>()?);
            bytes += row.size();
            page.push(row);
        }
        Ok(page)
    }
}

/// Returns the query for all rows, or for those after a key.
fn page_sql(table: Table, has_key: bool) -> String {
    let columns: Vec<_> = table.columns().iter().map(|(column, _)| selected(table, column)).collect();
    let columns = columns.join(", ");
    if table == Table::Items {
        // The outer table is always that of the objects, so both indexes give the order.
        let after = if has_key { "WHERE o.uri >= ?1 AND (o.uri > ?1 OR i.uri > ?2)" } else { "" };
        return format!(
            "SELECT {columns} FROM objects o CROSS JOIN items i ON i.object = o.object {after} ORDER BY o.uri, i.uri"
        );
    }
    let name = table_name(table);
    let key = table.columns().iter().take(table.key_length()).map(|(column, _)| *column);
    let key = key.collect::<Vec<_>>().join(", ");
    let after =
        if has_key { format!("WHERE ({key}) > ({})", vec!["?"; table.key_length()].join(", ")) } else { String::new() };
    // `NOT INDEXED`, because a covering index is no faster, and may contradict a damaged table.
    let index = if table == Table::Changes { "NOT INDEXED" } else { "" };
    format!("SELECT {columns} FROM {name} {index} {after} ORDER BY {key}")
}

fn selected(table: Table, column: &str) -> String {
    match (table, column) {
        (Table::Items, "object") => "o.uri".to_owned(),
        (Table::Items, column) => format!("i.{column}"),
        _ => column.to_owned(),
    }
}

/// Returns the cell of a value. A value that no gateway has written becomes octets, so that one damaged row does not hide
/// the others.
fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(value) => Cell::Integer(value),
        ValueRef::Real(value) => Cell::Bytes(value.to_be_bytes().to_vec()),
        ValueRef::Text(text) => match std::str::from_utf8(text) {
            Ok(text) => Cell::Text(text.to_owned()),
            Err(_) => Cell::Bytes(text.to_vec()),
        },
        ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec()),
    }
}

/// Returns the SQL value of a cell.
pub(super) fn value(cell: &Cell) -> ToSqlOutput<'_> {
    ToSqlOutput::Borrowed(match cell {
        Cell::Null => ValueRef::Null,
        Cell::Integer(value) => ValueRef::Integer(*value),
        Cell::Text(text) => ValueRef::Text(text.as_bytes()),
        Cell::Bytes(bytes) => ValueRef::Blob(bytes),
    })
}
