//! Execution of the statements of the record tables.

use rusqlite::{Connection, Statement as Prepared, TransactionBehavior, types::ToSqlOutput};

use super::{SqliteStore, rows, value::StorableValue};
use crate::journal::store::{
    StoreError,
    records::{RecordWrite, Records, Row, Statement, Value},
};

/// Names of the parameters.
const PARAMETERS: [&str; 12] = ["$1", "$2", "$3", "$4", "$5", "$6", "$7", "$8", "$9", "$10", "$11", "$12"];

impl Records for SqliteStore {
    fn query(
        &self,
        queries: &[Statement<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.readers.read(|connection| queries.iter().try_for_each(|query| read(connection, query, each)))
    }

    fn execute(&self, write: &RecordWrite<'_>) -> Result<Vec<u64>, StoreError> {
        let mut side = self.write_side()?;
        let transaction = side.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let affected = execute_all(&transaction, &write.statements)?;
        transaction.commit()?;
        Ok(affected)
    }
}

/// Executes statements in order; returns the number of affected rows of each.
pub(super) fn execute_all(connection: &Connection, statements: &[Statement<'_>]) -> Result<Vec<u64>, StoreError> {
    statements.iter().map(|statement| execute(connection, statement)).collect()
}

fn execute(connection: &Connection, statement: &Statement<'_>) -> Result<u64, StoreError> {
    let mut prepared = connection.prepare_cached(statement.sql.text)?;
    let indexes = bind_single_values(&mut prepared, &statement.values)?;
    let mut affected = 0;
    for element in elements(statement) {
        bind_elements(&mut prepared, &indexes, &statement.values, element)?;
        affected += prepared.raw_execute()? as u64;
    }
    Ok(affected)
}

/// Returns the positions in the lists of a statement. One without lists is executed once.
fn elements(statement: &Statement<'_>) -> std::ops::Range<usize> {
    0..statement.values.iter().find_map(Value::list_length).unwrap_or(1)
}

/// Executes a statement and calls `each` for its rows.
pub(super) fn read(
    connection: &Connection,
    statement: &Statement<'_>,
    each: &mut dyn FnMut(&dyn Row) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut prepared = connection.prepare_cached(statement.sql.text)?;
    let indexes = bind_single_values(&mut prepared, &statement.values)?;
    for element in elements(statement) {
        bind_elements(&mut prepared, &indexes, &statement.values, element)?;
        let mut found = prepared.raw_query();
        while let Some(row) = found.next()? {
            each(row)?;
        }
    }
    Ok(())
}

/// Binds the single values by the names of their parameters; returns the index of each parameter. SQLite numbers parameters
/// in the order in which they appear in the text.
fn bind_single_values(prepared: &mut Prepared<'_>, values: &[Value<'_>]) -> Result<Vec<usize>, StoreError> {
    let (parameters, given) = (prepared.parameter_count(), values.len());
    if parameters != given {
        let reason = format!("a statement has {parameters} parameters and was given {given} values");
        return Err(StoreError::Refused(reason));
    }
    let mut indexes = Vec::with_capacity(given);
    for (name, value) in PARAMETERS.iter().zip(values) {
        let index = prepared.parameter_index(name)?;
        let index = index.ok_or_else(|| StoreError::Refused(format!("a statement has no parameter {name}")))?;
        if value.list_length().is_none() {
            prepared.raw_bind_parameter(index, StorableValue { value })?;
        }
        indexes.push(index);
    }
    Ok(indexes)
}

/// Binds the elements of the lists at a position. The single values stay bound.
fn bind_elements(
    prepared: &mut Prepared<'_>,
    indexes: &[usize],
    values: &[Value<'_>],
    element: usize,
) -> Result<(), StoreError> {
    for (index, value) in indexes.iter().zip(values) {
        match value {
            Value::Texts(texts) => prepared.raw_bind_parameter(*index, StorableValue { value: texts.get(element) })?,
            Value::Ints(numbers) => prepared.raw_bind_parameter(*index, numbers.get(element))?,
            Value::Null | Value::Int(_) | Value::Flag(_) | Value::Text(_) | Value::Bytes(_) => {}
        }
    }
    Ok(())
}

impl rusqlite::ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Null => Ok(rusqlite::types::Null.into()),
            Self::Int(number) => Ok((*number).into()),
            Self::Flag(flag) => Ok((*flag).into()),
            Self::Text(text) => text.to_sql(),
            Self::Bytes(bytes) => bytes.to_sql(),
            // The executor binds their elements.
            Self::Texts(_) | Self::Ints(_) => Err(rusqlite::Error::ToSqlConversionFailure("a list".into())),
        }
    }
}

impl Row for rusqlite::Row<'_> {
    fn int(&self, column: usize) -> Result<Option<i64>, StoreError> {
        Ok(self.get(column)?)
    }

    fn text(&self, column: usize) -> Result<Option<&str>, StoreError> {
        self.get_ref(column)?.as_str_or_null().map_err(rows::damaged)
    }

    fn bytes(&self, column: usize) -> Result<Option<&[u8]>, StoreError> {
        self.get_ref(column)?.as_blob_or_null().map_err(rows::damaged)
    }

    fn flag(&self, column: usize) -> Result<bool, StoreError> {
        Ok(self.get(column)?)
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::super::schema;
    use crate::journal::store::records::TEXTS;

    #[test]
    fn every_statement_can_be_prepared() {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection, 0).unwrap();
        for sql in TEXTS.iter().flat_map(|texts| texts.iter()) {
            let prepared = connection.prepare(sql.text).unwrap_or_else(|error| panic!("{}: {error}", sql.text));
            assert!(prepared.parameter_count() <= super::PARAMETERS.len(), "{}", sql.text);
        }
    }
}
