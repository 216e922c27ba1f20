//! The registry as a whole, for those who read it: what its tables hold, and over it what has gathered in memory.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use rusqlite::{Connection, Transaction, params};

use super::{gathered::Gathered, objects, read, rows};
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

/// How long a reader waits for memory to follow the file: the writer does that next after a commit.
const PATIENCE: Duration = Duration::from_secs(5);

/// All that is known of an object.
pub(super) fn object(
    connection: &Connection,
    gathered: &RwLock<Gathered>,
    uri: &Uri,
) -> Result<Option<ObjectState>, StoreError> {
    let (transaction, held) = at_one_moment(connection, gathered, |gathered| gathered.held(uri))?;
    let in_tables = objects::Reading::new(&transaction)?.object(uri, &ItemsAsked::All)?;
    Ok(match held {
        Some(held) => Some(held.over(in_tables)?),
        None => in_tables.map(|known| Arc::unwrap_or_clone(known.state)),
    })
}

/// Objects after `after`, in order, as of one moment.
pub(super) fn page(
    connection: &Connection,
    gathered: &RwLock<Gathered>,
    after: Option<&Uri>,
    limit: usize,
) -> Result<Vec<(Uri, ObjectState)>, StoreError> {
    let (transaction, mut held) = at_one_moment(connection, gathered, |gathered| gathered.after(after, limit))?;
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

/// Begins to read the tables, and picks something of what has gathered, both as of one moment: who knows of a
/// change finds what it did in one or the other, and what moves finds its way into the tables before it leaves
/// memory. Between a commit and memory following it, a change is in the file already and what it touched not yet here:
/// that is waited for.
pub(super) fn at_one_moment<'c, T>(
    connection: &'c Connection,
    gathered: &RwLock<Gathered>,
    pick: impl Fn(&Gathered) -> T,
) -> Result<(Transaction<'c>, T), StoreError> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let gathered = gathered.read().unwrap_or_else(PoisonError::into_inner);
        let transaction = connection.unchecked_transaction()?;
        if read::head(&transaction)? <= gathered.newest().change {
            let picked = pick(&gathered);
            return Ok((transaction, picked));
        }
        drop((gathered, transaction));
        std::thread::yield_now();
    }
    Err(StoreError::Io("the registry does not follow the changes".to_owned()))
}
