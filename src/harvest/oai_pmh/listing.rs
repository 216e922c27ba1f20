//! Records of a page: as messages for the dialect, and as what the repository has shown of them.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;

use super::{
    harvest::OaiPmhHarvester,
    position::{ListPosition, Place, Position},
    response::{ListText, RawRecord},
};
use crate::{
    format::{
        Headers, Location, Rejection,
        oai_pmh::{BASE_URL, FETCH_URL, METADATA_PREFIX, RESPONSE_DATE},
    },
    harvest::{HarvestedRecord, Listing, Records, Sight},
    intake::{Incoming, ReceivedMessage},
    model::Timestamp,
};

impl OaiPmhHarvester {
    /// Returns records as messages for the dialect, which are made when they are written.
    pub(super) fn records(
        &self,
        records: Vec<(RawRecord, Option<Listing>)>,
        text: ListText,
        namespaces: Vec<(String, String)>,
        date: Option<Timestamp>,
        place: &Place,
    ) -> Records {
        let Place { base_url, prefix } = place.clone();
        let fetch_url = self.settings.public_url();
        let fetch = (fetch_url != base_url).then_some((FETCH_URL, fetch_url));
        let mut headers = vec![(BASE_URL, base_url), (METADATA_PREFIX, prefix)];
        headers.extend(fetch);
        headers.extend(date.map(|date| (RESPONSE_DATE, date.to_string())));
        let headers: Headers = headers.into_iter().collect();
        let max_bytes = self.max_record_bytes;
        Records::listed(records.into_iter().map(move |(record, listing)| {
            let sight = listing.as_ref().map(|listing| listing.sight);
            if let Some(Sight::Deleted | Sight::DeletedPerhaps | Sight::Undelivered) = sight {
                return HarvestedRecord { message: None, listing };
            }
            let xml = record.xml(&text, &namespaces, max_bytes);
            HarvestedRecord { message: Some(message(record, xml, headers.clone(), max_bytes)), listing }
        }))
    }

    /// Returns the records of a page, each with what the page shows of it. Identifiers that the journal cannot store have no
    /// listing.
    pub(super) fn with_listings(
        &self,
        records: Vec<RawRecord>,
        position: &Position,
        list: &ListPosition,
    ) -> Vec<(RawRecord, Option<Listing>)> {
        let (sets, at) = (&self.settings.sets, list.started.unwrap_or_else(Timestamp::now));
        let view: Arc<str> = sets.get(list.set).map_or("", String::as_str).into();
        let is_only_view = sets.len() <= 1;
        // A complete list shows all views before the run ends.
        let is_sure = is_only_view || position.knows_views || list.is_full;
        let listing = |mut record: RawRecord| {
            let sight = match (record.is_deleted, record.is_undelivered) {
                (true, _) if is_sure => Sight::Deleted,
                (true, _) => Sight::DeletedPerhaps,
                (false, true) => Sight::Undelivered,
                (false, false) => Sight::Live,
            };
            let date = record.date();
            let listing = is_storable(&record.identifier).then(|| {
                let identifier = record.take_identifier(self.max_record_bytes);
                let (view, is_foreign) = (Arc::clone(&view), record.is_foreign && sight == Sight::Live);
                Listing { identifier, view, is_only_view, date, at, sight, is_foreign, doubles: record.doubles }
            });
            (record, listing)
        };
        records.into_iter().map(listing).collect()
    }
}

/// Returns a remark about the records of a list that `GetRecord` does not deliver.
pub(super) fn undelivered_remark(records: &[RawRecord]) -> Option<String> {
    let number = records.iter().filter(|record| record.is_undelivered).count();
    (number > 0).then(|| format!("{number} listed records do not exist for GetRecord; each run requests them again"))
}

/// Maximum length of an identifier in the journal, in bytes.
const MAX_IDENTIFIER_BYTES: usize = 4096;

fn is_storable(identifier: &str) -> bool {
    !identifier.is_empty() && identifier.len() <= MAX_IDENTIFIER_BYTES && !identifier.contains('\0')
}

/// Drops the older ones of the records that a page has several times. Of equally new ones it keeps the first that is not
/// deleted, so that two runs over the same page choose the same one. That one counts the others, unless they are equal to it.
pub(super) fn newest_of_each(mut records: Vec<RawRecord>, text: &ListText) -> Vec<RawRecord> {
    struct Newest {
        place: usize,
        date: Option<Timestamp>,
        doubles: u64,
    }
    let mut newest: HashMap<&str, Newest> = HashMap::with_capacity(records.len());
    for (place, record) in records.iter().enumerate().filter(|(_, record)| !record.identifier.is_empty()) {
        let date = record.date();
        let known = newest.entry(&record.identifier).or_insert(Newest { place, date, doubles: 0 });
        if known.place == place {
            continue;
        }
        let other = &records[known.place];
        known.doubles += u64::from(!record.is_deleted && !other.is_deleted && !record.is_same(other, text));
        if (date, !record.is_deleted) > (known.date, !other.is_deleted) {
            (known.place, known.date) = (place, date);
        }
    }
    let doubles = |(place, record): (usize, &RawRecord)| match newest.get(record.identifier.as_str()) {
        Some(newest) => (newest.place == place).then_some(newest.doubles),
        None => Some(0),
    };
    // The doubles of each record that is kept.
    let kept: Vec<Option<u64>> = records.iter().enumerate().map(doubles).collect();
    let mut kept = kept.into_iter();
    records.retain_mut(|record| {
        let doubles = kept.next().flatten();
        record.doubles = doubles.unwrap_or_default();
        doubles.is_some()
    });
    records
}

fn message(record: RawRecord, xml: String, headers: Headers, max_bytes: usize) -> ReceivedMessage {
    let incoming = Incoming {
        content_type: Some("text/xml".to_owned()),
        headers,
        body: Bytes::from(xml),
        transport_id: None,
        redelivered: false,
        set: None,
    };
    let (bytes, mut failure) = (record.size, record.failure.map(String::from));
    if bytes > max_bytes {
        let reason =
            format!("the record {} has {bytes} bytes, and limits.body_bytes is {max_bytes}", record.identifier);
        failure = Some(reason);
    }
    if let Some(reason) = failure {
        let rejection = Rejection::unprocessable(Location::Message, reason);
        return ReceivedMessage::Unreadable { incoming, rejection, encoded: false };
    }
    ReceivedMessage::Readable(incoming)
}
