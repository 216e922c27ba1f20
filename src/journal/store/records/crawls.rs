//! The table `crawls`: progress of crawls.

use super::{Records, Statement, StoreError, read_one, statements, values};
use crate::{journal::seed::CrawlProgress, model::SourceName};

statements! {
    WRITE = "INSERT INTO crawls (source, id, parts, position, objects, started, updated, finished)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        ON CONFLICT (source) DO UPDATE SET (id, parts, position, objects, started, updated, finished) =
            (excluded.id, excluded.parts, excluded.position, excluded.objects, excluded.started, excluded.updated,
             excluded.finished)";
    READ = "SELECT id, parts, position, objects, started, updated, finished FROM crawls WHERE source = $1";
}

/// Progress of crawls, which is written with the changes of a batch.
pub trait CrawlStore: Records {
    /// Returns the progress of the newest crawl of a source's repository; `None` if there has been none.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn crawl_progress(&self, source: &SourceName) -> Result<Option<CrawlProgress>, StoreError> {
        read_one(self, Statement::new(READ, values![source]), |row| {
            Ok(CrawlProgress {
                source: source.clone(),
                id: row.uuid(0)?,
                parts: row.unsigned(1)?,
                position: row.text(2)?.into(),
                objects: row.unsigned(3)?,
                started: row.time(4)?,
                updated: row.time(5)?,
                finished: row.flag(6)?,
            })
        })
    }
}

impl<S: Records + ?Sized> CrawlStore for S {}

/// Returns the statement that writes the progress of a crawl.
pub(super) fn write(crawl: &CrawlProgress) -> Statement<'_> {
    let CrawlProgress { source, id, parts, position, objects, started, updated, finished } = crawl;
    let values = values![source, id.to_string(), *parts, position, *objects, *started, *updated, *finished];
    Statement::new(WRITE, values)
}
