//! Values of statements.

use rusqlite::{
    Params, ToSql, params_from_iter,
    types::{ToSqlOutput, Value, ValueRef},
};

use crate::text::storable;

/// A value as the database gets it: a text is [`storable`], so that both stores have the same text. The macro [`params`]
/// wraps all values of a statement, so no column can forget it.
pub(super) struct StorableValue<T> {
    pub(super) value: T,
}

impl<T: ToSql> ToSql for StorableValue<T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.value.to_sql()? {
            ToSqlOutput::Borrowed(ValueRef::Text(text)) if text.contains(&0) => {
                ToSqlOutput::Owned(Value::Text(storable(&String::from_utf8_lossy(text)).into_owned()))
            }
            ToSqlOutput::Owned(Value::Text(text)) if text.contains('\0') => {
                ToSqlOutput::Owned(Value::Text(storable(&text).into_owned()))
            }
            other => other,
        })
    }
}

/// Returns the values of a statement whose number is known at run time.
pub(super) fn storable_values<T: ToSql>(values: impl IntoIterator<Item = T>) -> impl Params {
    params_from_iter(values.into_iter().map(|value| StorableValue { value }))
}

/// Returns the values of a statement. The macro of rusqlite with this name does not clean texts, and a lint forbids it.
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        &[$(&$crate::journal::store::sqlite::value::StorableValue { value: &$value } as &dyn rusqlite::ToSql),*]
            as &[&dyn rusqlite::ToSql]
    };
}
pub(super) use params;

#[cfg(test)]
mod tests {
    use rusqlite::{Connection, types::Value};

    #[test]
    fn texts_have_no_nul_and_other_values_stay() {
        let connection = Connection::open_in_memory().unwrap();
        let stored = |values: &[&dyn rusqlite::ToSql]| {
            connection.query_row("SELECT ?", values, |row| row.get::<_, Value>(0)).unwrap()
        };
        for text in [stored(params!["a\0b"]), stored(params!["a\0b".to_owned()]), stored(params![Some("a\0b")])] {
            assert_eq!(text, Value::Text("a\u{FFFD}b".to_owned()));
        }
        assert_eq!(stored(params![b"a\0b"]), Value::Blob(b"a\0b".to_vec()));
        assert_eq!(stored(params![None::<&str>]), Value::Null);
    }
}
