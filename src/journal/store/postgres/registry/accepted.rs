//! Objects in the order of their times of acceptance.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{
    super::{connection::Session, readers::in_snapshot, row},
    columns::{self, object_columns},
    page::{PAGE_BYTES, PAGE_ITEMS, items_of, objects_per_query, size},
};
use crate::{
    journal::{
        acceptance::{AcceptanceTime, AcceptedObject, AcceptedPage, AcceptedPosition, AcceptedQuery, ObjectTimes},
        registry::ObjectState,
        store::{StoreError, rows},
    },
    model::{SourceName, Uri},
};

/// Statement for a page. The first columns are those that the queries of items read.
macro_rules! page {
    ($time:literal) => {
        concat!(
            "SELECT object, coalesce(items, (SELECT count(*) FROM items WHERE items.object = objects.object)), uri, ",
            $time,
            ", ",
            object_columns!(),
            " FROM objects WHERE (",
            $time,
            ", object) > ($1, $2) AND ",
            $time,
            " < $3 AND (CAST($4 AS text) IS NULL OR source = $4) AND (CAST($5 AS text) IS NULL OR parent = $5)
                AND (CAST($6 AS text) IS NULL OR strpos(types, $6) > 0) ORDER BY ",
            $time,
            ", object LIMIT $7"
        )
    };
}

const PAGE: &str = page!("accepted");
const PAGE_PUBLISHED: &str = page!("published");

/// Statement for the time of the last of the next objects, of which a page with conditions is a part.
macro_rules! window {
    ($time:literal) => {
        concat!("SELECT ", $time, " FROM objects WHERE ", $time, " > $1 ORDER BY ", $time, " LIMIT 1 OFFSET $2")
    };
}

const WINDOW: &str = window!("accepted");
const WINDOW_PUBLISHED: &str = window!("published");
const TIMES: &str = "SELECT accepted, published FROM objects WHERE uri = $1";
const NEWEST: &str = "SELECT accepted FROM journal_head";
const TOKEN_KEY: &str = "SELECT token_key FROM journal_head";

/// Returns the times of acceptance of an object, if it has a row.
pub(in super::super) async fn object_times(session: &Session, uri: &Uri) -> Result<Option<ObjectTimes>, StoreError> {
    let Some(found) = session.query_opt(TIMES, &[&uri.as_str()]).await? else { return Ok(None) };
    let published: Option<i64> = row::get(&found, 1)?;
    Ok(Some(ObjectTimes { accepted: AcceptanceTime(row::get(&found, 0)?), published: published.map(AcceptanceTime) }))
}

/// Returns the newest time of acceptance that a batch has given to objects.
pub(in super::super) async fn newest_acceptance(session: &Session) -> Result<AcceptanceTime, StoreError> {
    Ok(AcceptanceTime(row::get(&session.query_one(NEWEST, &[]).await?, 0)?))
}

/// Returns the key of the tokens that readers of the registry get.
pub(in super::super) async fn token_key(session: &Session) -> Result<[u8; 16], StoreError> {
    Ok(row::get::<Uuid>(&session.query_one(TOKEN_KEY, &[]).await?, 0)?.into_bytes())
}

/// Reads a page of objects in the order of their times of acceptance, from one consistent snapshot.
pub(in super::super) async fn page_by_acceptance(
    session: &Session,
    query: &AcceptedQuery,
) -> Result<AcceptedPage, StoreError> {
    let AcceptedQuery { public, after, source, parent, object_type, limit, .. } = query;
    let object_type = object_type.as_ref().map(rows::to_json).transpose()?;
    let (source, parent) = (source.as_ref().map(SourceName::as_str), parent.as_ref().map(Uri::as_str));
    // One more, to know whether there is one.
    let at_most = rows::number(limit.saturating_add(1) as u64);
    let (sql, window) = if *public { (PAGE_PUBLISHED, WINDOW_PUBLISHED) } else { (PAGE, WINDOW) };
    in_snapshot(session, async |session| {
        let end = match query.window() {
            Some(objects) => session.query_opt(window, &[&after.time.0, &rows::number(objects)]).await?,
            None => None,
        };
        let end = end.map(|found| row::get(&found, 0)).transpose()?.map(AcceptanceTime);
        let (before, rest_of_window) = query.bounds(end);
        let values: &[super::super::value::Value<'_>] =
            &[&after.time.0, &after.object, &before, &source, &parent, &object_type, &at_most];
        let found = session.query(sql, values).await?;
        let mut page = AcceptedPage { objects: Vec::with_capacity(found.len()), next: rest_of_window };
        let (mut items, mut bytes) = (0, 0);
        let mut rest = &found[..found.len().min(*limit)];
        while !rest.is_empty() && items < PAGE_ITEMS && bytes < PAGE_BYTES {
            let (part, others) = rest.split_at(objects_per_query(rest)?);
            let mut items_by_object = items_of(session, part).await?;
            for found in part {
                let number: i64 = row::get(found, 0)?;
                let uri = rows::uri(row::get(found, 2)?)?;
                let position = AcceptedPosition { time: AcceptanceTime(row::get(found, 3)?), object: number };
                let items_of_object = items_by_object.remove(&number).unwrap_or_else(|| Ok(BTreeMap::new()));
                let read =
                    columns::object(found, 4).and_then(|state| Ok(ObjectState { items: items_of_object?, ..state }));
                let state = match read {
                    Ok(state) => Some(state),
                    Err(StoreError::Damaged(what)) => {
                        tracing::warn!(object = %uri, what, "a damaged object is left out of a list");
                        None
                    }
                    Err(error) => return Err(error),
                };
                items += state.as_ref().map_or(0, |state| state.items.len());
                bytes += uri.as_str().len() + state.as_ref().map_or(0, size);
                page.objects.push(AcceptedObject { position, uri, state });
            }
            rest = others;
        }
        if page.objects.len() < found.len() {
            page.next = page.objects.last().map(|last| last.position);
        }
        Ok(page)
    })
    .await
}
