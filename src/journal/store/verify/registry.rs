//! Checks of the registry: compares its tables with a registry rebuilt from all changes and seeds. Facts that a store
//! completes when it opens the journal are first added to the tables' rows.
//!
//! A complete journal rebuilds the registry exactly, except for confirmations, which come from events that are not
//! in the journal. If retention has removed changes, only the facts that the remaining changes set can be compared.
//! A fact that a change set on time is newer than all earlier ones, so the registry must have it unchanged.

use std::iter::Peekable;

use super::Report;
use crate::{
    journal::{
        RawContentLocation,
        registry::{Clock, InitialState, ItemRecord, ObjectState, Register, Registry, Schedule},
        store::{
            StoreError, rows,
            tables::{Row, Table, TableReader, TableRows},
        },
    },
    model::{State, Uri, VisibilityDates},
};

/// Compares the objects for which `belongs` is true with the rebuilt registry.
pub(super) fn compare(
    journal: &dyn TableReader,
    rebuilt: Registry,
    belongs: impl Fn(&Uri) -> bool,
    report: &mut Report,
) -> Result<(), StoreError> {
    let mut comparison = Comparison { rebuilt, report };
    let mut items = TableRows::new(journal, Table::Items).peekable();
    for object in TableRows::new(journal, Table::Objects) {
        let object = object?;
        let items = items_of(&object, &mut items)?;
        let Ok(uri) = rows::uri(object.text("uri")?) else {
            let uri = object.text("uri")?;
            comparison.report.add(format!("the registry has an object whose URI is invalid: {uri:?}"));
            continue;
        };
        if belongs(&uri) {
            comparison.object(&uri, read_object(&object, &items));
        }
    }
    let Comparison { rebuilt, report } = comparison;
    for uri in rebuilt.objects.keys() {
        report.add(format!("the registry lacks the object {uri}, which changes contain"));
    }
    Ok(())
}

/// Collects the items of an object. Objects and items are in the same order.
fn items_of(object: &Row, items: &mut Peekable<TableRows<'_>>) -> Result<Vec<Row>, StoreError> {
    let mut own = Vec::new();
    while let Some(item) = items.next_if(|item| item.as_ref().map_or(true, |item| item.key()[0] <= object.key()[0])) {
        let item = item?;
        if item.key()[0] == object.key()[0] {
            own.push(item);
        }
    }
    Ok(own)
}

struct Comparison<'r> {
    rebuilt: Registry,
    report: &'r mut Report,
}

impl Comparison<'_> {
    fn object(&mut self, uri: &Uri, stored: Result<ObjectState, StoreError>) {
        let expected = self.rebuilt.objects.remove(uri).unwrap_or_default();
        let report = &mut *self.report;
        match stored {
            Ok(stored) => {
                // No other code parses all content locations, and some items have no change any more.
                for (item, record) in &stored.items {
                    if let Some(Err(error)) = record.content.value.as_ref().map(RawContentLocation::parse) {
                        report.add(format!("the registry, object {uri}, item {item}: {error}"));
                    }
                }
                for difference in differences(&expected, &stored.without_confirmations(), report.complete) {
                    report.add(format!("the registry differs from the changes: object {uri}, {difference}"));
                }
            }
            Err(StoreError::Damaged(what)) => report.add(format!("the registry, object {uri}: {what}")),
            Err(error) => report.add(format!("the registry, object {uri}: {error}")),
        }
    }
}

fn read_object(object: &Row, items: &[Row]) -> Result<ObjectState, StoreError> {
    Ok(ObjectState {
        parent: Register {
            value: object.optional_text("parent")?.map(rows::uri).transpose()?,
            clock: clock(object, "parent_at", "parent_confirmed")?,
        },
        types: Register {
            value: rows::json(object.text("types")?)?,
            clock: clock(object, "types_at", "types_confirmed")?,
        },
        purged: clock(object, "purged_at", "purged_confirmed")?,
        source: object.optional_text("source")?.map(rows::source).transpose()?,
        items: items.iter().map(read_item).collect::<Result<_, _>>()?,
    })
}

fn read_item(item: &Row) -> Result<(Uri, Box<ItemRecord>), StoreError> {
    let state = |column| item.optional_text(column)?.map(|name| State::parse(name).map_err(rows::damaged)).transpose();
    let initial_state = match (state("initial_state")?, item.optional_time("initial_state_at")?) {
        (Some(state), Some(at)) => {
            Some(InitialState { state, at, confirmed: item.optional_time("initial_state_confirmed")? })
        }
        _ => None,
    };
    let record = ItemRecord {
        existence: Register {
            value: item.boolean("existence")?,
            clock: clock(item, "existence_at", "existence_confirmed")?,
        },
        content: Register {
            value: item.optional_text("content")?.map(RawContentLocation::from_json),
            clock: clock(item, "content_at", "content_confirmed")?,
        },
        state: Register { value: state("state")?, clock: clock(item, "state_at", "state_confirmed")? },
        initial_state,
        unannounced: item.boolean("unannounced")?,
        schedule: Schedule {
            dates: VisibilityDates::new(item.optional_time("visible_from")?, item.optional_time("visible_until")?)
                .map_err(rows::damaged)?,
            came: item.optional_time("came")?,
            denied: item.optional_time("denied")?,
        },
    };
    Ok((rows::uri(item.text("uri")?)?, Box::new(record)))
}

fn clock(row: &Row, at: &str, confirmed: &str) -> Result<Clock, StoreError> {
    Ok(Clock { at: row.optional_time(at)?, confirmed: row.optional_time(confirmed)? })
}

/// Describes the differences between the rebuilt and the stored state of an object.
fn differences(expected: &ObjectState, stored: &ObjectState, complete: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut note = |differs: bool, what: &str| found.extend(differs.then(|| what.to_owned()));
    note(differs(&expected.parent, &stored.parent, complete), "its parent");
    note(differs(&expected.types, &stored.types, complete), "its types");
    let purged = if complete { expected.purged != stored.purged } else { expected.purged.at > stored.purged.at };
    note(purged, "its time of purge");
    // The oldest change of a pruned journal was not the first.
    note(complete && stored.source.is_some() && expected.source != stored.source, "its source");
    for (uri, expected) in &expected.items {
        let Some(stored) = stored.items.get(uri) else {
            note(true, &format!("item {uri}: it is missing"));
            continue;
        };
        note(differs(&expected.existence, &stored.existence, complete), &format!("item {uri}: its existence"));
        note(differs(&expected.content, &stored.content, complete), &format!("item {uri}: its content"));
        let unannounced = expected.state.clock.at.is_some() && expected.unannounced != stored.unannounced;
        note(unannounced || differs(&expected.state, &stored.state, complete), &format!("item {uri}: its state"));
        let schedule = (complete || expected.state.clock.at.is_some()) && expected.schedule != stored.schedule;
        note(schedule, &format!("item {uri}: its dates of visibility"));
        note(initial_state_differs(expected, stored, complete), &format!("item {uri}: its initial state"));
    }
    for uri in stored.items.keys().filter(|uri| complete && !expected.items.contains_key(*uri)) {
        note(true, &format!("item {uri}: no change contains it"));
    }
    found
}

fn differs<T: PartialEq>(expected: &Register<T>, stored: &Register<T>, complete: bool) -> bool {
    (complete || expected.clock.at.is_some()) && expected != stored
}

/// Compares initial states. An earlier event never replaces an initial state, so the registry of a pruned journal
/// may have one from a change that retention has removed.
fn initial_state_differs(expected: &ItemRecord, stored: &ItemRecord, complete: bool) -> bool {
    match (&expected.initial_state, &stored.initial_state) {
        _ if complete => expected.initial_state != stored.initial_state,
        (Some(expected), Some(stored)) => {
            expected.at > stored.at || (expected.at == stored.at && expected.state != stored.state)
        }
        (Some(_), None) => true,
        (None, _) => false,
    }
}
