//! The registry against the changes, and what walks through repositories told between them: what its tables hold, with
//! what the changes after those that it holds for certain tell, as when the journal is opened.
//!
//! Where every change is there, they rebuild the registry exactly, but for confirmations, which come
//! from events that are not in the journal. Where the oldest have been removed, only what the others
//! have set can be held against it: a fact that a change set on time is newer than all that came
//! before, so it must be in the registry just so.

use rusqlite::Connection;

use super::{
    super::{registry::Reader, version_8::Replayed},
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

/// Holds the objects that `belongs` chooses against what the changes say.
pub(super) fn compare(
    connection: &Connection,
    replayed: &Replayed,
    mut rebuilt: Registry,
    belongs: impl Fn(&Uri) -> bool,
    report: &mut Report,
) -> rusqlite::Result<()> {
    let mut reader = Reader::new(connection)?;
    let mut without_row: std::collections::BTreeSet<&Uri> = replayed.keys().collect();
    let mut hold = |uri: &Uri, held: Result<ObjectState, StoreError>, report: &mut Report| {
        let told = rebuilt.objects.remove(uri).unwrap_or_default();
        match held {
            Ok(held) => {
                // Nobody else reads all of them, and of some no change tells any more.
                for (item, record) in &held.items {
                    if let Some(Err(error)) = record.content.value.as_ref().map(RawContentLocation::parse) {
                        report.find(format!("the registry, object {uri}, item {item}: {error}"));
                    }
                }
                for wrong in differences(&told, &held.without_confirmations(), report.complete) {
                    report.find(format!("the registry differs from the changes: object {uri}, {wrong}"));
                }
            }
            Err(StoreError::Damaged(what)) => report.find(format!("the registry, object {uri}: {what}")),
            Err(error) => report.find(format!("the registry, object {uri}: {error}")),
        }
    };
    let mut statement = connection.prepare("SELECT uri FROM objects ORDER BY uri")?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let uri: String = row.get(0)?;
        let Ok(uri) = Uri::parse(&uri) else {
            report.find(format!("the registry has an object that is no URI: {uri:?}"));
            continue;
        };
        without_row.remove(&uri);
        if belongs(&uri) {
            let stored = reader.object(&uri, &ItemSelection::All);
            let state = stored.map(|stored| stored.map(|(_, state)| state).unwrap_or_default());
            hold(&uri, state.map(|state| with_replayed(state, replayed.get(&uri))), report);
        }
    }
    for uri in without_row.into_iter().filter(|uri| belongs(uri)) {
        hold(uri, Ok(with_replayed(ObjectState::default(), replayed.get(uri))), report);
    }
    for uri in rebuilt.objects.keys() {
        report.find(format!("the registry lacks the object {uri}, of which changes tell"));
    }
    Ok(())
}

/// State of an object with the facts that were replayed.
fn with_replayed(mut stored: ObjectState, replayed: Option<&ObjectState>) -> ObjectState {
    if let Some(ObjectState { parent, types, purged, items }) = replayed.cloned() {
        stored.items.extend(items);
        stored = ObjectState { parent, types, purged, items: stored.items };
    }
    stored
}

/// What the registry holds otherwise than the changes tell.
fn differences(told: &ObjectState, held: &ObjectState, complete: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut note = |differs: bool, what: &str| wrong.extend(differs.then(|| what.to_owned()));
    note(differs(&told.parent, &held.parent, complete), "its parent");
    note(differs(&told.types, &held.types, complete), "its types");
    let purged = if complete { told.purged != held.purged } else { told.purged.at > held.purged.at };
    note(purged, "when it was purged");
    for (uri, told) in &told.items {
        match held.items.get(uri) {
            None => note(true, &format!("item {uri}: it is not there")),
            Some(held) => {
                note(differs(&told.existence, &held.existence, complete), &format!("item {uri}: whether it is there"));
                note(differs(&told.content, &held.content, complete), &format!("item {uri}: its content"));
                let unannounced = told.state.clock.at.is_some() && told.unannounced != held.unannounced;
                note(unannounced || differs(&told.state, &held.state, complete), &format!("item {uri}: its state"));
                note(begins_otherwise(told, held, complete), &format!("item {uri}: the state that it began in"));
            }
        }
    }
    for uri in held.items.keys().filter(|uri| complete && !told.items.contains_key(*uri)) {
        note(true, &format!("item {uri}: no change tells of it"));
    }
    wrong
}

fn differs<T: PartialEq>(told: &Register<T>, held: &Register<T>, complete: bool) -> bool {
    (complete || told.clock.at.is_some()) && told != held
}

/// A beginning is not replaced by an earlier one, so one that was told before the oldest change that is
/// kept may stand.
fn begins_otherwise(told: &ItemRecord, held: &ItemRecord, complete: bool) -> bool {
    match (&told.initial_state, &held.initial_state) {
        _ if complete => told.initial_state != held.initial_state,
        (Some(told), Some(held)) => told.at > held.at || (told.at == held.at && told.state != held.state),
        (Some(_), None) => true,
        (None, _) => false,
    }
}
