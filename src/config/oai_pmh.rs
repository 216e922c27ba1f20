//! Settings of a source that is harvested over OAI-PMH.

use std::{ffi::OsString, sync::Arc};

use axum::http::HeaderValue;

use super::{
    download::Bytes,
    error::ConfigErrors,
    schedule::{MAX_DELETED_PERCENT, PageBytes, Percent, Place, ScheduleTable, place, schedule},
    transport::{Connection, TransportKind},
    value::Time,
};
use crate::{
    format::oai_pmh::CONTENT_CHANGE,
    harvest::{
        HarvestSettings, Timeouts,
        oai_pmh::{ListVerb, OaiPmhSettings, RecordKeeping},
    },
    model::Uri,
    settings::{Choice, Choose, List, SecretText, Setting, Table, Text, TextType, settings},
};

/// The transport `oai-pmh`: a repository that is harvested over OAI-PMH.
pub(super) static OAI_PMH: TransportKind = TransportKind {
    name: "oai-pmh",
    keys: &[OaiPmhTable::KEYS, ScheduleTable::KEYS],
    read: |table, environment| Ok(Connection::Harvest(read(table, environment)?)),
};

settings! {
    struct OaiPmhTable {
        /// Base URL of the repository, with its credentials if it needs any; given as for "amqp".
        url: SecretText,
        /// PEM file with the CA certificate for https. Default: the CA certificates of the operating system.
        ca: Option<Text>,
        /// E-mail address that the repository's administrators can write to; requests carry it as From.
        /// Default: none.
        contact: Option<MailAddress>,
        /// Former base URL of a repository that has moved, without credentials. Its records keep their URIs.
        /// Default: none.
        formerly: Option<FormerUrl>,
        /// Parameters in the query of `url` that are not published, besides key, token, password and the
        /// like. The others are part of the URIs of the records. Default: none.
        secret_parameters: List<Text> = Vec::new(),
        /// Metadata format. Default: "oai_dc".
        metadata_prefix: MetadataPrefix = "oai_dc".to_owned(),
        /// Sets to harvest, one after the other. Default: the whole repository.
        sets: List<SetSpec> = Vec::new(),
        /// Time before a run that the next run harvests again, because repositories show records later than
        /// their datestamps say. Default: "15m", or "1d" if the repository has dates without times.
        overlap: Option<Time>,
        /// Divides the first run into windows of datestamps, each twice as long as the one before. Default:
        /// none, unless the repository refuses a list or its tokens fail.
        window: Option<Time>,
        /// "records" (ListRecords), or "identifiers": ListIdentifiers, and GetRecord for each record, for
        /// repositories that fail on whole pages. Default: "records".
        list: Choice<ListVerb> = ListVerb::default(),
        /// Time between two runs that list all records, to find those that vanish without a report. Default:
        /// "30d", or "7d" if the repository does not report all deletions (deletedRecord).
        full_every: Option<Time>,
        /// Largest share of the records that such a run deletes, 0 to 100. If more are missing, it deletes
        /// none and says so. Up to 10 records are always plausible, unless the share is 0. Default: 10.
        max_deleted_percent: Percent = MAX_DELETED_PERCENT,
        /// "store" keeps each record in the file store (files), so that [oai_pmh] can disseminate it as the
        /// repository does. Default: "registry", which has the facts about the record alone.
        records: Choice<RecordKeeping> = RecordKeeping::default(),
        /// Maximum size of all records of this source in the file store, in bytes. Default: 107374182400
        /// (100 GiB).
        total_bytes: Bytes = 100 << 30,
        /// Maximum size of a page, compressed or decompressed, in bytes, 1048576 (1 MiB) to 1073741824 (1
        /// GiB). A record has at most limits.body_bytes.
        page_bytes: PageBytes = 64 * 1024 * 1024,
    }
}

impl Choose for ListVerb {
    const WHAT: &'static str = "list";
}

impl Choose for RecordKeeping {
    const WHAT: &'static str = "place of records";
}

/// Reads the settings from the table of a source.
fn read(table: &Setting, environment: &[(OsString, OsString)]) -> Result<HarvestSettings, ConfigErrors> {
    let given = OaiPmhTable::read_part(table)?;
    let Place { url, ca } = place(&given.url, given.ca, table, environment)?;
    if let Some(name) = url.expose().query_pairs().map(|(name, _)| name).find(|name| name == "verb") {
        let reason = format!("it has the parameter {name}; give the base URL, without the parameters of a request");
        return Err(table.at("url").invalid(reason).into());
    }
    if given.records == RecordKeeping::Store && given.metadata_prefix == CONTENT_CHANGE {
        let reason = "the records of another gateway have no other metadata than the registry";
        return Err(table.at("records").invalid(reason).into());
    }
    let kind = OaiPmhSettings {
        url,
        ca,
        contact: given.contact,
        formerly: given.formerly,
        secret_parameters: given.secret_parameters.iter().map(|name| name.to_ascii_lowercase()).collect(),
        metadata_prefix: given.metadata_prefix,
        sets: given.sets,
        overlap: given.overlap,
        window: given.window,
        list: given.list,
        full_every: given.full_every,
        max_deleted_percent: given.max_deleted_percent,
        records: given.records,
        total_bytes: given.total_bytes,
        page_bytes: given.page_bytes,
        timeouts: Timeouts::default(),
    };
    Ok(HarvestSettings { objects: Some(kind.objects()), schedule: schedule(table)?, kind: Arc::new(kind) })
}

/// The e-mail address of the operator.
struct MailAddress;

impl TextType for MailAddress {
    type Value = HeaderValue;

    fn parse(address: &str) -> Result<HeaderValue, String> {
        let is_address = address.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty());
        let value = HeaderValue::from_str(address).ok().filter(|_| is_address && !address.contains(' '));
        value.ok_or_else(|| "it is not an e-mail address; give one like \"library@example.org\"".to_owned())
    }
}

/// The base URL that a repository had.
struct FormerUrl;

impl TextType for FormerUrl {
    type Value = String;

    fn parse(url: &str) -> Result<String, String> {
        let reason = "it is not a URL; give the former base URL, without credentials";
        Uri::parse(url).map(|_| url.to_owned()).map_err(|_| reason.to_owned())
    }
}

/// A metadata prefix (section 3.4).
struct MetadataPrefix;

impl TextType for MetadataPrefix {
    type Value = String;

    fn parse(text: &str) -> Result<String, String> {
        let reason = "it is not a metadata prefix; give one of ListMetadataFormats, such as \"oai_dc\"";
        if is_name(text, "") { Ok(text.to_owned()) } else { Err(reason.to_owned()) }
    }
}

/// The name of a set (section 2.6).
struct SetSpec;

impl TextType for SetSpec {
    type Value = String;

    fn parse(text: &str) -> Result<String, String> {
        let reason = || format!("{text:?} is not a set; give the setSpec of ListSets, such as \"math:algebra\"");
        if is_name(text, ":") { Ok(text.to_owned()) } else { Err(reason()) }
    }
}

/// Returns whether a text has only the characters of a metadata prefix or a set (sections 2.6 and 3.4), besides `others`.
fn is_name(text: &str, others: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.!~*'()".contains(c) || others.contains(c);
    !text.is_empty() && text.chars().all(is_allowed)
}
