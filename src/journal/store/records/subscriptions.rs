//! The table `subscriptions`, and the modifications of subscriptions and their dead letters.

use super::{
    DefinitionKind, RecordWrite, Records, Statement, StoreError, dead_letters, read_all, read_one, statements,
    value::{Cells, values},
};
use crate::{
    journal::{
        nodes::{DutyName, Term},
        store::rows,
        subscriptions::{CursorAdvance, MadeBy, SubscriptionRecord, SubscriptionWrite},
    },
    model::{Seq, SubscriptionName, Timestamp},
};

/// Expression for the cursor of the parameter `$2`: the newest number that this journal has given up to there.
macro_rules! given_cursor {
    () => {
        "coalesce((SELECT head FROM restores WHERE head < $2 AND $2 <= floor),
            (SELECT CASE WHEN $2 < newest THEN $2 ELSE newest END
                FROM (SELECT coalesce(max(seq), 0) AS newest FROM changes) AS given))"
    };
}

statements! {
    ALL = "SELECT name, made_by, definition, cursor, paused, ended, paused_by, delivered,
            (SELECT count(*) FROM dead_letters WHERE subscription = subscriptions.name AND attempts > 0),
            (SELECT count(*) FROM dead_letters WHERE subscription = subscriptions.name AND attempts = 0)
        FROM subscriptions ORDER BY name";
    ONE = "SELECT name, made_by, definition, cursor, paused, ended, paused_by, delivered,
            (SELECT count(*) FROM dead_letters WHERE subscription = subscriptions.name AND attempts > 0),
            (SELECT count(*) FROM dead_letters WHERE subscription = subscriptions.name AND attempts = 0)
        FROM subscriptions WHERE name = $1";
    /// A cursor above the head, or in a range that a restore or a failover has skipped, is from another journal, and stays
    /// where it is.
    ADVANCE = concat!(
        "UPDATE subscriptions SET cursor = $2, delivered = coalesce($3, delivered)
            WHERE name = $1 AND cursor < $2 AND $2 = ",
        given_cursor!()
    );
    PUT = concat!(
        "INSERT INTO subscriptions (name, made_by, definition, cursor, paused) VALUES ($1, $3, $4, ",
        given_cursor!(),
        ", $5) ON CONFLICT (name) DO UPDATE SET made_by = excluded.made_by, definition = excluded.definition"
    );
    REWIND = concat!("UPDATE subscriptions SET cursor = ", given_cursor!(), " WHERE name = $1");
    DELETE_LETTERS = "DELETE FROM dead_letters WHERE subscription = $1";
    DELETE = "DELETE FROM subscriptions WHERE name = $1";
    SET_PAUSED = "UPDATE subscriptions SET paused = $2, paused_by = $3 WHERE name = $1";
    SET_ENDED = "UPDATE subscriptions SET ended = $2 WHERE name = $1";
}

/// Subscriptions with their cursors.
pub trait SubscriptionStore: Records {
    /// Returns all subscriptions, in order of their names.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn subscriptions(&self) -> Result<Vec<SubscriptionRecord>, StoreError> {
        read_all(self, &[Statement::new(ALL, [])], read)
    }

    /// Returns one subscription.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn subscription(&self, name: &SubscriptionName) -> Result<Option<SubscriptionRecord>, StoreError> {
        read_one(self, Statement::new(ONE, values![name]), read)
    }

    /// Modifies subscriptions and their dead letters in one transaction; returns the number of affected rows of each
    /// modification. A rewind, a deletion, a resumption or a skip without a term ends the duty of its subscription, so that its
    /// engine starts again, and no node moves the cursor that has delivered from the old one.
    ///
    /// # Errors
    /// Fails if the storage fails; then nothing was modified.
    fn write_subscriptions(&self, writes: &[SubscriptionWrite], term: Option<Term>) -> Result<Vec<u64>, StoreError> {
        let mut write = RecordWrite { term, ..RecordWrite::default() };
        let mut last_statements = Vec::with_capacity(writes.len());
        for modification in writes {
            write.statements.extend(statements_of(modification)?);
            last_statements.push(write.statements.len() - 1);
            if concerns_other_nodes(modification, term) {
                write.changed_definitions = Some(DefinitionKind::Subscriptions);
            }
            let restarted = restarted(modification).filter(|_| term.is_none());
            write.ended_duties.extend(restarted.map(DutyName::subscription));
        }
        let affected = self.execute(&write)?;
        Ok(last_statements.into_iter().map(|at| affected.get(at).copied().unwrap_or_default()).collect())
    }
}

impl<S: Records + ?Sized> SubscriptionStore for S {}

fn read(row: Cells<'_>) -> Result<SubscriptionRecord, StoreError> {
    Ok(SubscriptionRecord {
        name: SubscriptionName::parse(row.text(0)?).map_err(rows::damaged)?,
        made_by: row.named(1, "creator of a subscription", MadeBy::ALL, MadeBy::as_str)?,
        definition: row.text(2)?.to_owned().into(),
        cursor: row.seq(3)?,
        paused: row.flag(4)?,
        ended: row.partner_text(5)?,
        paused_by: row.optional_text(6)?.map(Into::into),
        delivered: row.optional_time(7)?,
        dead_letters: row.unsigned(8)?,
        repeats: row.unsigned(9)?,
    })
}

/// Returns the statement that moves a cursor forward, and never back.
pub(super) fn advance(to: &CursorAdvance) -> Statement<'_> {
    let CursorAdvance { name, cursor, delivered, .. } = to;
    advance_to(name, *cursor, *delivered)
}

fn advance_to(name: &SubscriptionName, cursor: Seq, delivered: Option<Timestamp>) -> Statement<'_> {
    Statement::new(ADVANCE, values![name, cursor, delivered])
}

/// Returns the statements of a modification. The number of rows that the last one affects is that of the modification.
fn statements_of(write: &SubscriptionWrite) -> Result<Vec<Statement<'_>>, StoreError> {
    Ok(vec![match write {
        SubscriptionWrite::Put { name, made_by, definition, cursor } => {
            Statement::new(PUT, values![name, *cursor, made_by.as_str(), definition.expose(), false])
        }
        SubscriptionWrite::Delete(name) => {
            return Ok([DELETE_LETTERS, DELETE].map(|sql| Statement::new(sql, values![name])).into());
        }
        SubscriptionWrite::Rewind(name, cursor) => Statement::new(REWIND, values![name, *cursor]),
        SubscriptionWrite::Pause(name, by) => Statement::new(SET_PAUSED, values![name, true, by]),
        SubscriptionWrite::Resume(name) => Statement::new(SET_PAUSED, values![name, false, None::<&str>]),
        SubscriptionWrite::SetEnded(name, reason) => Statement::new(SET_ENDED, values![name, reason.as_ref()]),
        SubscriptionWrite::AddDeadLetter(name, letter) | SubscriptionWrite::Skip(name, letter) => {
            return Ok(vec![advance_to(name, letter.seq, None), dead_letters::add(name, letter)?]);
        }
        SubscriptionWrite::Repeat(name, letter) => dead_letters::repeat(name, letter)?,
        SubscriptionWrite::ReplayDeadLetters(name, id) => dead_letters::replay(name, *id),
        SubscriptionWrite::DeadLetterRefused(name, id, reason) => dead_letters::refuse(name, *id, reason),
        SubscriptionWrite::DropDeadLetters(name, id) => dead_letters::drop(name, *id),
    }])
}

/// Returns the subscription if it must start again from the journal, on whichever node it runs.
fn restarted(write: &SubscriptionWrite) -> Option<&SubscriptionName> {
    match write {
        SubscriptionWrite::Rewind(name, _)
        | SubscriptionWrite::Delete(name)
        | SubscriptionWrite::Resume(name)
        | SubscriptionWrite::Skip(name, _) => Some(name),
        _ => None,
    }
}

/// Returns whether other nodes must read the subscription again.
fn concerns_other_nodes(write: &SubscriptionWrite, term: Option<Term>) -> bool {
    match write {
        SubscriptionWrite::Put { .. }
        | SubscriptionWrite::Delete(_)
        | SubscriptionWrite::Rewind(..)
        | SubscriptionWrite::Pause(..)
        | SubscriptionWrite::Resume(..)
        | SubscriptionWrite::Skip(..)
        | SubscriptionWrite::SetEnded(..)
        | SubscriptionWrite::Repeat(..)
        | SubscriptionWrite::ReplayDeadLetters(..) => true,
        SubscriptionWrite::DropDeadLetters(..) => term.is_none(),
        SubscriptionWrite::AddDeadLetter(..) | SubscriptionWrite::DeadLetterRefused(..) => false,
    }
}
