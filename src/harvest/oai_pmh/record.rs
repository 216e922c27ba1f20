//! Requests of single records: for lists of identifiers, and to confirm that a record is deleted.

use super::{
    client::{Arguments, ReadResponse},
    harvest::OaiPmhHarvester,
    position::Quirks,
    recovery::ATTEMPTS_BEFORE_RESTART,
    response::RawRecord,
};
use crate::harvest::{HarvestError, client::RequestError};

impl OaiPmhHarvester {
    /// Requests a record. One that the repository does not have, or not in the metadata format of the harvest, is returned
    /// as a deleted record with the date of the response.
    pub(super) async fn record(&self, identifier: &str, quirks: Quirks) -> Result<RawRecord, RequestError> {
        let others = vec![("identifier", identifier), ("metadataPrefix", self.settings.metadata_prefix.as_str())];
        let arguments = Arguments { verb: "GetRecord", others, verbatim: None };
        let ReadResponse { response, .. } = self.client.request(&arguments, quirks).await?;
        let record = response.list.and_then(|list| list.records.into_iter().next());
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

    /// Completes a page of identifiers with the records. A record that the repository does not deliver after several
    /// attempts gets the reason, so that the others are harvested.
    pub(super) async fn complete_records(
        &self,
        records: &mut [RawRecord],
        quirks: Quirks,
        attempt: u32,
    ) -> Result<(), HarvestError> {
        let mut failed = 0;
        let requested = records.iter().filter(|record| !record.is_deleted).count();
        for header in records.iter_mut().filter(|record| !record.is_deleted) {
            match self.record(&header.identifier, quirks).await {
                Ok(record) => *header = record,
                Err(RequestError::Transient { reason, after: None }) if attempt + 1 >= ATTEMPTS_BEFORE_RESTART => {
                    failed += 1;
                    if failed == requested {
                        return Err(HarvestError::fail(reason));
                    }
                    header.failure = Some(reason);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
