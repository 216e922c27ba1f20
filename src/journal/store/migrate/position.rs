//! The position of a migration, which the target stores with the rows before it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::JournalFacts;
use crate::{
    journal::store::{
        StoreError, rows,
        tables::{Cell, Table},
    },
    model::Seq,
};

/// Position after the last copied row, and the journal to which it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::journal::store) struct Position {
    identity: Uuid,
    head: Seq,
    /// Table of the last copied row.
    pub(super) table: Table,
    /// Key of the last copied row; nothing at the beginning of a table.
    pub(super) after: Vec<Cell>,
    /// Number of copied rows of all tables.
    pub(super) rows: u64,
}

/// JSON of a position.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PositionJson {
    identity: Uuid,
    head: u64,
    table: String,
    after: Vec<KeyPart>,
    rows: u64,
}

/// Part of a key: no key has any other type.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum KeyPart {
    Integer(i64),
    Text(String),
}

impl Position {
    /// Returns the position before all rows of a journal.
    pub(super) fn start(facts: &JournalFacts) -> Self {
        Self { identity: facts.identity, head: facts.head, table: Table::ALL[0], after: Vec::new(), rows: 0 }
    }

    /// Returns whether the position belongs to a journal in its present state.
    pub(super) fn is_of(&self, facts: &JournalFacts) -> bool {
        (self.identity, self.head) == (facts.identity, facts.head)
    }

    /// Returns the position after a further page.
    pub(super) fn advanced(&self, table: Table, after: Vec<Cell>, page: usize) -> Self {
        Self { table, after, rows: self.rows + page as u64, ..*self }
    }

    /// Returns the JSON under which a target stores the position.
    pub(in crate::journal::store) fn to_json(&self) -> Result<String, StoreError> {
        let part = |cell: &Cell| match cell {
            Cell::Integer(value) => Ok(KeyPart::Integer(*value)),
            Cell::Text(text) => Ok(KeyPart::Text(text.clone())),
            Cell::Null | Cell::Bytes(_) => Err(rows::damaged("a key is neither a number nor a text")),
        };
        rows::to_json(&PositionJson {
            identity: self.identity,
            head: self.head.0,
            table: self.table.name().to_owned(),
            after: self.after.iter().map(part).collect::<Result<_, _>>()?,
            rows: self.rows,
        })
    }

    /// Parses a stored position.
    pub(in crate::journal::store) fn from_json(text: &str) -> Result<Self, StoreError> {
        let PositionJson { identity, head, table, after, rows } = rows::json(text)?;
        let known = Table::ALL.into_iter().find(|known| known.name() == table);
        let part = |part| match part {
            KeyPart::Integer(value) => Cell::Integer(value),
            KeyPart::Text(text) => Cell::Text(text),
        };
        Ok(Self {
            identity,
            head: Seq(head),
            table: known.ok_or_else(|| rows::damaged(format!("the migration has an unknown table: {table}")))?,
            after: after.into_iter().map(part).collect(),
            rows,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, JournalFacts, Position, Seq, Table, Uuid};

    #[test]
    fn positions_survive_storage() {
        let facts = JournalFacts {
            identity: Uuid::from_u128(7),
            head: Seq(9),
            newest_seed: 0,
            newest_quarantined: 0,
            newest_dead_letter: 0,
        };
        let start = Position::start(&facts);
        let later = start.advanced(Table::Items, vec![Cell::Text("http://h/\"1".into()), Cell::Text("i".into())], 5);
        let number = start.advanced(Table::Changes, vec![Cell::Integer(-1)], 3);
        for position in [start, later, number] {
            assert!(Position::from_json(&position.to_json().unwrap()).unwrap() == position && position.is_of(&facts));
            assert!(!position.is_of(&JournalFacts { head: Seq(10), ..facts }));
        }
        assert!(Position::from_json("{}").is_err());
    }
}
