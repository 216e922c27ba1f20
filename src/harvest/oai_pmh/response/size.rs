//! Limits on the records of a page.

use super::InvalidResponse;

/// Maximum number of records of a page. A page of the default size has so many records of 670 bytes, which is less than
/// the usual size. Each takes about 160 bytes until the page is written.
pub(super) const MAX_RECORDS: usize = 100_000;

/// Limits on a page.
#[derive(Clone, Copy, Debug)]
pub(in crate::harvest::oai_pmh) struct PageLimits {
    /// Maximum size of a record, in bytes. A larger one is cut.
    pub(in crate::harvest::oai_pmh) record_bytes: usize,
    /// Maximum size of all records, with the namespaces around them, in bytes.
    pub(in crate::harvest::oai_pmh) all_bytes: usize,
}

/// Number of the records of a page so far, and their size.
pub(super) struct ListSize {
    limits: PageLimits,
    pub(super) records: usize,
    bytes: usize,
}

impl ListSize {
    pub(super) fn new(limits: PageLimits) -> Self {
        Self { limits, records: 0, bytes: 0 }
    }

    /// Adds a record of this size.
    pub(super) fn add(&mut self, record_bytes: usize, namespace_bytes: usize) -> Result<(), InvalidResponse> {
        self.records += 1;
        if self.records > MAX_RECORDS {
            return Err(InvalidResponse::TooMuch(format!("a page has more than {MAX_RECORDS} records")));
        }
        self.bytes += record_bytes.min(self.limits.record_bytes) + namespace_bytes;
        let most = self.limits.all_bytes;
        if self.bytes > most {
            let reason = format!(
                "the records of a page have more than {most} bytes with the namespaces around them; raise page_bytes if \
                 that is expected"
            );
            return Err(InvalidResponse::TooMuch(reason));
        }
        Ok(())
    }
}
