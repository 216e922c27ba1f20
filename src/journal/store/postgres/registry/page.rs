//! Reading of whole objects, for views.

use std::collections::BTreeMap;

use foldhash::HashMap;
use tokio_postgres::Row;

use super::{
    super::{connection::Session, readers::in_snapshot, row},
    columns::{self, item_columns, object_columns},
    read,
};
use crate::{
    journal::{
        RegistryPosition,
        registry::{ItemRecord, ObjectState},
        store::{ObjectSelection, StoreError, rows},
    },
    model::Uri,
};

/// Number of items after which a page ends early.
pub(super) const PAGE_ITEMS: usize = 20_000;

/// Number of bytes of URIs and content locations after which a page ends early.
pub(super) const PAGE_BYTES: usize = 4 << 20;

/// Number of items after which no further object is read in one query.
const QUERY_ITEMS: i64 = 2_000;

const OBJECT: &str = concat!("SELECT object, ", object_columns!(), " FROM objects WHERE uri = $1");

const PAGE: &str = concat!(
    "SELECT object, coalesce(items, (SELECT count(*) FROM items WHERE items.object = objects.object)), uri, ",
    object_columns!(),
    " FROM objects WHERE uri >= $1 AND uri <> $2 ORDER BY uri LIMIT $3"
);

const ITEMS: &str =
    concat!("SELECT object, ", item_columns!(), " FROM items WHERE object = ANY($1::bigint[]) ORDER BY object, uri");

/// Reads an object with all its items.
pub(in super::super) async fn object(session: &Session, uri: &Uri) -> Result<Option<ObjectState>, StoreError> {
    in_snapshot(session, async |session| {
        let Some(found) = session.query_opt(OBJECT, &[&uri.as_str()]).await? else { return Ok(None) };
        let mut state = columns::object(&found, 1).map_err(|error| error.of_object(uri))?;
        for item in session.query(ITEMS, &[&vec![row::get::<i64>(&found, 0)?]]).await? {
            state.items.extend([columns::item(&item, 1).map_err(|error| error.of_object(uri))?]);
        }
        Ok(Some(state))
    })
    .await
}

/// Reads objects with the selected items, from one consistent snapshot.
pub(in super::super) async fn objects(
    session: &Session,
    selected: &ObjectSelection,
) -> Result<HashMap<Uri, ObjectState>, StoreError> {
    in_snapshot(session, async |session| {
        let rows = read::prefetch(session, selected).await?;
        let found = rows.into_iter().filter(|(_, found)| found.row.is_some());
        Ok(found.map(|(uri, found)| (uri, found.prefetched.state)).collect())
    })
    .await
}

/// Reads up to `limit` objects from a position on, in order of their URIs, from one consistent snapshot. The page ends before
/// a damaged object; if it is the first one, it is the error.
pub(in super::super) async fn page(
    session: &Session,
    from: &RegistryPosition,
    limit: usize,
) -> Result<Vec<(Uri, ObjectState)>, StoreError> {
    let ((least, left_out), limit) = (from.bounds(), rows::number(limit as u64));
    in_snapshot(session, async |session| {
        let objects = session.query(PAGE, &[&least, &left_out, &limit]).await?;
        let (mut page, mut items, mut bytes) = (Vec::with_capacity(objects.len()), 0, 0);
        let mut rest = objects.as_slice();
        while !rest.is_empty() && items < PAGE_ITEMS && bytes < PAGE_BYTES {
            let (part, others) = rest.split_at(objects_per_query(rest)?);
            let mut items_by_object = items_of(session, part).await?;
            for found in part {
                let uri = rows::uri(row::get(found, 2)?)?;
                let items_of_object =
                    items_by_object.remove(&row::get::<i64>(found, 0)?).unwrap_or_else(|| Ok(BTreeMap::new()));
                let read = columns::object(found, 3).and_then(|state| Ok((state, items_of_object?)));
                let state = match read {
                    Ok((state, items)) => ObjectState { items, ..state },
                    Err(StoreError::Damaged(_)) if !page.is_empty() => return Ok(page),
                    Err(error) => return Err(error.of_object(&uri)),
                };
                items += state.items.len();
                bytes += uri.as_str().len() + size(&state);
                page.push((uri, state));
            }
            rest = others;
        }
        Ok(page)
    })
    .await
}

/// Returns the number of objects whose items one query reads: at least one.
pub(super) fn objects_per_query(objects: &[Row]) -> Result<usize, StoreError> {
    let (mut count, mut items) = (0, 0);
    while count < objects.len() && items < QUERY_ITEMS {
        items += row::get::<i64>(&objects[count], 1)?;
        count += 1;
    }
    Ok(count)
}

/// Items of an object, or the error of a damaged one.
pub(super) type Items = Result<BTreeMap<Uri, Box<ItemRecord>>, StoreError>;

/// Reads all items of these objects.
pub(super) async fn items_of(session: &Session, objects: &[Row]) -> Result<BTreeMap<i64, Items>, StoreError> {
    let numbers = objects.iter().map(|object| row::get(object, 0)).collect::<Result<Vec<i64>, _>>()?;
    let mut items: BTreeMap<i64, Items> = BTreeMap::new();
    for item in session.query(ITEMS, &[&numbers]).await? {
        let of_object = items.entry(row::get(&item, 0)?).or_insert_with(|| Ok(BTreeMap::new()));
        match (of_object, columns::item(&item, 1)) {
            (Ok(records), Ok(record)) => records.extend([record]),
            (of_object, Err(error)) => *of_object = Err(error),
            (Err(_), Ok(_)) => {}
        }
    }
    Ok(items)
}

/// Returns the approximate size of an object in a page, in bytes.
pub(super) fn size(state: &ObjectState) -> usize {
    let item = |item: &Uri| item.as_str().len() + state.content(item).map_or(0, |content| content.json().len());
    let types = state.types().iter().map(|uri| uri.as_str().len()).sum::<usize>();
    types + state.items.keys().map(item).sum::<usize>()
}
