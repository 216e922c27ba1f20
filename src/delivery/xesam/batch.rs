//! Batches of records: the argument of one call of `UpdateRecords`.

use super::{
    pages::{ChangesPage, Position, RegistryPage},
    records::Record,
    request::{Payload, Request},
    timestamps::WireTime,
};
use crate::model::{Timestamp, Uri};

/// A batch within its limits on number and bytes. It has at least one record before a limit ends it.
pub(super) struct Batch<'r> {
    request: &'r Request,
    max_bytes: usize,
    pub(super) payloads: Vec<Payload<'r>>,
    bytes: usize,
}

/// Position of a crawler in a full dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DumpPosition {
    /// URI of the object after which the present page begins; `None` is the beginning of the registry.
    pub(super) page: Option<Uri>,
    /// Object of the last record, and the URI of that record.
    last: Option<(Uri, Uri)>,
    /// Timestamp of the last record. Those of all records but the last are in the first second of 1970: a crawler that
    /// knows no later time asks for everything again.
    time: WireTime,
}

impl<'r> Batch<'r> {
    pub(super) fn new(request: &'r Request, max_bytes: usize) -> Self {
        Self { request, max_bytes, payloads: Vec::new(), bytes: 0 }
    }

    /// Adds a record if the crawler gets it. Returns whether the record is done: added or omitted.
    fn add(&mut self, record: &'r Record, payload: Option<Payload<'r>>, time: WireTime) -> bool {
        let Some(mut payload) = payload else { return true };
        let is_full = self.payloads.len() >= self.request.batch || self.bytes + record.bytes > self.max_bytes;
        if is_full && !self.payloads.is_empty() {
            return false;
        }
        payload.1 = time.text();
        self.bytes += record.bytes;
        self.payloads.push(payload);
        true
    }

    /// Adds records of changes from a position on, except of those received before a time. Returns the next position.
    pub(super) fn add_changes(
        &mut self,
        page: &'r ChangesPage,
        mut position: Position,
        not_before: Timestamp,
    ) -> Position {
        for change in page.after(position.after) {
            let is_wanted = change.received >= not_before;
            for record in change.records.iter().skip(position.done).filter(|_| is_wanted) {
                let time = position.time.next_in(change.received);
                if !self.add(record, self.request.payload(record), time) {
                    return position;
                }
                position.done += 1;
                position.time = time;
            }
            position = change.end(position);
        }
        position
    }

    /// Adds records of the registry from a position on. Returns the next position, which is on the next page if this one
    /// has no more records; `None` at the end of the registry.
    pub(super) fn add_dump(&mut self, page: &'r RegistryPage, mut position: DumpPosition) -> Option<DumpPosition> {
        for (object, record) in position.clone().rest_of(page) {
            let time = position.time.plus(1);
            if !self.add(record, self.request.dumped(record), time) {
                return Some(position);
            }
            position.last = Some((object.clone(), record.uri.clone()));
            position.time = time;
        }
        position.on_page_after(page)
    }

    /// Returns whether the batch has no records.
    pub(super) fn is_empty(&self) -> bool {
        self.payloads.is_empty()
    }

    /// Sets the timestamp of the last record.
    pub(super) fn set_last_time(&mut self, time: WireTime) {
        if let Some(last) = self.payloads.last_mut() {
            last.1 = time.text();
        }
    }
}

impl DumpPosition {
    /// Returns the records of a page after this position, each with its object.
    pub(super) fn rest_of<'p>(&self, page: &'p RegistryPage) -> impl Iterator<Item = (&'p Uri, &'p Record)> {
        let all = page.objects.iter().flat_map(|(object, records)| records.iter().map(move |record| (object, record)));
        all.filter(|(object, record)| match &self.last {
            Some((last_object, last)) if *object == last_object => !is_before_or_at(&record.uri, last, object),
            Some((last_object, _)) => *object > last_object,
            None => true,
        })
    }

    /// Returns the position at the beginning of the next page; `None` at the end of the registry.
    pub(super) fn on_page_after(&self, page: &RegistryPage) -> Option<Self> {
        page.next.clone().map(|next| Self { page: Some(next), last: None, time: self.time })
    }
}

/// Returns whether a record of an object is not after another one of it. The object itself is the first.
fn is_before_or_at(record: &Uri, last: &Uri, object: &Uri) -> bool {
    record == object || (last != object && record <= last)
}
