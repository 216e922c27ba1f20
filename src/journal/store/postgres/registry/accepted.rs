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
const TIMES: &str = "SELECT accepted, published FROM objects WHERE uri = $1";
const TOKEN_KEY: &str = "SELECT token_key FROM journal_head";

/// Returns the times of acceptance of an object, if it has a row.
pub(in super::super) async fn object_times(session: &Session, uri: &Uri) -> Result<Option<ObjectTimes>, StoreError> {
    let Some(found) = session.query_opt(TIMES, &[&uri.as_str()]).await? else { return Ok(None) };
    let published: Option<i64> = row::get(&found, 1)?;
    Ok(Some(ObjectTimes { accepted: AcceptanceTime(row::get(&found, 0)?), published: published.map(AcceptanceTime) }))
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
    let AcceptedQuery { public, after, before, source, parent, object_type, limit } = query;
    let before = before.map_or(i64::MAX, |before| before.0);
    let object_type = object_type.as_ref().map(rows::to_json).transpose()?;
    let (source, parent) = (source.as_ref().map(SourceName::as_str), parent.as_ref().map(Uri::as_str));
    // One more, to know whether there is one.
    let at_most = rows::number(limit.saturating_add(1) as u64);
    let sql = if *public { PAGE_PUBLISHED } else { PAGE };
    in_snapshot(session, async |session| {
        let values: &[super::super::value::Value<'_>] =
            &[&after.time.0, &after.object, &before, &source, &parent, &object_type, &at_most];
        let found = session.query(sql, values).await?;
        let mut page = AcceptedPage { objects: Vec::with_capacity(found.len()), has_more: false };
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
        page.has_more = page.objects.len() < found.len();
        Ok(page)
    })
    .await
}
