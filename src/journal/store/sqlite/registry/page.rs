//! Reading of whole objects, for views.

use foldhash::HashMap;
use rusqlite::Connection;

use super::super::value::params;
use super::{super::rows, RegistryReader};
use crate::{
    journal::{
        RegistryPosition,
        registry::ObjectState,
        store::{ItemSelection, ObjectSelection, StoreError},
    },
    model::Uri,
};

/// Number of items after which a page ends early.
pub(super) const PAGE_ITEMS: usize = 20_000;

/// Number of bytes of URIs and content locations after which a page ends early.
pub(super) const PAGE_BYTES: usize = 4 << 20;

/// Reads an object with all its items.
pub(in super::super) fn object(connection: &Connection, uri: &Uri) -> Result<Option<ObjectState>, StoreError> {
    let transaction = connection.unchecked_transaction()?;
    let object = RegistryReader::new(&transaction)?.object(uri, &ItemSelection::All);
    let object = object.map_err(|error| error.of_object(uri))?;
    Ok(object.map(|(_, state)| state))
}

/// Reads objects with the selected items, from one consistent snapshot.
pub(in super::super) fn objects(
    connection: &Connection,
    selected: &ObjectSelection,
) -> Result<HashMap<Uri, ObjectState>, StoreError> {
    let transaction = connection.unchecked_transaction()?;
    let mut reader = RegistryReader::new(&transaction)?;
    let mut found = HashMap::default();
    for (uri, items) in selected {
        found.extend(reader.object(uri, items)?.map(|(_, state)| (uri.clone(), state)));
    }
    Ok(found)
}

/// Reads up to `limit` objects from a position on, in order of their URIs, from one consistent snapshot. The page ends before
/// a damaged object; if it is the first one, it is the error.
pub(in super::super) fn page(
    connection: &Connection,
    from: &RegistryPosition,
    limit: usize,
) -> Result<Vec<(Uri, ObjectState)>, StoreError> {
    let transaction = connection.unchecked_transaction()?;
    let sql = "SELECT uri FROM objects WHERE uri >= ? AND uri <> ? ORDER BY uri LIMIT ?";
    let mut statement = transaction.prepare_cached(sql)?;
    let (least, left_out) = from.bounds();
    let mut uris = statement.query(params![least, left_out, rows::number(limit as u64)])?;
    let mut reader = RegistryReader::new(&transaction)?;
    let mut page = Vec::new();
    let (mut items, mut bytes) = (0, 0);
    while items < PAGE_ITEMS
        && bytes < PAGE_BYTES
        && let Some(row) = uris.next()?
    {
        let uri = rows::uri(&row.get::<_, String>(0)?)?;
        let (_, state) = match reader.object(&uri, &ItemSelection::All) {
            Ok(Some(object)) => object,
            Ok(None) => continue,
            Err(StoreError::Damaged(_)) if !page.is_empty() => break,
            Err(error) => return Err(error.of_object(&uri)),
        };
        items += state.items.len();
        bytes += uri.as_str().len() + size(&state);
        page.push((uri, state));
    }
    Ok(page)
}

/// Returns the approximate size of an object in a page, in bytes.
pub(super) fn size(state: &ObjectState) -> usize {
    let item = |item: &Uri| item.as_str().len() + state.content(item).map_or(0, |content| content.json().len());
    let types = state.types().iter().map(|uri| uri.as_str().len()).sum::<usize>();
    types + state.items.keys().map(item).sum::<usize>()
}
