//! Reading of the objects that a batch refers to.

use foldhash::HashMap;
use futures_util::future::join3;

use super::{
    super::{connection::Session, row},
    columns::{self, item_columns, object_columns},
};
use crate::{
    journal::store::{ItemSelection, PrefetchedObject, StoreError},
    model::Uri,
};

/// Query for objects by their URIs; returns the position of each URI in the array.
pub(in super::super) const OBJECTS: &str = concat!(
    "SELECT wanted.position, o.object, o.items, ",
    object_columns!(),
    " FROM unnest($1::text[]) WITH ORDINALITY AS wanted(wanted_uri, position)
      JOIN objects o ON o.uri = wanted.wanted_uri"
);

/// Query for all items of objects.
pub(in super::super) const ALL_ITEMS: &str = concat!(
    "SELECT wanted.position, found.* FROM unnest($1::text[]) WITH ORDINALITY AS wanted(wanted_uri, position)
     JOIN objects o ON o.uri = wanted.wanted_uri
     JOIN (SELECT object, ",
    item_columns!(),
    " FROM items) AS found ON found.object = o.object"
);

/// Query for single items of objects. `OFFSET 0` keeps the subquery separate, so that it searches by both columns of
/// the index; otherwise the plan may read all items of each object.
pub(in super::super) const SELECTED_ITEMS: &str = concat!(
    "SELECT wanted.position, found.*
     FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted(wanted_uri, item, position)
     JOIN objects o ON o.uri = wanted.wanted_uri
     CROSS JOIN LATERAL (SELECT object, ",
    item_columns!(),
    " FROM items WHERE object = o.object AND uri = wanted.item OFFSET 0) AS found"
);

/// Query for the numbers of items of objects.
const COUNT_ITEMS: &str = "SELECT (SELECT count(*) FROM items WHERE items.object = wanted.object)
    FROM unnest($1::bigint[]) WITH ORDINALITY AS wanted(object, position) ORDER BY wanted.position";

/// An object with the selected items, and its row.
#[derive(Default)]
pub(in super::super) struct PrefetchedRow {
    pub(in super::super) prefetched: PrefetchedObject,
    /// Number of items in the row; `None` if the object has no row.
    pub(in super::super) row: Option<Option<i64>>,
    /// Primary key of the row.
    number: i64,
}

/// Reads objects with the selected items.
pub(in super::super) async fn prefetch(
    session: &Session,
    selected: &HashMap<Uri, ItemSelection>,
) -> Result<HashMap<Uri, PrefetchedRow>, StoreError> {
    let uris: Vec<&Uri> = selected.keys().collect();
    let (mut whole, mut owners, mut items) = (Vec::new(), Vec::new(), Vec::new());
    for (uri, selection) in selected {
        match selection {
            ItemSelection::All => whole.push(uri),
            ItemSelection::Some(these) => {
                owners.extend(these.as_slice().iter().map(|_| uri));
                items.extend(these.as_slice().iter().map(Uri::as_str));
            }
        }
    }
    let (objects, all, some) = join3(
        query(session, OBJECTS, &uris, None),
        query(session, ALL_ITEMS, &whole, None),
        query(session, SELECTED_ITEMS, &owners, Some(&items)),
    )
    .await;
    let mut found: HashMap<Uri, PrefetchedRow> = uris.iter().map(|uri| ((*uri).clone(), absent())).collect();
    for object in objects? {
        let Some(entry) = position(&object, &uris)?.and_then(|uri| found.get_mut(uri)) else { continue };
        entry.number = row::get(&object, 1)?;
        entry.row = Some(row::get(&object, 2)?);
        entry.prefetched = PrefetchedObject { state: columns::object(&object, 3)?, other_items: None };
    }
    for (rows, owners) in [(all?, &whole), (some?, &owners)] {
        for item in rows {
            let Some(entry) = position(&item, owners)?.and_then(|uri| found.get_mut(uri)) else { continue };
            entry.prefetched.state.items.extend([columns::item(&item, 2)?]);
        }
    }
    count_items(session, selected, &mut found).await?;
    Ok(found)
}

/// Returns an object without a row. It has no items.
fn absent() -> PrefetchedRow {
    PrefetchedRow {
        prefetched: PrefetchedObject { other_items: Some(0), ..PrefetchedObject::default() },
        ..PrefetchedRow::default()
    }
}

async fn query(
    session: &Session,
    sql: &'static str,
    uris: &[&Uri],
    items: Option<&Vec<&str>>,
) -> Result<Vec<tokio_postgres::Row>, StoreError> {
    if uris.is_empty() {
        return Ok(Vec::new());
    }
    let uris: Vec<&str> = uris.iter().map(|uri| uri.as_str()).collect();
    match items {
        Some(items) => session.query(sql, &[&uris, items]).await,
        None => session.query(sql, &[&uris]).await,
    }
}

/// Returns the URI at the position in the first column, which counts from 1.
fn position<'u>(found: &tokio_postgres::Row, uris: &[&'u Uri]) -> Result<Option<&'u Uri>, StoreError> {
    let position = usize::try_from(row::get::<i64>(found, 0)?).unwrap_or_default();
    Ok(position.checked_sub(1).and_then(|index| uris.get(index)).copied())
}

/// Sets the number of other items of each object that lacks a selected item.
async fn count_items(
    session: &Session,
    selected: &HashMap<Uri, ItemSelection>,
    found: &mut HashMap<Uri, PrefetchedRow>,
) -> Result<(), StoreError> {
    let mut uncounted = Vec::new();
    for (uri, selection) in selected {
        let Some(entry) = found.get_mut(uri) else { continue };
        let Some(count) = entry.row else { continue };
        match selection {
            ItemSelection::All => entry.prefetched.other_items = Some(0),
            ItemSelection::Some(items) => {
                let state = &entry.prefetched.state;
                if items.as_slice().iter().all(|item| state.items.contains_key(item)) {
                    continue;
                }
                match count {
                    Some(count) => entry.set_count(count),
                    None => uncounted.push((entry.number, uri)),
                }
            }
        }
    }
    if uncounted.is_empty() {
        return Ok(());
    }
    let numbers: Vec<i64> = uncounted.iter().map(|(number, _)| *number).collect();
    let counts = session.query(COUNT_ITEMS, &[&numbers]).await?;
    for ((_, uri), count) in uncounted.into_iter().zip(&counts) {
        let count = row::get(count, 0)?;
        if let Some(entry) = found.get_mut(uri) {
            entry.set_count(count);
        }
    }
    Ok(())
}

impl PrefetchedRow {
    fn set_count(&mut self, all: i64) {
        let all = usize::try_from(all).unwrap_or_default();
        self.prefetched.other_items = Some(all.saturating_sub(self.prefetched.state.items.len()));
    }
}
