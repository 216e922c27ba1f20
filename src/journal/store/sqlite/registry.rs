//! The registry as a whole, for those who read it: what its tables hold, and over it what has gathered in memory.

use std::{collections::BTreeSet, sync::Arc};

use rusqlite::{Connection, params};

use super::{gathered::Gathered, held::Held, objects, rows, shared::SharedGathered};
use crate::{
    journal::{
        registry::ObjectState,
        store::{ItemsAsked, StoreError},
    },
    model::Uri,
};

/// How many items one page of the registry has, before it is ended early.
const ITEMS_ON_A_PAGE: usize = 20_000;

/// About how many bytes of URIs and places of content one page has, before it is ended early.
const BYTES_ON_A_PAGE: usize = 4 << 20;

/// All that is known of an object.
pub(super) fn object(
    connection: &Connection,
    gathered: &SharedGathered,
    uri: &Uri,
) -> Result<Option<ObjectState>, StoreError> {
    let (transaction, held) = gathered.at_one_moment(connection, |gathered| gathered.held(uri))?;
    let in_tables = objects::Reading::new(&transaction)?.object(uri, &ItemsAsked::All)?;
    Ok(match held {
        Some(held) => Some(held.over(in_tables)?),
        None => in_tables.map(|known| Arc::unwrap_or_clone(known.state)),
    })
}

/// Objects after `after`, in order, as of one moment.
pub(super) fn page(
    connection: &Connection,
    gathered: &SharedGathered,
    after: Option<&Uri>,
    limit: usize,
) -> Result<Vec<(Uri, ObjectState)>, StoreError> {
    let (transaction, mut held) = gathered.at_one_moment(connection, |gathered| gathered.after(after, limit))?;
    let mut uris = uris(&transaction, after, limit)?;
    uris.extend(held.keys().cloned());
    let mut reading = objects::Reading::new(&transaction)?;
    let mut page = Vec::new();
    let (mut items, mut bytes) = (0, 0);
    for uri in uris.into_iter().take(limit) {
        if items >= ITEMS_ON_A_PAGE || bytes >= BYTES_ON_A_PAGE {
            break;
        }
        let in_tables = reading.object(&uri, &ItemsAsked::All)?;
        let state = match held.remove(&uri) {
            Some(held) => held.over(in_tables)?,
            None => in_tables.map(|known| Arc::unwrap_or_clone(known.state)).unwrap_or_default(),
        };
        items += state.items.len();
        let size = |item: &Uri| item.as_str().len() + state.content(item).map_or(0, |content| content.json().len());
        let types = state.types().iter().map(|uri| uri.as_str().len()).sum::<usize>();
        bytes += uri.as_str().len() + types + state.items.keys().map(size).sum::<usize>();
        page.push((uri, state));
    }
    Ok(page)
}

/// How many items are known of each of these objects, in the tables or in memory.
pub(super) fn item_counts(
    connection: &Connection,
    gathered: &SharedGathered,
    objects: &[Uri],
) -> Result<Vec<usize>, StoreError> {
    let pick = |gathered: &Gathered| objects.iter().map(|uri| gathered.held(uri)).collect::<Vec<_>>();
    let (transaction, held) = gathered.at_one_moment(connection, pick)?;
    let mut reading = objects::Reading::new(&transaction)?;
    let mut rows = transaction.prepare_cached("SELECT count(*) FROM items WHERE object = ?")?;
    let mut count = |(uri, held): (&Uri, Option<Held>)| {
        let number = reading.number_or(held.as_ref().and_then(|held| held.number), uri)?;
        let items = held.map(|held| held.items).unwrap_or_default();
        let Some(number) = number else { return Ok(items.len()) };
        let mut count = usize::try_from(rows.query_row([number], |row| row.get::<_, i64>(0))?).unwrap_or(usize::MAX);
        for (item, _) in items {
            count += usize::from(reading.item(number, &item)?.is_none());
        }
        Ok(count)
    };
    objects.iter().zip(held).map(&mut count).collect()
}

/// The objects that have rows.
fn uris(connection: &Connection, after: Option<&Uri>, limit: usize) -> Result<BTreeSet<Uri>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT uri FROM objects WHERE uri > ? ORDER BY uri LIMIT ?")?;
    let mut found = statement.query(params![after.map_or("", Uri::as_str), rows::number(limit as u64)])?;
    let mut uris = BTreeSet::new();
    while let Some(row) = found.next()? {
        uris.insert(rows::uri(&row.get::<_, String>(0)?)?);
    }
    Ok(uris)
}
