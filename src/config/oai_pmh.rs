//! Settings of a source that is harvested over OAI-PMH.

use std::{ffi::OsString, sync::Arc};

use axum::http::HeaderValue;
use serde::de::IgnoredAny;

use super::{
    error::ConfigError,
    harvest::{PageBytes, Percent, Place, Time, place, schedule},
    setting::Setting,
    source::named,
    transport::{Connection, TransportKey, TransportKind},
};
use crate::{
    harvest::{
        HarvestSettings, Hours, Timeouts,
        oai_pmh::{ListVerb, OaiPmhSettings},
    },
    model::Uri,
};

/// Default maximum size of a page, in bytes.
const PAGE_BYTES: PageBytes = PageBytes(64 * 1024 * 1024);

/// The transport `oai-pmh`: a repository that is harvested over OAI-PMH.
pub(super) static OAI_PMH: TransportKind = TransportKind {
    name: "oai-pmh",
    keys: &[
        TransportKey::of::<IgnoredAny>("url"),
        TransportKey::of::<String>("ca"),
        TransportKey::of::<String>("contact"),
        TransportKey::of::<String>("formerly"),
        TransportKey::of::<Vec<String>>("secret_parameters"),
        TransportKey::of::<String>("metadata_prefix"),
        TransportKey::of::<Vec<String>>("sets"),
        TransportKey::of::<String>("mode"),
        TransportKey::of::<Time>("every"),
        TransportKey::of::<Time>("jitter"),
        TransportKey::of::<Hours>("hours"),
        TransportKey::of::<Time>("overlap"),
        TransportKey::of::<Time>("window"),
        TransportKey::of::<String>("list"),
        TransportKey::of::<Time>("full_every"),
        TransportKey::of::<Percent>("max_deleted_percent"),
        TransportKey::of::<PageBytes>("page_bytes"),
    ],
    read: |table, environment| Ok(Connection::Harvest(read(table, environment)?)),
};

/// Reads the settings from the table of a source.
fn read(table: &Setting, environment: &[(OsString, OsString)]) -> Result<HarvestSettings, ConfigError> {
    let Place { url, ca } = place(table, environment)?;
    let metadata_prefix = table.get::<String>("metadata_prefix")?.unwrap_or_else(|| "oai_dc".to_owned());
    if !is_name(&metadata_prefix, "") {
        let reason = "it is not a metadata prefix; give one of ListMetadataFormats, such as \"oai_dc\"";
        return Err(table.entry("metadata_prefix")?.invalid(reason));
    }
    let sets = table.get::<Vec<String>>("sets")?.unwrap_or_default();
    if let Some(set) = sets.iter().find(|set| !is_name(set, ":")) {
        let reason = format!("{set:?} is not a set; give the setSpec of ListSets, such as \"math:algebra\"");
        return Err(table.entry("sets")?.invalid(reason));
    }
    if let Some(name) = url.expose().query_pairs().map(|(name, _)| name).find(|name| name == "verb") {
        let reason = format!("it has the parameter {name}; give the base URL, without the parameters of a request");
        return Err(table.entry("url")?.invalid(reason));
    }
    let formerly = table.get::<String>("formerly")?;
    if formerly.as_ref().is_some_and(|url| Uri::parse(url).is_err()) {
        return Err(table.entry("formerly")?.invalid("it is not a URL; give the former base URL, without credentials"));
    }
    let secret_parameters = table.get::<Vec<String>>("secret_parameters")?.unwrap_or_default();
    let time = |name| Ok::<_, ConfigError>(table.get::<Time>(name)?.map(|Time(time)| time));
    let Percent(max_deleted_percent) = table.get("max_deleted_percent")?.unwrap_or_default();
    let PageBytes(page_bytes) = table.get("page_bytes")?.unwrap_or(PAGE_BYTES);
    let kind = OaiPmhSettings {
        url,
        ca,
        contact: contact(table)?,
        formerly,
        secret_parameters: secret_parameters.iter().map(|name| name.to_ascii_lowercase()).collect(),
        metadata_prefix,
        sets,
        overlap: time("overlap")?,
        window: time("window")?,
        list: named(table, "list", "list", &ListVerb::ALL, ListVerb::name)?.unwrap_or_default(),
        full_every: time("full_every")?,
        max_deleted_percent,
        page_bytes,
        timeouts: Timeouts::default(),
    };
    Ok(HarvestSettings { objects: Some(kind.objects()), schedule: schedule(table)?, kind: Arc::new(kind) })
}

/// Reads the e-mail address of the operator.
fn contact(table: &Setting) -> Result<Option<HeaderValue>, ConfigError> {
    let Some(address) = table.get::<String>("contact")? else { return Ok(None) };
    let is_address = address.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty());
    match HeaderValue::from_str(&address) {
        Ok(value) if is_address && !address.contains(' ') => Ok(Some(value)),
        _ => {
            let reason = "it is not an e-mail address; give one like \"library@example.org\"";
            Err(table.entry("contact")?.invalid(reason))
        }
    }
}

/// Returns whether a text has only the characters of a metadata prefix or a set (sections 2.6 and 3.4), besides `others`.
fn is_name(text: &str, others: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.!~*'()".contains(c) || others.contains(c);
    !text.is_empty() && text.chars().all(is_allowed)
}
