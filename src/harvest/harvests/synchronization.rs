//! Synchronization with the journal: whatever node makes or removes a harvest, all nodes follow.

use std::{collections::BTreeMap, sync::PoisonError};

use super::{Harvest, Harvests, Inner, definition};
use crate::{
    journal::{
        JournalError,
        subscriptions::{DefinitionText, MadeBy},
    },
    model::SourceName,
};

impl Harvests {
    /// Starts the harvests that another node has made, and stops those that another node has removed.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub async fn synchronize(&self) -> Result<(), JournalError> {
        let _operation = self.0.operation.lock().await;
        self.0.synchronize().await
    }

    /// Returns whether the journal still has this harvest as it is defined here.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub async fn is_current(&self, harvest: &Harvest) -> Result<bool, JournalError> {
        if harvest.made_by == MadeBy::Config {
            return Ok(true);
        }
        let stored = self.0.journal.harvest_definitions().await?;
        let name = harvest.source.name();
        Ok(stored.iter().any(|stored| stored.source == *name && stored.text == harvest.definition))
    }
}

impl Inner {
    pub(super) async fn synchronize(&self) -> Result<(), JournalError> {
        let stored = self.journal.harvest_definitions().await?;
        let stored: BTreeMap<_, _> = stored.into_iter().map(|stored| (stored.source, stored.text)).collect();
        let is_outdated = |harvest: &Harvest| stored.get(harvest.source.name()) != Some(&harvest.definition);
        let outdated: Vec<_> = self
            .entries()
            .iter()
            .filter(|(_, entry)| entry.harvest.made_by != MadeBy::Config)
            // A harvest that found its definition missing has ended, and may have been made again since.
            .filter(|(_, entry)| is_outdated(&entry.harvest) || entry.worker.has_ended())
            .map(|(name, _)| name.clone())
            .collect();
        for name in outdated {
            self.stop(&name).await;
        }
        for (name, text) in stored {
            let is_known = self.entries().contains_key(&name);
            if !is_known {
                self.start_stored(&name, text).await;
            }
        }
        Ok(())
    }

    /// Starts a harvest of the journal. One whose definition no longer works is not started.
    async fn start_stored(&self, name: &SourceName, text: DefinitionText) {
        let is_broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner).get(name) == Some(&text);
        if self.reserved.contains(name) || is_broken {
            return;
        }
        let read = definition::settings(&text).map_err(|error| error.to_string());
        let parts = read.and_then(|definition| (self.read)(name, &definition).map_err(|error| error.to_string()));
        let set_up = match parts {
            Ok(parts) => self.set_up(parts, MadeBy::Api, text.clone()).await.map_err(|error| error.to_string()),
            Err(error) => Err(error),
        };
        match set_up {
            Ok(harvest) => self.start(harvest),
            Err(reason) => {
                tracing::error!(source = %name, reason, "the definition of a harvest no longer works; remove it");
                self.broken.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), text);
            }
        }
    }
}
