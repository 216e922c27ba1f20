//! The table `crawls`: progress of crawls.

use super::{connection::Session, row};
use crate::{
    journal::{
        seed::CrawlProgress,
        store::{StoreError, rows},
    },
    model::SourceName,
};

pub(super) const WRITE: &str = "INSERT INTO crawls (source, id, parts, position, objects, started, updated, finished)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (source) DO UPDATE SET (id, parts, position, objects, started, updated, finished) =
        (excluded.id, excluded.parts, excluded.position, excluded.objects, excluded.started, excluded.updated,
         excluded.finished)";

/// Writes the progress of crawls. A batch rarely has more than one crawl, and later progress replaces earlier.
pub(super) async fn write(session: &Session, crawls: &[CrawlProgress]) -> Result<(), StoreError> {
    for CrawlProgress { source, id, parts, position, objects, started, updated, finished } in crawls {
        let [parts, objects] = [*parts, *objects].map(rows::number);
        let (started, updated) = (started.millis(), updated.millis());
        let values: &[super::connection::Value<'_>] =
            &[&source.as_str(), id, &parts, &&**position, &objects, &started, &updated, finished];
        session.execute(WRITE, values).await?;
    }
    Ok(())
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
