//! Writing of the table `quarantine`, whose size is counted in memory.

use rusqlite::{Connection, Transaction};

use super::records::read;
use crate::journal::{
    quarantine::{NewQuarantinedMessage, QuarantineId, QuarantineSize},
    store::{
        QuarantineReceipt, StoreError, StoreLimits,
        records::quarantine,
        shares::{Eviction, QuarantineShares},
    },
};

/// Inserts messages, and drops messages beyond the limits: the oldest of the source with the most first. `shares` has the
/// sizes of the sources, because counting them for each insertion would read the whole table.
pub(super) fn put(
    connection: &mut Connection,
    limits: StoreLimits,
    shares: &mut QuarantineShares,
    messages: &[NewQuarantinedMessage],
) -> Result<QuarantineReceipt, StoreError> {
    let transaction = connection.transaction()?;
    let mut new_shares = shares.clone();
    let mut ids = Vec::with_capacity(messages.len());
    for message in messages {
        read(&transaction, &quarantine::insert(message)?, &mut |row| {
            ids.push(quarantine::read_id(row)?);
            Ok(())
        })?;
        let size = QuarantineSize { messages: 1, bytes: message.body.len() as u64 };
        new_shares.add(message.source.as_str(), size);
    }
    let dropped = make_room(&transaction, limits, &mut new_shares, &ids)?;
    transaction.commit()?;
    *shares = new_shares;
    Ok(QuarantineReceipt { ids, dropped })
}

/// Drops messages until the size is within the limits; returns the number of dropped messages.
fn make_room(
    transaction: &Transaction<'_>,
    limits: StoreLimits,
    shares: &mut QuarantineShares,
    ids: &[QuarantineId],
) -> Result<u64, StoreError> {
    let Some(newest) = ids.last().filter(|_| shares.total().exceeds(limits)) else { return Ok(0) };
    let mut eviction = Eviction::new(limits, shares, *newest);
    while let Some(query) = eviction.choose() {
        let mut oldest = Vec::new();
        read(transaction, &quarantine::oldest(&query), &mut |row| {
            oldest.push(quarantine::read_oldest(row)?);
            Ok(())
        })?;
        eviction.add(&query.source, oldest);
    }
    let mut dropped = 0;
    for id in eviction.chosen() {
        dropped += u64::from(remove(transaction, shares, id)?);
    }
    Ok(dropped)
}

/// Removes a message; returns whether there was one.
pub(super) fn remove(
    connection: &Connection,
    shares: &mut QuarantineShares,
    id: QuarantineId,
) -> Result<bool, StoreError> {
    let mut was_there = false;
    read(connection, &quarantine::delete(id), &mut |row| {
        let (source, bytes) = quarantine::read_removed(row)?;
        shares.remove(&source, bytes);
        was_there = true;
        Ok(())
    })?;
    Ok(was_there)
}

/// Counts the messages of each source and their bytes, which reads the whole table.
pub(super) fn shares(connection: &Connection) -> Result<QuarantineShares, StoreError> {
    let mut shares = QuarantineShares::default();
    read(connection, &quarantine::shares(), &mut |row| quarantine::read_share(row, &mut shares))?;
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use bytes::Bytes;

    use super::{
        super::schema, Connection, NewQuarantinedMessage, QuarantineShares, QuarantineSize, StoreLimits, put, remove,
        shares,
    };
    use crate::model::{SourceName, Text, Timestamp};

    fn message(bytes: usize) -> NewQuarantinedMessage {
        from("s", bytes)
    }

    fn from(source: &str, bytes: usize) -> NewQuarantinedMessage {
        NewQuarantinedMessage {
            received: Timestamp::EPOCH,
            source: SourceName::parse(source).unwrap(),
            content_type: None,
            headers: Vec::new(),
            body: Bytes::from(vec![b'x'; bytes]),
            location: Text::default(),
            reason: Text::default(),
        }
    }

    fn journal() -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection, 0).unwrap();
        connection
    }

    #[test]
    fn size_matches_the_table_after_insertions_and_removals() {
        let mut connection = journal();
        let mut total = QuarantineShares::default();
        let limits = StoreLimits { quarantine_entries: 3, quarantine_bytes: 1000, ..StoreLimits::default() };
        for (bytes, messages, sum) in [(10, 1, 10), (20, 2, 30), (30, 3, 60), (40, 3, 90), (990, 1, 990), (5, 2, 995)] {
            put(&mut connection, limits, &mut total, &[message(bytes)]).unwrap();
            assert_eq!(total.total(), QuarantineSize { messages, bytes: sum }, "{bytes}");
            assert_eq!(shares(&connection).unwrap(), total);
        }
        let ids = put(&mut connection, limits, &mut total, &[message(1)]).unwrap().ids;
        assert!(remove(&connection, &mut total, ids[0]).unwrap());
        assert!(!remove(&connection, &mut total, ids[0]).unwrap());
        assert_eq!(total.total(), QuarantineSize { messages: 2, bytes: 995 });
        assert_eq!(shares(&connection).unwrap(), total);
    }

    #[test]
    fn a_source_with_many_messages_pushes_out_its_own() {
        let mut connection = journal();
        let mut total = QuarantineShares::default();
        let limits = StoreLimits { quarantine_entries: 300, ..StoreLimits::default() };
        let quiet = put(&mut connection, limits, &mut total, &[from("quiet", 5)]).unwrap().ids[0];
        let flood: Vec<_> = (0..1000).map(|_| from("loud", 1)).collect();
        assert_eq!(put(&mut connection, limits, &mut total, &flood).unwrap().dropped, 701);
        let mut statement = connection.prepare("SELECT id FROM quarantine").unwrap();
        let kept: Vec<_> = statement.query_map([], |row| row.get::<_, i64>(0)).unwrap().map(Result::unwrap).collect();
        assert!(kept.contains(&(quiet.0 as i64)) && kept.len() == 300, "{kept:?}");
        assert_eq!(shares(&connection).unwrap(), total);
    }

    #[test]
    fn insertion_into_a_full_quarantine_takes_as_long_as_into_an_empty_one() {
        let mut connection = journal();
        let mut total = QuarantineShares::default();
        let limits = StoreLimits { quarantine_entries: 1000, ..StoreLimits::default() };
        let steps = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&steps);
        let count = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            false
        };
        connection.progress_handler(1, Some(count)).unwrap();
        let mut steps_of_one = |connection: &mut Connection| {
            steps.store(0, Ordering::Relaxed);
            put(connection, limits, &mut total, &[message(1)]).unwrap();
            steps.load(Ordering::Relaxed)
        };
        let into_empty = steps_of_one(&mut connection);
        for _ in 0..1000 {
            steps_of_one(&mut connection);
        }
        let into_full = steps_of_one(&mut connection);
        assert!(into_full < into_empty + 100, "{into_empty} steps of statements, and {into_full} when it is full");
    }
}
