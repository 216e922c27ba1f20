//! Copies of the records in the file store, so that the gateway can disseminate them as the repository does.
//!
//! A record is stored before its message is written, unless the registry has a copy of the same metadata whose file is there.
//! So no change names a copy that is not there. The message has the copy of the registry, too, so that the registry keeps it
//! whatever was written in between. A crash in between leaves a file that no item has, which `tidings files gc` removes.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use futures_util::{StreamExt, TryStreamExt, stream};

use super::{
    harvest::OaiPmhHarvester,
    response::{ListText, RawRecord},
};
use crate::{
    files::{FileDigest, FileLinks, FileStore, FileStoreError, StoredFile},
    format::{
        Limits, Rejection,
        oai_pmh::kept::{KeptRecord, RecordOrigin},
    },
    harvest::{HarvestError, HarvesterContext, Listing, Sight, stored_file},
    journal::Journal,
    model::{ContentLocation, MediaType},
    transfer::budget::PART_RECORDS,
};

/// Size of the records that are in memory at once, in bytes.
const PART_BYTES: usize = 1 << 20;

/// Number of files that are written at once.
const CONCURRENT_FILES: usize = 8;

/// The place of the copies.
pub(super) struct RecordStore {
    files: FileStore,
    links: FileLinks,
    public_url: Arc<str>,
    /// Maximum size of all copies of the source, in bytes.
    total_bytes: u64,
    limits: Limits,
}

/// Records of a page, with what the page shows of them.
pub(super) type ListedRawRecords = Vec<(RawRecord, Option<Listing>)>;

/// Records of a part of a page that can be kept, each with its place in the page.
type Part = Vec<(usize, KeptRecord)>;

/// Records of a page, and what their text needs.
pub(super) struct PageRecords {
    pub(super) records: ListedRawRecords,
    pub(super) text: ListText,
    pub(super) namespaces: Arc<[(String, String)]>,
}

impl PageRecords {
    /// Records with texts of their own.
    pub(super) fn alone(records: ListedRawRecords) -> Self {
        Self { records, text: ListText::none(), namespaces: Arc::default() }
    }
}

impl RecordStore {
    /// Opens the file store.
    ///
    /// # Errors
    /// Fails if the store cannot be opened.
    pub(super) fn open(context: &HarvesterContext, total_bytes: u64) -> Result<Self, FileStoreError> {
        let HarvesterContext { files, file_links, public_url, limits, .. } = context;
        let (files, public_url) = (FileStore::open(files)?, Arc::clone(public_url));
        Ok(Self { files, links: *file_links, public_url, total_bytes, limits: *limits })
    }

    /// Returns the copy of a record: the one that the registry has, if it has the same metadata and its file is there, or a new
    /// one. `None` if there is no room for a new one.
    async fn keep(
        &self,
        journal: &Journal,
        kept: KeptRecord,
        stored: &AtomicU64,
    ) -> Result<Option<ContentLocation>, HarvestError> {
        let failed = |error: FileStoreError| HarvestError::retry(error.to_string());
        let registered = journal.object(kept.address.clone()).await?;
        let content = registered.as_ref().and_then(|object| object.content(&kept.address)?.parse().ok());
        if let Some(content) = content.filter(|content| kept.is_kept_as(content))
            && let Some(name) = content.digest.as_ref().and_then(|digest| FileDigest::parse(digest.hex()))
            && self.files.size(name).await.map_err(failed)? == content.size
        {
            return Ok(Some(content));
        }
        let bytes = kept.document.len() as u64;
        let reserve = |stored: u64| stored.checked_add(bytes).filter(|all| *all <= self.total_bytes);
        if stored.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve).is_err() {
            return Ok(None);
        }
        let mut file = self.files.create().await.map_err(failed)?;
        file.write(kept.document.into()).await.map_err(failed)?;
        let StoredFile { digest, size, is_new, .. } = file.finish().await.map_err(failed)?;
        if !is_new {
            stored.fetch_sub(bytes, Ordering::Relaxed);
        }
        let place = (&self.files, self.links, &*self.public_url);
        stored_file::location(place, digest, size, MediaType::parse("text/xml").ok()).map(Some)
    }
}

impl OaiPmhHarvester {
    /// Stores the records of a page, and notes at each where its copy is. `stored` is the size of all copies of the source.
    /// Returns remarks about records that are not kept.
    ///
    /// # Errors
    /// Fails if the store or the journal fails. Nothing is lost then, because the position stays.
    pub(super) async fn store_records(
        &self,
        mut page: PageRecords,
        origin: RecordOrigin,
        stored: &mut u64,
    ) -> Result<(PageRecords, Vec<String>), HarvestError> {
        let Some(store) = &self.record_store else { return Ok((page, Vec::new())) };
        let (origin, limits, max_bytes) = (Arc::new(origin), store.limits, self.max_record_bytes);
        let all_stored = AtomicU64::new(*stored);
        let (mut at, mut without_room, mut refused) = (0, 0_u64, Refused::default());
        while at < page.records.len() {
            let origin = Arc::clone(&origin);
            let read = self.client.budget().work(move |_| {
                let part =
                    next_part(&page, &mut at, &mut refused, |xml| KeptRecord::read(xml, &origin, limits), max_bytes);
                (page, part, at, refused)
            });
            let part;
            (page, part, at, refused) = read.await.map_err(|error| HarvestError::fail(error.to_string()))?;
            let keep = |(place, kept)| {
                let keep = store.keep(&self.journal, kept, &all_stored);
                async move { keep.await.map(|copy| (place, copy)) }
            };
            let copies: Vec<_> = stream::iter(part).map(keep).buffer_unordered(CONCURRENT_FILES).try_collect().await?;
            for (place, copy) in copies {
                match (copy, page.records.get_mut(place)) {
                    (Some(copy), Some((record, _))) => {
                        record.copy = serde_json::to_string(&copy).ok().map(String::into)
                    }
                    _ => without_room += 1,
                }
            }
        }
        *stored = all_stored.into_inner();
        let room = (without_room > 0).then(|| {
            let max = store.total_bytes;
            format!("records are not kept any more, because their copies have {stored} bytes, and total_bytes is {max}")
        });
        Ok((page, room.into_iter().chain(refused.remark()).collect()))
    }
}

/// Records whose metadata cannot be a part of another document.
#[derive(Default)]
struct Refused {
    number: u64,
    /// Reason of the first one.
    reason: String,
}

impl Refused {
    fn remark(self) -> Option<String> {
        let Self { number, reason } = self;
        (number > 0).then(|| {
            format!("{number} records of a page are not kept, because no other document can have them: {reason}")
        })
    }
}

/// Reads the records of a page from a place on, until they are enough for a part.
fn next_part(
    page: &PageRecords,
    at: &mut usize,
    refused: &mut Refused,
    read: impl Fn(&[u8]) -> Result<Option<KeptRecord>, Rejection>,
    max_bytes: usize,
) -> Part {
    let PageRecords { records, text, namespaces } = page;
    let (mut part, mut bytes) = (Vec::new(), 0);
    while part.len() < PART_RECORDS
        && bytes < PART_BYTES
        && let Some((record, listing)) = records.get(*at)
    {
        let place = *at;
        *at += 1;
        let is_shown = |listing: &Listing| matches!(listing.sight, Sight::Live | Sight::Confirmed);
        if record.is_deleted || record.size > max_bytes || !listing.as_ref().is_none_or(is_shown) {
            continue;
        }
        let xml = record.xml(text, namespaces, max_bytes);
        match read(xml.as_bytes()) {
            Ok(Some(kept)) => {
                bytes += kept.document.len();
                part.push((place, kept));
            }
            Ok(None) => {}
            Err(reason) => {
                refused.number += 1;
                if refused.reason.is_empty() {
                    refused.reason = reason.to_string();
                }
            }
        }
    }
    part
}
