//! Records of former settings: their objects stay in the registry, and each run says so, until an administrator retires them.

use super::{
    harvest::OaiPmhHarvester,
    position::{FormerPlace, FullList, Place, Position, SweepPosition},
    response::{ListText, RawRecord},
    sweep::end,
};
use crate::{
    harvest::{HarvestError, Page, PageEnd, full_list_request, membership::never_missing, retirement_request},
    journal::{JournalError, harvest::HarvestWrite},
    model::SourceName,
};

/// Number of records that are deleted in one page.
const PAGE_RECORDS: usize = 100;

impl OaiPmhHarvester {
    /// Returns the place whose URIs the records of a harvest have.
    pub(super) fn place_of(&self, position: &Position) -> Place {
        let mut place = self.place.place.clone();
        if position.omits_query {
            place.base_url = self.settings.url_without_query();
        }
        place
    }

    /// Returns whether an administrator has requested a complete list since the newest one.
    pub(super) async fn is_full_list_requested(&self, newest: Option<FullList>) -> Result<bool, JournalError> {
        let request = self.journal.harvest(full_list_request(&self.source)).await?;
        let requested = request.and_then(|request| request.requested);
        Ok(requested.is_some_and(|requested| newest.is_none_or(|full| full.began < requested)))
    }

    /// Returns whether an administrator has requested to retire the records of former settings.
    pub(super) async fn is_retirement_requested(&self, position: &Position) -> Result<bool, JournalError> {
        let is_ready = position.former.iter().any(|former| !former.is_new);
        Ok(is_ready && self.journal.harvest(retirement_request(&self.source)).await?.is_some())
    }

    /// Returns remarks about the records of former settings, and forgets those that have none.
    pub(super) async fn former_remarks(&self, position: &mut Position) -> Result<Vec<String>, JournalError> {
        let mut remarks = Vec::new();
        for former in std::mem::take(&mut position.former) {
            let Ok(name) = SourceName::parse(&former.name) else { continue };
            let name = if former.is_new { self.source.clone() } else { name };
            let number = self.journal.listed_counts(name, never_missing()).await?.missing;
            if number == 0 && !former.is_new {
                continue;
            }
            let FormerPlace { place: Place { base_url, prefix }, .. } = &former;
            remarks.push(format!(
                "{number} records of former settings ({prefix} of {base_url}) stay in the registry, besides those of the \
                 present settings; tidings harvests retire {} deletes them, and formerly keeps the URIs of a repository that \
                 has moved",
                self.source
            ));
            position.former.push(former);
        }
        Ok(remarks)
    }

    /// Deletes the next records of former settings.
    pub(super) async fn retire(&self, mut position: Position, mut sweep: SweepPosition) -> Result<Page, HarvestError> {
        let request = retirement_request(&self.source);
        let Some(former) = position.former.iter().find(|former| !former.is_new).cloned() else {
            self.journal.write_harvest(request, HarvestWrite::Remove).await?;
            let remark = format!("{} records of former settings are deleted", sweep.asked);
            return Ok(end(&position, vec![remark]));
        };
        let name = SourceName::parse(&former.name).map_err(|error| HarvestError::fail(error.to_string()))?;
        let after = sweep.after.clone();
        let identifiers = self.journal.missing_records(name.clone(), never_missing(), after, PAGE_RECORDS).await?;
        let Some(last) = identifiers.last() else {
            self.journal.write_harvest(name, HarvestWrite::Remove).await?;
            position.former.retain(|known| known.name != former.name);
            sweep.after.clear();
            position.sweep = Some(sweep);
            return Ok(Page::new(Vec::new(), position.text(), PageEnd::More));
        };
        sweep.after.clone_from(last);
        sweep.asked += identifiers.len() as u64;
        let tombstone = |identifier: &String| (RawRecord::without_metadata(identifier, "", true), None);
        let records = identifiers.iter().map(tombstone).collect();
        let records = self.records(records, ListText::none(), Vec::new(), None, &former.place);
        position.sweep = Some(sweep);
        Ok(Page::new(records, position.text(), PageEnd::More))
    }
}
