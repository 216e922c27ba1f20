//! Explanation of a missing table. PostgreSQL hides the tables of a schema on which the role has no rights, and reports
//! them as missing; so the database is asked before a cause is named.

use super::{
    connection::{Connector, Session},
    driver::Driver,
    row,
    writing::CALL_LIMIT,
};
use crate::journal::store::{Remedy, StoreError};

/// Query for the part of the schema that the role may see.
const SCHEMA: &str = "SELECT CASE
        WHEN NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'tidings') THEN 'missing'
        WHEN NOT has_schema_privilege('tidings', 'USAGE') THEN 'hidden'
        ELSE 'visible'
    END";

/// Returns the error of a call with its cause, if the database reported a missing table, column or function.
pub(super) fn explain<T>(
    driver: &Driver,
    connector: &Connector,
    result: Result<T, StoreError>,
) -> Result<T, StoreError> {
    let Err(StoreError::Missing(reason)) = result else { return result };
    let state = driver.run(CALL_LIMIT, async { state(&connector.connect().await?).await });
    Err(match state?.as_str() {
        "hidden" => {
            let role = "the role of journal.store has no rights on the schema \"tidings\"";
            StoreError::ReadOnly(format!("{role}: {reason}"), Remedy::Database)
        }
        "missing" => StoreError::Missing(format!("the database has no schema \"tidings\": {reason}")),
        _ => StoreError::Missing(reason),
    })
}

async fn state(session: &Session) -> Result<String, StoreError> {
    row::get(&session.query_one(SCHEMA, &[]).await?, 0)
}
