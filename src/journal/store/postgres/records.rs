//! Execution of the statements of the record tables. Those of a call are sent together.

use std::error::Error;

use bytes::BytesMut;
use futures_util::FutureExt;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::{
    PostgresStore,
    connection::{Session, pipeline},
    row,
    value::Value as Parameter,
};
use crate::journal::store::{
    StoreError,
    records::{RecordWrite, Records, Row, Statement, TEXTS, Value},
};

/// Maximum number of statements that are sent together. The client library keeps all of them in memory.
const STATEMENTS_TOGETHER: usize = 512;

/// Maximum size of the values of statements that are sent together, in bytes. A larger statement is sent alone.
const BYTES_TOGETHER: usize = 4 << 20;

/// Statement that makes the nodes read the definitions again.
const REVISE: &str =
    "WITH revised AS (UPDATE definition_revisions SET revision = revision + 1 WHERE kind = $1 RETURNING 1)
    SELECT pg_notify('tidings_nodes', '') FROM revised";

/// Statement that ends a duty, whichever node has it.
const END_DUTY: &str = "DELETE FROM duties WHERE name = $1";

impl Records for PostgresStore {
    fn query(
        &self,
        queries: &[Statement<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let found = self.read(async |session| query_all(session, queries).await)?;
        found.iter().flatten().try_for_each(|row| each(row))
    }

    fn execute(&self, write: &RecordWrite<'_>) -> Result<Vec<u64>, StoreError> {
        self.write_under(write.term, async |session| {
            // Every transaction locks duties first, then the revision, then rows, so that none waits for another in a
            // circle.
            for duty in &write.ended_duties {
                session.execute(END_DUTY, &[&duty.as_str()]).await?;
            }
            if let Some(kind) = write.changed_definitions {
                session.query(REVISE, &[&kind.name()]).await?;
            }
            execute_all(session, &write.statements).await
        })
    }
}

/// Prepares all statements of the record tables, in one round trip.
pub(super) async fn prepare_all(session: &Session) -> Result<(), StoreError> {
    let texts: Vec<_> =
        TEXTS.iter().flat_map(|texts| texts.iter().map(|sql| sql.of_arrays.unwrap_or(sql.text))).collect();
    session.prepare(&texts).await
}

/// Executes statements in order; returns the number of affected rows of each.
pub(super) async fn execute_all(session: &Session, statements: &[Statement<'_>]) -> Result<Vec<u64>, StoreError> {
    let mut affected = Vec::with_capacity(statements.len());
    for part in parts(statements) {
        prepare(session, part).await?;
        affected.extend(pipeline(part.iter().map(|one| execute(session, one).boxed_local()).collect()).await?);
    }
    Ok(affected)
}

/// Runs queries in order; returns the rows of each.
pub(super) async fn query_all(
    session: &Session,
    queries: &[Statement<'_>],
) -> Result<Vec<Vec<tokio_postgres::Row>>, StoreError> {
    let mut found = Vec::with_capacity(queries.len());
    for part in parts(queries) {
        prepare(session, part).await?;
        found.extend(pipeline(part.iter().map(|one| query(session, one).boxed_local()).collect()).await?);
    }
    Ok(found)
}

/// Executes a statement.
pub(super) async fn execute(session: &Session, statement: &Statement<'_>) -> Result<u64, StoreError> {
    session.execute(text(statement), &parameters(statement)).await
}

async fn query(session: &Session, statement: &Statement<'_>) -> Result<Vec<tokio_postgres::Row>, StoreError> {
    session.query(text(statement), &parameters(statement)).await
}

/// Returns the text of a statement. All statements of a text have lists, or none has.
fn text(statement: &Statement<'_>) -> &'static str {
    statement.sql.of_arrays.unwrap_or(statement.sql.text)
}

fn parameters<'s>(statement: &'s Statement<'_>) -> Vec<Parameter<'s>> {
    statement.values.iter().map(|value| value as Parameter<'_>).collect()
}

/// Prepares statements, because one that is not prepared would be overtaken by the next one.
pub(super) async fn prepare(session: &Session, statements: &[Statement<'_>]) -> Result<(), StoreError> {
    let mut texts: Vec<_> = statements.iter().map(text).collect();
    texts.sort_unstable();
    texts.dedup();
    session.prepare(&texts).await
}

/// Divides statements into parts that are sent together.
pub(super) fn parts<'s, 'v>(mut statements: &'s [Statement<'v>]) -> impl Iterator<Item = &'s [Statement<'v>]> {
    std::iter::from_fn(move || {
        if statements.is_empty() {
            return None;
        }
        let mut bytes = 0;
        let fits = |statement: &&Statement<'_>| {
            bytes += statement.size();
            bytes <= BYTES_TOGETHER
        };
        let length = statements.iter().take(STATEMENTS_TOGETHER).take_while(fits).count().max(1);
        let (part, rest) = statements.split_at(length);
        statements = rest;
        Some(part)
    })
}

impl ToSql for Value<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(number) => number.to_sql_checked(ty, out),
            Self::Flag(flag) => flag.to_sql_checked(ty, out),
            Self::Text(text) => text.as_ref().to_sql_checked(ty, out),
            Self::Bytes(bytes) => bytes.to_sql_checked(ty, out),
            Self::Texts(texts) => texts.to_sql_checked(ty, out),
            Self::Ints(numbers) => numbers.to_sql_checked(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        // The value checks its type.
        true
    }

    to_sql_checked!();
}

impl Row for tokio_postgres::Row {
    fn int(&self, column: usize) -> Result<Option<i64>, StoreError> {
        row::get(self, column)
    }

    fn text(&self, column: usize) -> Result<Option<&str>, StoreError> {
        row::get(self, column)
    }

    fn bytes(&self, column: usize) -> Result<Option<&[u8]>, StoreError> {
        row::get(self, column)
    }

    fn flag(&self, column: usize) -> Result<bool, StoreError> {
        row::get(self, column)
    }
}
