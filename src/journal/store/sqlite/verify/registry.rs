//! Checks of the registry: compares its tables with a registry rebuilt from all changes and seeds. For a file of
//! versions 5 to 8, the tables are first completed by replaying the changes after them, as opening the journal
//! would do.
//!
//! A complete journal rebuilds the registry exactly, except for confirmations, which come from events that are not
//! in the journal. If retention has removed changes, only the facts that the remaining changes set can be compared.
//! A fact that a change set on time is newer than all earlier ones, so the registry must have it unchanged.

use rusqlite::Connection;

use super::{
    super::{registry::RegistryReader, version_8::Replayed},
    Report,
};
use crate::{
    journal::{
        RawContentLocation,
        registry::{ItemRecord, ObjectState, Register, Registry},
        store::{ItemSelection, StoreError},
    },
    model::Uri,
};

/// Compares the objects for which `belongs` is true with the rebuilt registry.
pub(super) fn compare(
    connection: &Connection,
    replayed: &Replayed,
    mut rebuilt: Registry,
    belongs: impl Fn(&Uri) -> bool,
    report: &mut Report,
) -> rusqlite::Result<()> {
    let mut reader = RegistryReader::new(connection)?;
    let mut without_row: std::collections::BTreeSet<&Uri> = replayed.keys().collect();
    let mut compare_object = |uri: &Uri, stored: Result<ObjectState, StoreError>, report: &mut Report| {
        let expected = rebuilt.objects.remove(uri).unwrap_or_default();
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
    };
    let mut statement = connection.prepare("SELECT uri FROM objects ORDER BY uri")?;
    let mut result = statement.query([])?;
    while let Some(row) = result.next()? {
        let uri: String = row.get(0)?;
        let Ok(uri) = Uri::parse(&uri) else {
            report.add(format!("the registry has an object whose URI is invalid: {uri:?}"));
            continue;
        };
        without_row.remove(&uri);
        if belongs(&uri) {
            let stored = reader.object(&uri, &ItemSelection::All);
            let state = stored.map(|stored| stored.map(|(_, state)| state).unwrap_or_default());
            compare_object(&uri, state.map(|state| with_replayed(state, replayed.get(&uri))), report);
        }
    }
    for uri in without_row.into_iter().filter(|uri| belongs(uri)) {
        compare_object(uri, Ok(with_replayed(ObjectState::default(), replayed.get(uri))), report);
    }
    for uri in rebuilt.objects.keys() {
        report.add(format!("the registry lacks the object {uri}, which changes contain"));
    }
    Ok(())
}

/// Returns the stored state of an object, updated by the replayed facts.
fn with_replayed(mut stored: ObjectState, replayed: Option<&ObjectState>) -> ObjectState {
    if let Some(ObjectState { parent, types, purged, items }) = replayed.cloned() {
        stored.items.extend(items);
        stored = ObjectState { parent, types, purged, items: stored.items };
    }
    stored
}

/// Describes the differences between the rebuilt and the stored state of an object.
fn differences(expected: &ObjectState, stored: &ObjectState, complete: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut note = |differs: bool, what: &str| found.extend(differs.then(|| what.to_owned()));
    note(differs(&expected.parent, &stored.parent, complete), "its parent");
    note(differs(&expected.types, &stored.types, complete), "its types");
    let purged = if complete { expected.purged != stored.purged } else { expected.purged.at > stored.purged.at };
    note(purged, "its time of purge");
    for (uri, expected) in &expected.items {
        let Some(stored) = stored.items.get(uri) else {
            note(true, &format!("item {uri}: it is missing"));
            continue;
        };
        note(differs(&expected.existence, &stored.existence, complete), &format!("item {uri}: its existence"));
        note(differs(&expected.content, &stored.content, complete), &format!("item {uri}: its content"));
        let unannounced = expected.state.clock.at.is_some() && expected.unannounced != stored.unannounced;
        note(unannounced || differs(&expected.state, &stored.state, complete), &format!("item {uri}: its state"));
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
