//! Wiring of the audits.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    admin::sources::ConfiguredSource,
    audit::{AuditedSource, Audits},
    config::{Config, SourceConfig},
    harvest::Harvests,
    journal::Journal,
    model::SourceName,
};

/// Returns whether the repository of a source can be compared with the registry.
fn has_repository((_, source): &(&SourceName, &SourceConfig)) -> bool {
    source.repository.is_some() && source.dialect.repository.is_some_and(|kind| kind.not_crawlable.is_none())
}

/// Creates the audits of all sources with a repository.
pub(super) fn open(
    config: &Config,
    journal: &Journal,
    sources: &BTreeMap<String, ConfiguredSource>,
    harvests: &Harvests,
) -> Audits {
    let audited = config.sources.iter().filter(has_repository).filter_map(|(name, source)| {
        let repository = source.repository.clone();
        let source = Arc::clone(&sources.get(name.as_str())?.source);
        Some((name.clone(), AuditedSource { source, repository, every: None }))
    });
    Audits::new(journal.clone(), audited.collect(), harvests.clone())
}
