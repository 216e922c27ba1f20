//! Copies of the records in the file store, so that the gateway can disseminate them as the repository does.
//!
//! A record is stored when it was read and counts, and before it is written. So no change names a copy that is not there, and a
//! record that changes in each run without a new date costs no file. A crash in between leaves a file that no item has, which
//! `tidings files gc` removes.
//!
//! Each message gets the place of its copy as a header, also if the registry has that copy already: the dialect replaces the
//! content by what the message names.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{
    files::{FileDigest, FileLinks, FileStore, FileStoreError, StoredFile},
    format::{
        Limits,
        oai_pmh::{
            BASE_URL, COPY, METADATA_PREFIX, RESPONSE_DATE,
            kept_record::{KeptRecord, RecordOrigin},
        },
    },
    harvest::{AddedHeaders, HarvestError, HarvesterContext, stored_file},
    intake::Incoming,
    journal::Journal,
    model::{ContentLocation, MediaType, Timestamp},
    transfer::HarvestBudget,
};

/// Number of files that are written at once.
const CONCURRENT_FILES: usize = 8;

/// The place of the copies.
pub(super) struct RecordStore {
    files: FileStore,
    links: FileLinks,
    public_url: Arc<str>,
    /// Maximum size of all copies of the source, in bytes.
    total_bytes: u64,
    /// Size of all copies that the source has stored, as far as is known.
    stored: AtomicU64,
    limits: Limits,
}

/// Records of a part of a page, each with the position of its message.
#[derive(Default)]
struct Part {
    records: Vec<(usize, KeptRecord)>,
    /// Number of records whose metadata cannot be a part of another document, and the reason of the first one.
    refused: u64,
    reason: String,
}

impl Part {
    fn read(messages: Vec<(usize, Incoming)>, limits: Limits) -> Self {
        let mut part = Self::default();
        for (position, Incoming { headers, body, .. }) in messages {
            let header = |name: &str| headers.get(name).unwrap_or_default().to_owned();
            let date = Timestamp::parse(&header(RESPONSE_DATE)).unwrap_or_else(|_| Timestamp::now());
            let origin = RecordOrigin { base_url: header(BASE_URL), prefix: header(METADATA_PREFIX), date };
            match KeptRecord::read(&body, &origin, limits) {
                Ok(record) => part.records.extend(record.map(|record| (position, record))),
                Err(reason) => {
                    if part.refused == 0 {
                        part.reason = reason.to_string();
                    }
                    part.refused += 1;
                }
            }
        }
        part
    }
}

impl RecordStore {
    /// Opens the file store.
    ///
    /// # Errors
    /// Fails if the store cannot be opened.
    pub(super) fn open(context: &HarvesterContext, total_bytes: u64) -> Result<Self, FileStoreError> {
        let HarvesterContext { files, file_links, public_url, limits, .. } = context;
        Ok(Self {
            files: FileStore::open(files)?,
            links: *file_links,
            public_url: Arc::clone(public_url),
            total_bytes,
            stored: AtomicU64::new(0),
            limits: *limits,
        })
    }

    /// Returns the size of all copies that the source has stored. `noted` is the size in a position.
    pub(super) fn stored_bytes(&self, noted: u64) -> u64 {
        self.stored.fetch_max(noted, Ordering::Relaxed).max(noted)
    }

    /// Stores the records of messages, and returns the headers that say where the copies are.
    ///
    /// # Errors
    /// Fails if the store or the journal fails.
    pub(super) async fn keep(
        &self,
        journal: &Journal,
        budget: &HarvestBudget,
        messages: Vec<(usize, Incoming)>,
    ) -> Result<AddedHeaders, HarvestError> {
        let limits = self.limits;
        let part = budget.work(move |_| Part::read(messages, limits)).await;
        let Part { records, refused, reason } = part.map_err(|error| HarvestError::fail(error.to_string()))?;
        let keep = |(position, record)| async move { self.copy(journal, record).await.map(|copy| (position, copy)) };
        let copies: Vec<_> = stream::iter(records).map(keep).buffer_unordered(CONCURRENT_FILES).try_collect().await?;
        let mut added = AddedHeaders { name: COPY, ..AddedHeaders::default() };
        if copies.iter().any(|(_, copy)| copy.is_none()) {
            added.remarks.push(format!(
                "records are not kept any more, because their copies have {} bytes, and total_bytes is {}",
                self.stored.load(Ordering::Relaxed),
                self.total_bytes
            ));
        }
        if refused > 0 {
            added.remarks.push(format!("some records are not kept, because no other document can have them: {reason}"));
        }
        let values = copies.into_iter().filter_map(|(position, copy)| Some((position, copy?)));
        added.values = values.filter_map(|(at, copy)| Some((at, serde_json::to_string(&copy).ok()?))).collect();
        Ok(added)
    }

    /// Returns the copy of a record: the one that the registry has, if it has the same metadata and its file is there, or a new
    /// one. `None` if there is no room for a new one.
    async fn copy(&self, journal: &Journal, kept: KeptRecord) -> Result<Option<ContentLocation>, HarvestError> {
        let failed = |error: FileStoreError| HarvestError::retry(error.to_string());
        let registered = journal.object(kept.address.clone()).await?;
        let content = registered.as_ref().and_then(|object| object.content(&kept.address)?.parse().ok());
        if let Some(content) = content.filter(|content| kept.is_kept_as(content))
            && let Some(name) = content.digest.as_ref().and_then(|digest| FileDigest::parse(digest.hex()))
            && let Some(size) = self.files.size(name).await.map_err(failed)?
            && content.size == Some(size)
        {
            return Ok(Some(content));
        }
        let bytes = kept.document.len() as u64;
        let reserve = |stored: u64| stored.checked_add(bytes).filter(|all| *all <= self.total_bytes);
        if self.stored.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve).is_err() {
            return Ok(None);
        }
        let mut file = self.files.create().await.map_err(failed)?;
        file.write(kept.document.into()).await.map_err(failed)?;
        let StoredFile { digest, size, is_new, .. } = file.finish().await.map_err(failed)?;
        if !is_new {
            self.stored.fetch_sub(bytes, Ordering::Relaxed);
        }
        let place = (&self.files, self.links, &*self.public_url);
        stored_file::location(place, digest, size, MediaType::parse("text/xml").ok()).map(Some)
    }
}
