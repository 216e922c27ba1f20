//! `[filesets]`: limits of the archiving of datasets, addresses of the platforms, and their access tokens.

use std::{ffi::OsString, sync::Arc, time::Duration};

use super::{
    archives::{self, ItemsTable, WaybackTable},
    error::ConfigErrors,
    secret,
    value::PlatformBase,
};
use crate::{
    filesets::{
        ClientLimits, IngestSettings, PlatformToken,
        platform::{DatasetLimits, PlatformSettings, Thresholds, TokenPlace},
    },
    settings::{Any, List, Setting, Text, TextType, Whole, settings},
    web::Secret,
};

/// Maximum number of bytes in a setting: 1 PiB.
const MAX_BYTES: u64 = 1 << 50;

settings! {
    /// `[filesets]` as it is written.
    #[derive(Clone)]
    pub(super) struct FilesetsTable {
        /// Maximum size of all files of a dataset, in bytes.
        max_total_size: Whole<u64, 1, MAX_BYTES>,
        /// Maximum number of files of a dataset, 1 to 10 000.
        max_file_count: Whole<usize, 1, 10_000>,
        /// Maximum size of a file, in bytes.
        max_file_size: Whole<u64, 1, MAX_BYTES>,
        /// Maximum size of all files that one source stores, in bytes.
        max_stored_size: Whole<u64, 1, MAX_BYTES>,
        /// Hours until an ingest ends, 1 to 720.
        max_hours: Whole<u64, 1, 720>,
        /// Number of requests at a time to a host, 1 to 64.
        concurrency: Whole<usize, 1, 64>,
        /// Number of files above which a dataset becomes an item instead of captures.
        web_file_count: Whole<usize, 0, 10_000>,
        /// Size of all files above which a dataset becomes an item, in bytes.
        web_total_size: Whole<u64, 0, MAX_BYTES>,
        /// Size of a file above which a dataset becomes an item, in bytes.
        web_file_size: Whole<u64, 0, MAX_BYTES>,
        /// Number of files above which the bundle of the platform is downloaded, 0 to 10 000.
        bundle_file_count: Option<Whole<usize, 0, 10_000>>,
        /// E-mail address or URL of the operator.
        contact: Option<Contact>,
        /// Web archive for small datasets.
        wayback: WaybackTable,
        /// Upload of large datasets.
        items: ItemsTable,
        /// Base URLs of the platforms.
        platforms: PlatformsTable,
        /// Access tokens by platform or host.
        tokens: Option<Any>,
    }
}

/// Mail address or URL of the operator, which a header carries in a comment.
struct Contact;

impl TextType for Contact {
    type Value = Arc<str>;

    fn parse(text: &str) -> Result<Arc<str>, String> {
        let is_contact = text.contains('@') || text.starts_with("https://") || text.starts_with("http://");
        let is_plain = text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'(' | b')' | b'\\'));
        if is_contact && is_plain && text.len() <= 200 {
            return Ok(text.into());
        }
        Err("it is neither an e-mail address nor a URL; give one like \"library@example.org\"".to_owned())
    }
}

settings! {
    /// `[filesets.platforms]`
    #[derive(Clone)]
    struct PlatformsTable {
        /// Installations of InvenioRDM.
        zenodo: List<PlatformBase>,
        /// Hosts of landing pages of Figshare, where `*` stands for the first part.
        figshare_hosts: List<Text>,
        /// Interface of Figshare.
        figshare_api: PlatformBase,
        /// Bundles of Figshare.
        figshare_bundles: PlatformBase,
        /// Archive.org.
        archiveorg: PlatformBase,
        /// Dryad.
        dryad: PlatformBase,
        /// OSF.
        osf: PlatformBase,
        /// Interface of OSF.
        osf_api: PlatformBase,
        /// DataCite.
        datacite: PlatformBase,
    }
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

/// Reads the settings.
pub(super) fn read(
    filesets: &FilesetsTable,
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<IngestSettings, ConfigErrors> {
    let mut tokens = Vec::new();
    let listed = filesets.tokens.as_ref().map(Setting::entries).transpose()?;
    for (place, setting) in listed.unwrap_or_default() {
        let place = TokenPlace::parse(&place).map_err(|error| setting.invalid(error.to_string()))?;
        let token = PlatformToken::new(&Secret::new(secret::text(&setting, environment)?));
        let token = token.ok_or_else(|| setting.invalid("it has characters that a token cannot have"))?;
        tokens.push((place, token));
    }
    let platforms = filesets.platforms.clone().settings(tokens);
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
            bundle_above_files: filesets.bundle_file_count,
        },
        client: ClientLimits::default(),
        contact: filesets.contact.clone(),
        owner: "tidings-ingest".into(),
        wayback: archives::wayback(&filesets.wayback, &table.at("wayback"), environment)?,
        items: archives::items(&filesets.items, &table.at("items"), environment)?,
        files_url: None,
        platforms,
    })
}
