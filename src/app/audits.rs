//! Wiring of the audits.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    admin::sources::ConfiguredSource,
    audit::{AuditedSource, Audits},
    config::{Config, SourceConfig},
    harvest::Harvests,
    journal::Journal,
};

/// Creates the audits of all sources with a repository that can be asked.
pub(super) fn open(
    config: &Config,
    journal: &Journal,
    sources: &BTreeMap<String, ConfiguredSource>,
    harvests: &Harvests,
) -> Audits {
    let audited = config.sources.iter().filter_map(|(name, source)| {
        let SourceConfig { transport, dialect, audit_every: every, .. } = source;
        let is_crawlable = dialect.repository.is_some_and(|kind| kind.not_crawlable.is_none());
        let repository = source.repository.clone().filter(|_| is_crawlable);
        let is_harvest = transport.can_be_audited();
        let source = Arc::clone(&sources.get(name.as_str())?.source);
        (repository.is_some() || is_harvest)
            .then(|| (name.clone(), AuditedSource { source, repository, every: *every }))
    });
    Audits::new(journal.clone(), audited.collect(), harvests.clone())
}
