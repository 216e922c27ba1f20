//! The table `crawls`: progress of crawls.

use std::collections::BTreeMap;

use super::{connection::Session, row};
use crate::{
    journal::{
        seed::CrawlProgress,
        store::{StoreError, rows},
    },
    model::SourceName,
};

pub(super) const WRITE: &str = "INSERT INTO crawls (source, id, parts, position, objects, started, updated, finished)
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
                         $8::boolean[])
    ON CONFLICT (source) DO UPDATE SET (id, parts, position, objects, started, updated, finished) =
        (excluded.id, excluded.parts, excluded.position, excluded.objects, excluded.started, excluded.updated,
         excluded.finished)";

/// Writes the progress of crawls.
pub(super) async fn write(session: &Session, crawls: &[CrawlProgress]) -> Result<(), StoreError> {
    if crawls.is_empty() {
        return Ok(());
    }
    // One statement cannot write a row twice, and later progress replaces earlier.
    let newest: BTreeMap<_, _> = crawls.iter().map(|crawl| (crawl.source.as_str(), crawl)).collect();
    let (mut sources, mut ids, mut parts, mut positions) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut objects, mut started, mut updated, mut finished) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (source, crawl) in newest {
        sources.push(source);
        ids.push(crawl.id);
        parts.push(rows::number(crawl.parts));
        positions.push(&*crawl.position);
        objects.push(rows::number(crawl.objects));
        started.push(crawl.started.millis());
        updated.push(crawl.updated.millis());
        finished.push(crawl.finished);
    }
    let values: &[super::value::Value<'_>] =
        &[&sources, &ids, &parts, &positions, &objects, &started, &updated, &finished];
    session.execute(WRITE, values).await.map(drop)
}

/// Reads the progress of the newest crawl of a source.
pub(super) async fn progress(session: &Session, source: &SourceName) -> Result<Option<CrawlProgress>, StoreError> {
    let sql = "SELECT id, parts, position, objects, started, updated, finished FROM crawls WHERE source = $1";
    let Some(crawl) = session.query_opt(sql, &[&source.as_str()]).await? else { return Ok(None) };
    Ok(Some(CrawlProgress {
        source: source.clone(),
        id: row::get(&crawl, 0)?,
        parts: row::unsigned(&crawl, 1)?,
        position: row::get::<&str>(&crawl, 2)?.into(),
        objects: row::unsigned(&crawl, 3)?,
        started: row::time(&crawl, 4)?,
        updated: row::time(&crawl, 5)?,
        finished: row::get(&crawl, 6)?,
    }))
}
