//! Operations on harvests: add, remove, pause, resume, and request a run.

use std::sync::Arc;

use serde_json::Value;
use subtle::ConstantTimeEq;

use super::super::{full_list_request, request_name, retirement_request};
use super::{
    Harvest, Harvests, Inner, InvalidHarvest, MAX_HARVESTS,
    definition::{announced_by, announced_definition},
};
use crate::{
    harvest::{Callback, RecordCounts, SetupError},
    journal::{
        JournalError,
        harvest::HarvestWrite,
        subscriptions::{DefinitionText, MadeBy},
    },
    model::{SourceName, Timestamp},
};

/// Maximum size of a stored definition, in bytes.
const MAX_DEFINITION_BYTES: usize = 64 * 1024;

/// Error of an operation on a harvest.
#[derive(Debug, thiserror::Error)]
pub enum HarvestOperationError {
    /// No harvest has this name.
    #[error("there is no harvest of a source {0}; GET /harvests lists all harvests")]
    Unknown(SourceName),
    /// The configuration defines the source.
    #[error("the source {0} is defined in the configuration file; change it there, and reload the gateway")]
    DefinedInConfig(SourceName),
    /// The harvest exists.
    #[error("there is a harvest of a source {0} already; remove it first")]
    Exists(SourceName),
    /// There are too many harvests.
    #[error("there are {MAX_HARVESTS} harvests already; remove one")]
    TooMany,
    /// The source has no runs, because it archives the datasets that others request.
    #[error("the source {0} archives datasets and has no runs; GET /filesets lists its jobs")]
    NoRuns(SourceName),
    /// The definition is invalid.
    #[error(transparent)]
    Definition(#[from] InvalidHarvest),
    /// The harvest cannot be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Harvests {
    /// Adds a harvest, which begins at once on the node that has the duty of its source.
    ///
    /// # Errors
    /// Fails if the definition is invalid, the name is in use, there are too many harvests, or the journal fails.
    pub async fn add(&self, name: &SourceName, definition: &Value) -> Result<(), HarvestOperationError> {
        let _operation = self.0.operation.lock().await;
        self.0.add(name, definition, definition.to_string().into()).await
    }

    /// Removes a harvest that was made over HTTP, with its position and its history. The changes stay in the journal.
    ///
    /// # Errors
    /// Fails if there is no such harvest, the configuration defines it, or the journal fails.
    pub async fn remove(&self, name: &SourceName) -> Result<(), HarvestOperationError> {
        let _operation = self.0.operation.lock().await;
        self.0.remove(name).await
    }

    /// Pauses a harvest: the present run stops after the page that is being requested, and continues when the harvest is
    /// resumed. A pause survives a restart.
    ///
    /// # Errors
    /// Fails if there is no such harvest, or the journal fails.
    pub async fn pause(&self, name: &SourceName) -> Result<(), HarvestOperationError> {
        self.modify(name, HarvestWrite::SetPaused(true)).await
    }

    /// Resumes a paused harvest.
    ///
    /// # Errors
    /// As [`Harvests::pause`].
    pub async fn resume(&self, name: &SourceName) -> Result<(), HarvestOperationError> {
        self.modify(name, HarvestWrite::SetPaused(false)).await
    }

    /// Requests a run. The node that harvests the source begins it within seconds, unless a run is in progress.
    ///
    /// # Errors
    /// As [`Harvests::pause`].
    pub async fn request(&self, name: &SourceName) -> Result<(), HarvestOperationError> {
        self.with_runs(name)?.status.hurry();
        self.modify(name, HarvestWrite::Request(Timestamp::now())).await
    }

    /// Requests a run that lists all records, as [`Harvests::request`] does.
    ///
    /// # Errors
    /// As [`Harvests::pause`].
    pub async fn request_full(&self, name: &SourceName) -> Result<(), HarvestOperationError> {
        self.request_of(name, full_list_request(name)).await
    }

    /// Requests a run that deletes the records of former settings.
    ///
    /// # Errors
    /// As [`Harvests::pause`].
    pub async fn retire(&self, name: &SourceName) -> Result<(), HarvestOperationError> {
        self.request_of(name, retirement_request(name)).await
    }

    /// Counts the records of a harvest. Reads one row of the journal for each.
    ///
    /// # Errors
    /// Fails if there is no such harvest, or the journal fails.
    pub async fn count_records(&self, name: &SourceName) -> Result<RecordCounts, HarvestOperationError> {
        self.get(name).ok_or_else(|| HarvestOperationError::Unknown(name.clone()))?;
        Ok(RecordCounts::read(&self.0.journal, name).await?)
    }

    /// Returns a harvest that reads pages in runs.
    fn with_runs(&self, name: &SourceName) -> Result<Arc<Harvest>, HarvestOperationError> {
        let harvest = self.get(name).ok_or_else(|| HarvestOperationError::Unknown(name.clone()))?;
        if harvest.has_runs() { Ok(harvest) } else { Err(HarvestOperationError::NoRuns(name.clone())) }
    }

    async fn request_of(&self, name: &SourceName, request: SourceName) -> Result<(), HarvestOperationError> {
        {
            let _operation = self.0.operation.lock().await;
            self.with_runs(name)?;
            self.0.journal.write_harvest(request, HarvestWrite::Request(Timestamp::now())).await?;
        }
        self.request(name).await
    }

    /// Requests a run because the hub of a feed has reported a change. It begins after the newest run and the least time
    /// between two such runs, so any number of notifications makes one run.
    ///
    /// # Errors
    /// As [`Harvests::pause`].
    pub async fn notify(&self, name: &SourceName) -> Result<(), HarvestOperationError> {
        self.modify(name, HarvestWrite::Request(Timestamp::now())).await
    }

    /// Returns the place for notifications of a hub about a harvest; `None` if the token is not that of the harvest.
    ///
    /// # Errors
    /// Fails if the journal fails.
    pub async fn callback(&self, name: &SourceName, token: &str) -> Result<Option<Callback>, JournalError> {
        let Some(harvest) = self.get(name) else { return Ok(None) };
        let Some(stored) = self.0.journal.harvest(name.clone()).await? else { return Ok(None) };
        let callback = harvest.harvester().and_then(|harvester| harvester.callback(&stored.position));
        Ok(callback.filter(|callback| bool::from(callback.token.as_bytes().ct_eq(token.as_bytes()))))
    }

    /// Notes the end of a subscription at a hub; `None` if the hub has refused or ended it.
    ///
    /// # Errors
    /// As [`Harvests::pause`].
    pub async fn set_lease(&self, name: &SourceName, lease: Option<Timestamp>) -> Result<(), HarvestOperationError> {
        self.modify(name, HarvestWrite::SetLease(lease)).await
    }

    async fn modify(&self, name: &SourceName, write: HarvestWrite) -> Result<(), HarvestOperationError> {
        // A modification after the removal would create the harvest's row again.
        let _operation = self.0.operation.lock().await;
        let harvest = self.get(name).ok_or_else(|| HarvestOperationError::Unknown(name.clone()))?;
        self.0.journal.write_harvest(name.clone(), write).await?;
        harvest.status.wake();
        Ok(())
    }
}

/// Operations that another system requests by its events. Each may be repeated.
impl Harvests {
    /// Makes the harvest that a source has announced, or resumes it. One with another definition is replaced, and begins
    /// with the first page again, which changes nothing that has not changed.
    ///
    /// # Errors
    /// As [`Harvests::add`], and if somebody else has made the harvest.
    pub(in crate::harvest) async fn announce(
        &self,
        by: &SourceName,
        name: &SourceName,
        definition: &Value,
    ) -> Result<(), HarvestOperationError> {
        let _operation = self.0.operation.lock().await;
        let text = announced_definition(definition, by);
        match self.0.stored_announcement(by, name).await {
            Err(HarvestOperationError::Unknown(_)) => return self.0.add(name, definition, text).await,
            Err(error) => return Err(error),
            Ok(stored) if stored.expose() == text.expose() => {}
            Ok(_) => {
                self.0.remove(name).await?;
                return self.0.add(name, definition, text).await;
            }
        }
        self.0.journal.write_harvest(name.clone(), HarvestWrite::SetPaused(false)).await?;
        self.wake(name);
        Ok(())
    }

    /// Pauses the harvest that a source has announced.
    ///
    /// # Errors
    /// Fails if there is no such harvest, somebody else has made it, or the journal fails.
    pub(in crate::harvest) async fn close(
        &self,
        by: &SourceName,
        name: &SourceName,
    ) -> Result<(), HarvestOperationError> {
        let _operation = self.0.operation.lock().await;
        self.0.stored_announcement(by, name).await?;
        self.0.journal.write_harvest(name.clone(), HarvestWrite::SetPaused(true)).await?;
        self.wake(name);
        Ok(())
    }

    /// Removes the harvest that a source has announced.
    ///
    /// # Errors
    /// As [`Harvests::close`].
    pub(in crate::harvest) async fn withdraw(
        &self,
        by: &SourceName,
        name: &SourceName,
    ) -> Result<(), HarvestOperationError> {
        let _operation = self.0.operation.lock().await;
        self.0.stored_announcement(by, name).await?;
        self.0.remove(name).await
    }

    fn wake(&self, name: &SourceName) {
        if let Some(harvest) = self.get(name) {
            harvest.status.wake();
        }
    }
}

/// Parts of operations. The caller holds the lock of operations.
impl Inner {
    async fn add(
        &self,
        name: &SourceName,
        definition: &Value,
        text: DefinitionText,
    ) -> Result<(), HarvestOperationError> {
        if self.reserved.contains(name) {
            return Err(HarvestOperationError::DefinedInConfig(name.clone()));
        }
        let stored = self.journal.harvest_definitions().await?;
        if stored.iter().any(|stored| stored.source == *name) {
            return Err(HarvestOperationError::Exists(name.clone()));
        }
        if stored.len() >= MAX_HARVESTS {
            return Err(HarvestOperationError::TooMany);
        }
        let parts = (self.read)(name, definition)?;
        if text.expose().len() > MAX_DEFINITION_BYTES {
            let reason = format!("the definition has more than {MAX_DEFINITION_BYTES} bytes");
            return Err(InvalidHarvest::new("", reason).into());
        }
        let harvest = self.set_up(parts, MadeBy::Api, text.clone()).await?;
        // A harvest of this name that another node has removed a moment ago.
        self.stop(name).await;
        self.journal.write_harvest(name.clone(), HarvestWrite::Define(text)).await?;
        self.start(harvest);
        Ok(())
    }

    async fn remove(&self, name: &SourceName) -> Result<(), HarvestOperationError> {
        if self.reserved.contains(name) {
            return Err(HarvestOperationError::DefinedInConfig(name.clone()));
        }
        let stored = self.journal.harvest_definitions().await?;
        if !stored.iter().any(|stored| stored.source == *name) {
            return Err(HarvestOperationError::Unknown(name.clone()));
        }
        self.stop(name).await;
        let audits = ["audit", "report"].map(|kind| request_name(kind, name));
        for request in [full_list_request(name), retirement_request(name)].into_iter().chain(audits) {
            self.journal.write_harvest(request, HarvestWrite::Remove).await?;
        }
        let removed = self.journal.write_harvest(name.clone(), HarvestWrite::Remove).await;
        if removed.is_err() {
            self.synchronize().await?;
        }
        Ok(removed?)
    }

    /// Returns the stored definition of a harvest that a source has announced.
    async fn stored_announcement(
        &self,
        by: &SourceName,
        name: &SourceName,
    ) -> Result<DefinitionText, HarvestOperationError> {
        if self.reserved.contains(name) {
            return Err(HarvestOperationError::DefinedInConfig(name.clone()));
        }
        let stored = self.journal.harvest_definitions().await?;
        let stored = stored.into_iter().find(|stored| stored.source == *name);
        let text = stored.ok_or_else(|| HarvestOperationError::Unknown(name.clone()))?.text;
        if announced_by(&text).as_ref() == Some(by) {
            Ok(text)
        } else {
            Err(HarvestOperationError::Exists(name.clone()))
        }
    }
}
