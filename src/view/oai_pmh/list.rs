//! `ListRecords` and `ListIdentifiers`: pages of the registry in the order of acceptance.
//!
//! A page begins after the last object of the page before, by time and number. So it costs the same wherever it is, and an
//! object that changes while a harvester reads the list moves to its end.
//!
//! A list without `until` ends with the objects that were accepted when its pages had passed the time of its first request.
//! So a harvester gets everything that changed while it read the first part of the list, and a list never grows without end.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::{
    catalogue::{Catalogue, MetadataFormat},
    document::{self, bad_token, resumption_token},
    error::{ErrorCode, Failure, OaiError},
    record::{Record, Unwritable},
    set::SetSpec,
    token::{ListState, Resumed, TokenKey},
};
use crate::{
    format::xml_writer::XmlWriter,
    journal::{
        Journal,
        acceptance::{AcceptanceTime, AcceptedObject, AcceptedPosition, AcceptedQuery},
    },
    view::{PAGE_BYTES, block_on, journal_problem, registry_view::RegistryView},
    web::{Problem, ProblemCode},
};

/// Number of objects that are read at once if many of them may not be part of the list.
const READ_OBJECTS: usize = 500;

/// Time after which a page ends early. Its records can be in files of a store that is slow.
const PAGE_TIME: Duration = Duration::from_secs(5);

/// A list of one of the two verbs.
pub(super) struct List<'a> {
    pub(super) journal: &'a Journal,
    pub(super) sight: &'a RegistryView,
    pub(super) catalogue: &'a Catalogue,
    /// Base URL of the repository.
    pub(super) base_url: &'a str,
    /// Time before which no datestamp is.
    pub(super) floor: AcceptanceTime,
    /// Time of the request, which is not before that of any object.
    pub(super) now: AcceptanceTime,
    /// Number of records on a page.
    pub(super) page: usize,
    /// Whether a list without dates shows deleted records.
    pub(super) lists_deleted: bool,
    pub(super) key: &'a TokenKey,
    /// Cancelled when nobody waits for the list any more.
    pub(super) ended: &'a CancellationToken,
}

/// The part of a list that its state selects.
struct Selection<'a> {
    format: MetadataFormat,
    set: Option<SetSpec>,
    hides_deleted: bool,
    list: &'a List<'a>,
}

/// Records that a page has read.
#[derive(Default)]
struct Progress {
    /// Number of records of the page.
    records: usize,
    /// Position of the last one.
    last: Option<AcceptedPosition>,
    /// Whether records follow.
    has_more: bool,
}

impl List<'_> {
    /// Writes the page that a state leads to. The call blocks.
    ///
    /// # Errors
    /// `noRecordsMatch` if there is no record, `cannotDisseminateFormat`, and failures of the journal.
    pub(super) fn write(&self, xml: &mut XmlWriter, state: ListState, with_metadata: bool) -> Result<(), Failure> {
        let Some(format) = self.catalogue.format(&state.prefix) else {
            // The configuration has lost the format since the list began.
            let is_resumed = state.count > 0;
            return Err(if is_resumed { bad_token() } else { OaiError::unknown_format(&state.prefix) }.into());
        };
        let no_match = || OaiError::new(ErrorCode::NoRecordsMatch, "No record matches the arguments.");
        let set = match &state.set {
            // A set that cannot be one has no record.
            Some(text) => Some(SetSpec::parse(text).ok_or_else(no_match)?),
            None => None,
        };
        let hides_deleted = !self.lists_deleted && state.from.is_none() && state.until.is_none();
        let selection = Selection { format, set, hides_deleted, list: self };
        let (verb, wrap) = if with_metadata { ("ListRecords", true) } else { ("ListIdentifiers", false) };
        xml.open(verb, &[]);
        let mut state = state;
        let mut progress = self.read(xml, &selection, &state, wrap)?;
        if progress.records == 0 && state.count > 0 {
            // The last records of the list have changed since, and are after its end, or they are deleted. One page of them ends
            // the list, because an empty list is illegal, and so is an error about the arguments in the middle of a list.
            (state.end, state.until) = (None, None);
            let selection = Selection { hides_deleted: false, ..selection };
            progress = self.read(xml, &selection, &state, wrap)?;
            progress.has_more = false;
        }
        let Some(last) = progress.last else {
            return Err(if state.count > 0 { bad_token() } else { no_match() }.into());
        };
        let cursor = state.count;
        let has_passed = last.time.0 > state.begun;
        let next = ListState {
            last: (last.time.0, last.object),
            count: cursor.saturating_add(progress.records as u64),
            end: state.end.or(has_passed.then_some(self.now.0)),
            ..state
        };
        let next = if with_metadata { Resumed::Records(next) } else { Resumed::Identifiers(next) };
        let token = if progress.has_more { self.key.seal(&next) } else { None };
        resumption_token(xml, token.as_deref(), Some(cursor));
        xml.close(verb);
        Ok(())
    }

    fn read(
        &self,
        xml: &mut XmlWriter,
        selection: &Selection<'_>,
        state: &ListState,
        with_metadata: bool,
    ) -> Result<Progress, Failure> {
        let end = state.end.map(|end| end.saturating_add(1));
        let before = [state.until, end].into_iter().flatten().min().map(AcceptanceTime);
        let mut query = AcceptedQuery {
            public: self.sight.is_public(),
            after: state.after(),
            before,
            limit: self.page.saturating_add(1),
            ..AcceptedQuery::default()
        };
        selection.restrict(&mut query);
        let (begin, started, mut progress) = (xml.length(), Instant::now(), Progress::default());
        loop {
            if self.ended.is_cancelled() {
                return Err(nobody_waits());
            }
            let page = block_on(self.journal.accepted(query.clone())).map_err(journal_problem)?;
            for object in &page.objects {
                let Some(record) = selection.record(object) else { continue };
                if self.ended.is_cancelled() {
                    return Err(nobody_waits());
                }
                let length = xml.length();
                let written = match with_metadata {
                    true => record.write(xml, &selection.format, self.base_url),
                    false => {
                        record.write_header(xml, &selection.format);
                        Ok(())
                    }
                };
                let is_late = progress.records > 0 && started.elapsed() >= PAGE_TIME;
                match written {
                    // It costs only itself, and all those of a store that has lost its files cost the time of a page.
                    Err(Unwritable::Missing) if !is_late => continue,
                    Err(Unwritable::Failed(problem)) => return Err(problem.into()),
                    Ok(()) | Err(Unwritable::Missing) => {}
                }
                let is_full = progress.records >= self.page || length - begin >= PAGE_BYTES || is_late;
                if is_full {
                    // A token promises a record, so this one was written to know that there is one.
                    xml.truncate(length);
                    progress.has_more = true;
                    return Ok(progress);
                }
                progress.records += 1;
                progress.last = Some(object.position);
            }
            match page.next {
                Some(next) => query.after = next,
                None => return Ok(progress),
            }
        }
    }
}

impl<'a> Selection<'a> {
    /// Restricts a query to the objects of the list. It may return others besides.
    fn restrict(&self, query: &mut AcceptedQuery) {
        let List { catalogue, .. } = self.list;
        if let Some(set) = &self.set {
            set.restrict(query, &catalogue.sets);
        }
        if matches!(self.format, MetadataFormat::Harvested(_)) || matches!(self.set, Some(SetSpec::Filter(_))) {
            query.limit = query.limit.max(READ_OBJECTS);
        }
    }

    /// Returns the record of an object, if it is part of the list.
    fn record<'o>(&self, object: &'o AcceptedObject) -> Option<Record<'o>>
    where
        'a: 'o,
    {
        let AcceptedObject { position, uri, state } = object;
        let state = state.as_ref().filter(|_| self.list.sight.covers(uri))?;
        let time = position.time.max(self.list.floor);
        // A damaged object costs only itself.
        let record = Record::of(uri, state, time, self.list.sight, self.list.catalogue)
            .inspect_err(|error| tracing::warn!(object = %uri, %error, "a damaged object is left out of a list"));
        let record = record.ok().flatten()?;
        let is_listed = |record: &Record<'_>| {
            record.has(&self.format)
                && !(self.hides_deleted && record.is_deleted_in(&self.format))
                && self.set.as_ref().is_none_or(|set| record.sets().contains(set))
        };
        Some(record).filter(is_listed)
    }
}

fn nobody_waits() -> Failure {
    Problem::new(ProblemCode::Unavailable, "Nobody waits for the list.").into()
}

/// Returns the state of a list from its first request.
pub(super) fn first_state(
    arguments: &super::arguments::Arguments,
    floor: AcceptanceTime,
    now: AcceptanceTime,
) -> Result<ListState, OaiError> {
    let (from, until) = arguments.window().map_err(|reason| OaiError::new(ErrorCode::BadArgument, reason))?;
    if until.is_some_and(|until| until <= floor) {
        let text = format!("No record has a datestamp before {}.", document::datestamp(floor));
        return Err(OaiError::new(ErrorCode::NoRecordsMatch, text));
    }
    let text = |name: &str| arguments.get(name).map(ToOwned::to_owned);
    Ok(ListState {
        prefix: text("metadataPrefix").unwrap_or_default(),
        set: text("set"),
        // All records have at least the time of the floor. The list has a begin nevertheless, and so its deleted records.
        from: from.map(|from| if from > floor { from.0 } else { 0 }),
        until: until.map(|until| until.0),
        last: (0, 0),
        count: 0,
        begun: now.0,
        end: None,
    })
}
