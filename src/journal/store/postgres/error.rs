//! Conversion of database errors. No text contains values of rows, because some rows contain secrets of subscribers:
//! the field `detail` of an error quotes rows, so it is never used.

use std::error::Error as _;

use tokio_postgres::{
    Error,
    error::{DbError, SqlState},
};

use crate::journal::store::{Remedy, StoreError};

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        if let Some(error) = error.as_db_error() {
            return from_db(error);
        }
        let is_io = error.source().is_some_and(|source| {
            source.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() != std::io::ErrorKind::InvalidInput)
        });
        if is_io || error.is_closed() {
            return Self::Unavailable(describe(&error));
        }
        Self::Refused(describe(&error))
    }
}

/// Describes an error in one line, without values of rows.
pub(super) fn describe(error: &Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{}, SQLSTATE {}", error.message(), error.code().code()),
        None => match error.source() {
            // The library's text of an error ends with that of its source, if the version prints it at all.
            Some(source) if !error.to_string().ends_with(&source.to_string()) => format!("{error}: {source}"),
            _ => error.to_string(),
        },
    }
}

fn from_db(error: &DbError) -> StoreError {
    classify(error.code(), format!("{}, SQLSTATE {}", error.message(), error.code().code()))
}

fn classify(code: &SqlState, text: String) -> StoreError {
    match code.code().get(..2).unwrap_or_default() {
        _ if *code == SqlState::DISK_FULL => StoreError::Full,
        _ if *code == SqlState::INSUFFICIENT_PRIVILEGE => StoreError::ReadOnly(text, Remedy::Database),
        _ if *code == SqlState::IO_ERROR => StoreError::Io(text),
        _ if *code == SqlState::READ_ONLY_SQL_TRANSACTION => {
            StoreError::Unavailable("the database server is a read-only standby".to_owned())
        }
        // A newer node has migrated the tables; the next connection prepares its statements again.
        _ if *code == SqlState::FEATURE_NOT_SUPPORTED => StoreError::Unavailable(text),
        // Connections, invalid transaction states, rollbacks, resources, locks, interventions of an operator.
        "08" | "25" | "40" | "53" | "55" | "57" | "58" => StoreError::Unavailable(text),
        _ if *code == SqlState::DATA_CORRUPTED || *code == SqlState::INDEX_CORRUPTED => StoreError::Damaged(text),
        // A table, column or function that does not exist, or that the role may not see.
        "3F" | "42" => StoreError::Missing(text),
        // A limit of the server on values, columns or statements.
        "54" => StoreError::TooLarge(text),
        _ => StoreError::Refused(text),
    }
}

#[cfg(test)]
mod tests {
    use super::{SqlState, StoreError, classify};

    #[test]
    fn full_disk_has_an_error_that_says_what_to_do() {
        let error = classify(&SqlState::from_code("53100"), "could not extend file".to_owned());
        assert!(matches!(error, StoreError::Full) && error.is_transient());
        assert!(error.to_string().contains("free some space"), "{error}");
    }

    #[test]
    fn only_lost_connections_and_competition_are_unavailable() {
        let class = |code: &str| classify(&SqlState::from_code(code), String::new());
        for code in ["08006", "25006", "40P01", "53300", "55P03", "57P01", "58000"] {
            assert!(matches!(class(code), StoreError::Unavailable(_)), "{code}");
        }
        assert!(matches!(class("42501"), StoreError::ReadOnly(..)));
        assert!(matches!(class("58030"), StoreError::Io(_)));
        assert!(matches!(class("XX001"), StoreError::Damaged(_)));
        assert!(matches!(class("54000"), StoreError::TooLarge(_)));
        assert!(matches!(class("22021"), StoreError::Refused(_)));
    }

    #[test]
    fn only_corruption_that_the_server_has_found_is_called_damage() {
        for code in ["42P01", "3F000", "42703", "42883", "42501", "XX000", "22021"] {
            let error = classify(&SqlState::from_code(code), String::new());
            assert!(!matches!(error, StoreError::Damaged(_)), "{code}");
            assert!(!error.to_string().contains("backup") && !error.to_string().contains("damage"), "{error}");
        }
    }
}
