//! `[filesets]`: limits of the archiving of datasets, addresses of the platforms, and their access tokens.

use std::{ffi::OsString, sync::Arc, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny},
};
use url::Url;

use super::{
    archives::{self, ItemsTable, WaybackTable},
    error::ConfigError,
    harvest::Time,
    secret,
    setting::{Setting, bounded},
    transport::{Connection, TransportKey, TransportKind},
};
use crate::{
    harvest::{
        HarvestSettings, Hours, Mode, Schedule,
        fileset::{
            ClientLimits, FilesetHarvestSettings, IngestSettings, PlatformToken,
            platform::{DatasetLimits, PlatformSettings, TokenPlace},
            strategy::Thresholds,
        },
    },
    model::SourceName,
    web::Secret,
};

/// Maximum number of bytes in a setting: 1 PiB.
const MAX_BYTES: u64 = 1 << 50;

/// `[filesets]` as it is written.
#[derive(Deserialize)]
pub(super) struct FilesetsTable {
    #[serde(deserialize_with = "bounded::<1, MAX_BYTES, _, _>")]
    max_total_size: u64,
    #[serde(deserialize_with = "bounded::<1, 10_000, _, _>")]
    max_file_count: usize,
    #[serde(deserialize_with = "bounded::<1, MAX_BYTES, _, _>")]
    max_file_size: u64,
    #[serde(deserialize_with = "bounded::<1, MAX_BYTES, _, _>")]
    max_stored_size: u64,
    #[serde(deserialize_with = "bounded::<1, 720, _, _>")]
    max_hours: u64,
    #[serde(deserialize_with = "bounded::<1, 64, _, _>")]
    concurrency: usize,
    #[serde(deserialize_with = "bounded::<0, 10_000, _, _>")]
    web_file_count: usize,
    #[serde(deserialize_with = "bounded::<0, MAX_BYTES, _, _>")]
    web_total_size: u64,
    #[serde(deserialize_with = "bounded::<0, MAX_BYTES, _, _>")]
    web_file_size: u64,
    #[serde(default)]
    bundle_file_count: Option<FileCount>,
    #[serde(default)]
    contact: Option<Contact>,
    wayback: WaybackTable,
    items: ItemsTable,
    platforms: PlatformsTable,
    /// The tokens are read separately, because they may be in a file or a variable.
    #[serde(default)]
    tokens: Option<IgnoredAny>,
}

/// Mail address or URL of the operator, which a header carries in a comment.
struct Contact(Arc<str>);

impl<'de> Deserialize<'de> for Contact {
    fn deserialize<D: Deserializer<'de>>(setting: D) -> Result<Self, D::Error> {
        let text = String::deserialize(setting)?;
        let is_contact = text.contains('@') || text.starts_with("https://") || text.starts_with("http://");
        let is_plain = text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'(' | b')' | b'\\'));
        if is_contact && is_plain && text.len() <= 200 {
            return Ok(Self(text.into()));
        }
        Err(D::Error::custom("it is neither an e-mail address nor a URL; give one like \"library@example.org\""))
    }
}

/// A number of files.
#[derive(Deserialize)]
struct FileCount(#[serde(deserialize_with = "bounded::<0, 10_000, _, _>")] usize);

/// `[filesets.platforms]`
#[derive(Deserialize)]
struct PlatformsTable {
    #[serde(deserialize_with = "bases")]
    zenodo: Vec<Url>,
    figshare_hosts: Vec<String>,
    #[serde(deserialize_with = "base")]
    figshare_api: Url,
    #[serde(deserialize_with = "base")]
    figshare_bundles: Url,
    #[serde(deserialize_with = "base")]
    archiveorg: Url,
    #[serde(deserialize_with = "base")]
    dryad: Url,
    #[serde(deserialize_with = "base")]
    osf: Url,
    #[serde(deserialize_with = "base")]
    osf_api: Url,
    #[serde(deserialize_with = "base")]
    datacite: Url,
}

impl PlatformsTable {
    fn settings(self, tokens: Vec<(TokenPlace, PlatformToken)>) -> PlatformSettings {
        let Self { zenodo, figshare_hosts, figshare_api, figshare_bundles, archiveorg, dryad, osf, osf_api, datacite } =
            self;
        PlatformSettings {
            invenio: zenodo,
            figshare_hosts,
            figshare_api,
            figshare_bundles,
            archiveorg,
            dryad,
            osf,
            osf_api,
            datacite,
            tokens,
        }
    }
}

/// Waits and numbers of jobs.
const JOBS: usize = 4;
const FIRST_RETRY: Duration = Duration::from_secs(60);

/// Time between two looks for due jobs, besides those at each request and each due time.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// Number of jobs at a time, 1 to 64.
#[derive(Deserialize)]
struct JobCount(#[serde(deserialize_with = "bounded::<1, 64, _, _>")] usize);

/// Time in seconds, a second to a day.
#[derive(Deserialize)]
struct RetrySeconds(#[serde(deserialize_with = "bounded::<1, 86_400, _, _>")] u64);

/// The transport `fileset`: the gateway archives the datasets that other sources request.
pub(super) static FILESET: TransportKind = TransportKind {
    name: "fileset",
    keys: &[
        TransportKey::of::<Vec<SourceName>>("of"),
        TransportKey::of::<JobCount>("jobs"),
        TransportKey::of::<Time>("watch"),
        TransportKey::of::<RetrySeconds>("first_retry_seconds"),
    ],
    read: |table, _| Ok(Connection::Harvest(read_harvest(table)?)),
};

/// Reads the settings of a harvest from the table of a source.
fn read_harvest(table: &Setting) -> Result<HarvestSettings, ConfigError> {
    let of = table.get::<Vec<SourceName>>("of")?.filter(|of| !of.is_empty()).ok_or_else(|| table.at("of").missing())?;
    let settings = FilesetHarvestSettings {
        of,
        jobs: table.get("jobs")?.map_or(JOBS, |JobCount(jobs)| jobs),
        watch: table.get("watch")?.map(|Time(time)| time),
        first_retry: table
            .get("first_retry_seconds")?
            .map_or(FIRST_RETRY, |RetrySeconds(seconds)| Duration::from_secs(seconds)),
    };
    let schedule = Schedule { mode: Mode::Periodic, every: EVERY, jitter: EVERY / 10, hours: Hours::default() };
    Ok(HarvestSettings { objects: None, schedule, kind: Arc::new(settings) })
}

/// Reads the settings.
pub(super) fn read(
    filesets: FilesetsTable,
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<IngestSettings, ConfigError> {
    let mut tokens = Vec::new();
    let listed = filesets.tokens.map(|_| table.entry("tokens")?.entries()).transpose()?;
    for (place, setting) in listed.unwrap_or_default() {
        let place = TokenPlace::parse(&place).map_err(|error| setting.invalid(error.to_string()))?;
        let token = PlatformToken::new(&Secret::new(secret::text(&setting, environment)?));
        let token = token.ok_or_else(|| setting.invalid("it has characters that a token cannot have"))?;
        tokens.push((place, token));
    }
    let platforms = filesets.platforms.settings(tokens);
    Ok(IngestSettings {
        limits: DatasetLimits { max_total_size: filesets.max_total_size, max_file_count: filesets.max_file_count },
        max_file_bytes: filesets.max_file_size,
        max_stored_bytes: filesets.max_stored_size,
        max_time: Duration::from_secs(filesets.max_hours * 60 * 60),
        concurrency: filesets.concurrency,
        thresholds: Thresholds {
            web_files: filesets.web_file_count,
            web_total_bytes: filesets.web_total_size,
            web_file_bytes: filesets.web_file_size,
            bundle_above_files: filesets.bundle_file_count.map(|FileCount(count)| count),
        },
        client: ClientLimits::default(),
        contact: filesets.contact.map(|Contact(contact)| contact),
        owner: "tidings-ingest".into(),
        wayback: archives::wayback(filesets.wayback, &table.entry("wayback")?, environment)?,
        items: archives::items(filesets.items, &table.entry("items")?, environment)?,
        files_url: None,
        platforms,
    })
}

pub(super) fn base<'de, D: Deserializer<'de>>(setting: D) -> Result<Url, D::Error> {
    base_of(&String::deserialize(setting)?).map_err(D::Error::custom)
}

fn bases<'de, D: Deserializer<'de>>(setting: D) -> Result<Vec<Url>, D::Error> {
    let texts = Vec::<String>::deserialize(setting)?;
    texts.iter().map(|text| base_of(text).map_err(D::Error::custom)).collect()
}

/// Reads a base URL. It ends with a slash, so that paths are joined below it. The error does not repeat the text, because
/// it may contain a password by mistake.
fn base_of(text: &str) -> Result<Url, &'static str> {
    let text = format!("{}/", text.trim_end_matches('/'));
    let is_plain = |url: &Url| {
        matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    };
    let plain = Url::parse(&text).ok().filter(is_plain);
    plain.ok_or("it is not the base URL of a platform; write it as in https://zenodo.org, without user and query")
}
