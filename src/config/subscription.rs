//! `[subscriptions.NAME]`: a subscription. The settings are defined in `delivery`, because the HTTP API accepts the
//! same definitions.

use std::{ffi::OsString, sync::Arc};

use super::{error::ConfigErrors, source_names::refuse_unknown_sources};
use crate::{
    delivery::{COMMON_KEYS, DELIVERIES, Definition, DefinitionContext},
    http_client::OutboundPolicy,
    journal::subscriptions::MadeBy,
    model::SubscriptionName,
    settings::{Key, Setting, Text},
};

/// Reads a subscription. `sources` contains the names of all configured sources, including disabled ones.
pub(super) fn read(
    name: &str,
    table: &Setting,
    environment: &[(OsString, OsString)],
    sources: &[String],
) -> Result<(SubscriptionName, Arc<Definition>), ConfigErrors> {
    let name = SubscriptionName::parse(name).map_err(|error| table.invalid(error.to_string()))?;
    let variable = |name: &str| environment.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone());
    // The configuration is trusted, so the target is not restricted by `delivery.allow`.
    let guard = OutboundPolicy::unrestricted();
    let maker = DefinitionContext { made_by: MadeBy::Config, variable: &variable, guard: &guard };
    let definition =
        Definition::read(table.json(), &maker).map_err(|error| table.at(&error.key).invalid(error.reason))?;
    refuse_unknown_sources(&definition.filter.sources, sources, &table.at("filter.sources"))?;
    Ok((name, Arc::new(definition)))
}

/// Returns the declared keys of a subscription with this delivery.
pub(super) fn declared_keys(table: &Setting) -> Vec<&'static [Key]> {
    let name = table.get::<Text>("delivery").ok().flatten();
    let delivery = DELIVERIES.iter().find(|kind| Some(kind.name) == name.as_deref());
    delivery.map(|delivery| delivery.settings).into_iter().chain([COMMON_KEYS]).collect()
}
