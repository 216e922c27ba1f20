//! A page of a harvest: its records, which become messages when they are written, and the position after it.

use std::{fmt, mem, vec};

use super::{HarvestError, membership::Listing};
use crate::{
    intake::ReceivedMessage,
    journal::harvest::{FormerRecords, ListedRecord, ListedRecords},
    model::Timestamp,
    transfer::budget::PART_RECORDS,
};

/// Size of the messages of a part, in bytes, above which it ends.
const PART_BYTES: usize = 1 << 20;

/// A page of records.
#[derive(Debug)]
pub struct Page {
    /// Records, as messages for the dialect of the source.
    pub records: Records,
    /// Position after the page.
    pub position: String,
    /// Whether the run ends with this page.
    pub end: PageEnd,
    /// Whether the page is one of a list, and counts as a page of the run. Others have records that were requested.
    pub is_listed: bool,
    /// Whether errors of the page were repaired.
    pub is_repaired: bool,
    /// Facts that an administrator should know.
    pub remarks: Vec<String>,
    /// Records that exist, for kinds that find missing ones.
    pub listed: ListedRecords,
}

impl Page {
    /// Creates a page without remarks.
    #[must_use]
    pub fn new(records: impl Into<Records>, position: String, end: PageEnd) -> Self {
        let (records, remarks, listed) = (records.into(), Vec::new(), ListedRecords::default());
        Self { records, position, end, is_listed: true, is_repaired: false, remarks, listed }
    }
}

/// Continuation of a run after a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageEnd {
    /// More pages follow.
    More,
    /// The run is complete.
    Complete,
    /// The run has failed, for this reason. The records of the page are good.
    Failed(String),
}

/// Result of the request of a page.
pub(super) type PageResult = Result<Page, HarvestError>;

/// Records of a page. A page holds its text once, and makes a message when it is asked for the next one.
pub struct Records(Box<dyn ExactSizeIterator<Item = HarvestedRecord> + Send>);

/// A record of a page.
#[derive(Debug)]
pub struct HarvestedRecord {
    /// The message for the dialect; `None` for a record that is only noted.
    pub message: Option<ReceivedMessage>,
    /// View of the record in this list, for kinds whose records have several views.
    pub listing: Option<Listing>,
}

impl From<ReceivedMessage> for HarvestedRecord {
    fn from(message: ReceivedMessage) -> Self {
        Self { message: Some(message), listing: None }
    }
}

impl Records {
    /// Creates records that this iterator makes. It may use the CPU, and runs on a blocking thread.
    #[must_use]
    pub fn new(records: impl ExactSizeIterator<Item = ReceivedMessage> + Send + 'static) -> Self {
        Self(Box::new(records.map(HarvestedRecord::from)))
    }

    /// Creates records with their listings, as [`new`](Self::new) does.
    #[must_use]
    pub fn listed(records: impl ExactSizeIterator<Item = HarvestedRecord> + Send + 'static) -> Self {
        Self(Box::new(records))
    }

    /// Returns the number of records that are left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no record is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Iterator for Records {
    type Item = HarvestedRecord;

    fn next(&mut self) -> Option<HarvestedRecord> {
        self.0.next()
    }
}

impl From<Vec<ReceivedMessage>> for Records {
    fn from(messages: Vec<ReceivedMessage>) -> Self {
        Self::new(messages.into_iter())
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Records").field(&self.len()).finish()
    }
}

/// The part of a page that is not written.
pub(super) struct PageRest {
    records: Records,
    former: FormerRecords,
    gone: vec::IntoIter<String>,
    present: vec::IntoIter<ListedRecord>,
    at: Option<Timestamp>,
}

/// A part of a page.
pub(super) struct PagePart {
    pub(super) records: Vec<HarvestedRecord>,
    /// Size of the messages, in bytes.
    pub(super) bytes: usize,
    pub(super) listed: ListedRecords,
}

impl PageRest {
    pub(super) fn new(records: Records, listed: ListedRecords) -> Self {
        let ListedRecords { former, gone, present, at } = listed;
        Self { records, former, gone: gone.into_iter(), present: present.into_iter(), at }
    }

    /// Returns whether everything is written.
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.gone.len() == 0 && self.present.len() == 0
    }

    /// Removes the next part, which makes the messages of its records.
    pub(super) fn next_part(&mut self) -> PagePart {
        let (mut records, mut bytes) = (Vec::new(), 0);
        while records.len() < PART_RECORDS
            && bytes < PART_BYTES
            && let Some(record) = self.records.0.next()
        {
            if let Some(ReceivedMessage::Readable(incoming) | ReceivedMessage::Unreadable { incoming, .. }) =
                &record.message
            {
                bytes += incoming.body.len();
            }
            records.push(record);
        }
        // The list follows the messages: after a crash in between, the entries are compared with the former list again.
        let listed = if self.records.is_empty() { PART_RECORDS } else { 0 };
        let gone: Vec<_> = self.gone.by_ref().take(listed).collect();
        let present = self.present.by_ref().take(listed - gone.len()).collect();
        let listed = ListedRecords { former: mem::take(&mut self.former), gone, present, at: self.at };
        PagePart { records, bytes, listed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{format::Headers, intake::Incoming};

    fn message(bytes: usize) -> ReceivedMessage {
        ReceivedMessage::Readable(Incoming {
            content_type: None,
            headers: Headers::default(),
            body: vec![b'x'; bytes].into(),
            transport_id: None,
            redelivered: false,
            set: None,
        })
    }

    #[test]
    fn parts_are_small_in_number_and_size_and_miss_nothing() {
        for (bytes, records, largest) in [(1, 1200, PART_RECORDS), (PART_BYTES / 2, 10, 2), (PART_BYTES * 2, 3, 1)] {
            let listed = ListedRecords {
                former: FormerRecords::Unlist,
                gone: (0..700).map(|n| n.to_string()).collect(),
                present: (0..700).map(|n| n.to_string().into()).collect(),
                at: None,
            };
            let made = Records::new((0..records).map(move |_| message(bytes)));
            let mut rest = PageRest::new(made, listed);
            let (mut found, mut listed, mut replaced) = (0, 0, 0);
            while !rest.is_empty() {
                let part = rest.next_part();
                assert!(part.records.len() <= largest, "{}", part.records.len());
                let rows = part.listed.gone.len() + part.listed.present.len();
                assert!(rows <= PART_RECORDS);
                assert!(rows == 0 || rest.records.is_empty(), "the list follows the messages");
                found += part.records.len();
                listed += part.listed.gone.len() + part.listed.present.len();
                replaced += u32::from(part.listed.former == FormerRecords::Unlist);
            }
            assert_eq!((found, listed, replaced), (records, 1400, 1));
        }
    }
}
