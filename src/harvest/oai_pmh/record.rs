//! Requests of single records: for lists of identifiers, and to confirm that a record is deleted.

use super::{
    client::{Arguments, ReadResponse},
    harvest::OaiPmhHarvester,
    position::Quirks,
    recovery::ATTEMPTS_BEFORE_RESTART,
    response::RawRecord,
};
use crate::harvest::{HarvestError, client::RequestError};

/// Size of the records that are requested one by one, in bytes, after which they are written.
pub(super) const MAX_COMPLETED_BYTES: usize = 4 << 20;

impl OaiPmhHarvester {
    /// Requests a record. One that the repository does not have, or not in the metadata format of the harvest, is returned
    /// as a deleted record with the date of the response.
    pub(super) async fn record(&self, identifier: &str, quirks: Quirks) -> Result<RawRecord, RequestError> {
        let others = vec![("identifier", identifier), ("metadataPrefix", self.settings.metadata_prefix.as_str())];
        let arguments = Arguments { verb: "GetRecord", others, verbatim: None };
        let ReadResponse { response, text, .. } = self.client.request(&arguments, quirks).await?;
        let record = response.list.and_then(|list| {
            let record = list.records.into_iter().next()?;
            Some(record.into_own(&text, &list.namespaces, self.max_record_bytes))
        });
        // The caller requests other records, and must not hold a share of the budget meanwhile.
        drop(text);
        let failed = |reason: String| RequestError::Transient { reason, after: None };
        match (response.errors.first(), record) {
            (Some((code, _)), _) if matches!(code.as_str(), "idDoesNotExist" | "cannotDisseminateFormat") => {
                let date = response.date.unwrap_or_default();
                Ok(RawRecord::without_metadata(identifier, &date, true))
            }
            (Some((code, text)), _) => {
                Err(failed(format!("the repository answers GetRecord of {identifier} with the error {code}: {text}")))
            }
            (None, Some(record)) if record.identifier == identifier => Ok(record),
            (None, _) => Err(failed(format!("the response to GetRecord of {identifier} does not have the record"))),
        }
    }

    /// Completes a page of identifiers with the records, from the one after `within`, until they have some MiB together.
    /// Returns the completed records, and the identifier of the last one if there are more. A record that the repository
    /// does not deliver after several attempts gets the reason, so that the others are harvested.
    pub(super) async fn complete_records(
        &self,
        records: Vec<RawRecord>,
        within: Option<&str>,
        quirks: Quirks,
        attempt: u32,
    ) -> Result<(Vec<RawRecord>, Option<String>), HarvestError> {
        // A page that no longer has the identifier is another page, and is read from its beginning.
        let done = within.and_then(|last| records.iter().position(|record| record.identifier == last));
        let start = done.map_or(0, |at| at + 1);
        let all = records.iter().skip(start).filter(|record| !record.is_deleted).count();
        let mut headers = records.into_iter().skip(start).peekable();
        let (mut completed, mut bytes, mut failed) = (Vec::new(), 0, 0);
        while let Some(mut header) = headers.next() {
            if !header.is_deleted {
                match self.record(&header.identifier, quirks).await {
                    // The list counts.
                    Ok(record) if record.is_deleted => header.is_undelivered = true,
                    Ok(record) => header = record,
                    Err(RequestError::Transient { reason, after: None }) if attempt + 1 >= ATTEMPTS_BEFORE_RESTART => {
                        failed += 1;
                        if failed == all {
                            return Err(HarvestError::fail(reason));
                        }
                        header.failure = Some(reason.into());
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            bytes += header.size.min(self.max_record_bytes);
            completed.push(header);
            if bytes >= MAX_COMPLETED_BYTES && headers.peek().is_some() {
                let last = completed.last().map(|record| record.identifier.clone());
                return Ok((completed, last.filter(|last| !last.is_empty())));
            }
        }
        Ok((completed, None))
    }
}
