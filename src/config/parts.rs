//! The configuration, and its parts, so that a command reads only what it needs.
//!
//! Secrets can be in files and variables that only the gateway has. A command that needs the address of the gateway, or the
//! folder of the journal, therefore resolves no other secret.

use std::{collections::BTreeMap, ffi::OsString, fs, path::Path, sync::Arc};

use super::{
    access::{self, AccessTable, TokenTable},
    dbus::DbusConfig,
    error::{ConfigError, ConfigErrors},
    files::{self, FilesConfig, FilesTable},
    filesets::{self, FilesetsTable},
    fingerprint::Fingerprint,
    hub::HubConfig,
    journal::{self, JournalConfig},
    layer::{DEFAULTS, Flags, Layers},
    limits::Limits,
    log::LogConfig,
    node::NodeConfig,
    own_feed::OwnFeedConfig,
    own_iiif_discovery::OwnIiifDiscoveryConfig,
    own_ldes::OwnLdesConfig,
    own_oai_pmh::OwnOaiPmhConfig,
    own_resourcesync::OwnResourceSyncConfig,
    page::PageConfig,
    publish::{self, PublishConfig, PublishTable, PublishedDocuments},
    segments::{self, SegmentsConfig, SegmentsTable},
    server::{DeliveryTable, ServerConfig},
    source::{self, SourceConfig},
    source_names, subscription,
};
use crate::{
    delivery::{Definition, MAX_SUBSCRIPTIONS},
    files::FileStoreLocation,
    filesets::IngestSettings,
    format::{DIALECTS, DialectKind},
    http_client::AllowList,
    journal::store::StoreLocation,
    model::{SourceName, SubscriptionName},
    settings::{Any, Flag, RedactedSetting, Setting, Shape, Table, settings},
    web::Access,
};

/// Configuration of a gateway.
#[derive(Clone, Debug)]
pub struct Config {
    /// `[server]`
    pub server: ServerConfig,
    /// `[journal]`
    pub journal: JournalConfig,
    /// `--new-journal`: whether a new journal is begun in a folder whose journal is missing.
    pub begin_new_journal: bool,
    /// `journal.store`, or else the folder `journal.data`.
    pub store: StoreLocation,
    /// `[node]`
    pub node: NodeConfig,
    /// `[limits]`
    pub limits: Limits,
    /// `[log]`
    pub log: LogConfig,
    /// `[delivery]`
    pub delivery: DeliveryTable,
    /// `[page]`
    pub page: PageConfig,
    /// `[feed]`
    pub feed: OwnFeedConfig,
    /// `[oai_pmh]`
    pub oai_pmh: OwnOaiPmhConfig,
    /// `[iiif_discovery]`
    pub iiif_discovery: OwnIiifDiscoveryConfig,
    /// `[ldes]`
    pub ldes: OwnLdesConfig,
    /// `[resourcesync]`
    pub resourcesync: OwnResourceSyncConfig,
    /// `[hub]`
    pub hub: HubConfig,
    /// `[dbus]`
    pub dbus: DbusConfig,
    /// `[files]`
    pub files: FilesConfig,
    /// `[segments]`
    pub segments: SegmentsConfig,
    /// `[filesets]`
    pub filesets: IngestSettings,
    /// `[publish]`; `None` if nothing is published.
    pub publish: Option<PublishConfig>,
    /// `[access]` and the signature keys of the sources.
    pub access: Access,
    /// `[sources.NAME]`; only enabled sources.
    pub sources: BTreeMap<SourceName, SourceConfig>,
    /// `[subscriptions.NAME]`
    pub subscriptions: BTreeMap<SubscriptionName, Arc<Definition>>,
}

impl Config {
    /// Loads the configuration from the defaults, `file`, the environment and `flags`.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or a setting is unknown, missing or wrong.
    pub fn load(file: Option<&Path>, flags: &Flags) -> Result<Self, ConfigErrors> {
        Self::load_with(file, std::env::vars_os(), flags, DIALECTS)
    }

    /// Loads the configuration with the given environment and dialects.
    ///
    /// # Errors
    /// In the cases of [`Config::load`].
    pub fn load_with(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        flags: &Flags,
        dialects: &[&'static DialectKind],
    ) -> Result<Self, ConfigErrors> {
        ConfigParts::load_with(file, environment, flags)?.all_with(dialects)
    }
}

/// The merged layers of a configuration. All names, and all tables without secrets, are checked; each method reads one more
/// part.
pub struct ConfigParts {
    root: Setting,
    tables: Tables,
    environment: Vec<(OsString, OsString)>,
}

settings! {
    /// All tables at the top level.
    struct Tables {
        /// `[server]`
        server: ServerConfig,
        /// `[journal]`
        journal: JournalConfig,
        /// `[node]`
        node: NodeConfig,
        /// `[limits]`
        limits: Limits,
        /// `[log]`
        log: LogConfig,
        /// `[delivery]`
        delivery: DeliveryTable,
        /// `[page]`
        page: PageConfig,
        /// `[feed]`
        feed: OwnFeedConfig,
        /// `[oai_pmh]`
        oai_pmh: OwnOaiPmhConfig,
        /// `[iiif_discovery]`
        iiif_discovery: OwnIiifDiscoveryConfig,
        /// `[ldes]`
        ldes: OwnLdesConfig,
        /// `[resourcesync]`
        resourcesync: OwnResourceSyncConfig,
        /// `[hub]`
        hub: HubConfig,
        /// `[dbus]`
        dbus: DbusConfig,
        /// `[files]`
        files: FilesTable,
        /// `[segments]`
        segments: SegmentsTable,
        /// `[filesets]`
        filesets: FilesetsTable,
        /// `[publish]`
        publish: PublishTable,
        /// `[access]`
        access: AccessTable,
        /// Sources by their names. Each is read separately, because its settings depend on its transport and dialect.
        sources: Any,
        /// Subscriptions by their names. Each is read separately, because its settings depend on its delivery.
        subscriptions: Any,
    }
}

impl ConfigParts {
    /// Merges the defaults, `file`, `environment` and `flags`.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or a setting of a table without secrets is unknown, missing or wrong.
    pub fn load_with(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        flags: &Flags,
    ) -> Result<Self, ConfigErrors> {
        let environment: Vec<_> = environment.into_iter().collect();
        let mut layers = Layers::default();
        layers.merge_toml(None, DEFAULTS)?;
        let variables = layers.variables();
        if let Some(path) = file {
            let text =
                fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
            layers.merge_toml(Some(&path.display().to_string()), &text)?;
        }
        layers.merge_environment(&environment, &variables)?;
        layers.merge_flags(flags)?;
        let root = layers.into_setting();
        let tables = root.read::<Tables>().map_err(|errors| {
            let mut errors = ConfigErrors::from(errors);
            let sources = root.entry("sources").and_then(|sources| sources.entries()).unwrap_or_default();
            for (name, source) in sources {
                errors.keep(source::check_shape(&name, &source));
            }
            errors
        })?;
        Ok(Self { root, tables, environment })
    }

    /// Returns the fingerprint of all tables.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.root.json())
    }

    /// Returns `[server]`.
    #[must_use]
    pub fn server(&self) -> &ServerConfig {
        &self.tables.server
    }

    /// Returns `[journal]`, without its location.
    #[must_use]
    pub fn journal(&self) -> &JournalConfig {
        &self.tables.journal
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.tables.limits
    }

    /// Returns `delivery.allow`.
    #[must_use]
    pub fn allowed_targets(&self) -> &AllowList {
        &self.tables.delivery.allow
    }

    /// Returns all values of the merged layers with their origins, and without secrets. No secret is resolved.
    #[must_use]
    pub fn redacted(&self) -> Vec<RedactedSetting> {
        self.root.redacted(&[Tables::KEYS], &shape)
    }

    /// Reads the location of the journal, with the password of a database.
    ///
    /// # Errors
    /// Fails if the location is wrong, or the password cannot be read.
    pub fn store(&self) -> Result<StoreLocation, ConfigErrors> {
        journal::store(&self.root.at("journal"), &self.tables.journal, &self.environment)
    }

    /// Reads `[files]`, with the keys of a bucket.
    ///
    /// # Errors
    /// Fails if a setting is wrong, or a key cannot be read.
    pub fn files(&self) -> Result<FilesConfig, ConfigErrors> {
        files::read(&self.tables.files, &self.root.at("files"), &self.environment)
    }

    /// Reads `[segments]`, with the keys of a bucket.
    ///
    /// # Errors
    /// Fails if a setting is wrong, or a key cannot be read.
    pub fn segments(&self) -> Result<SegmentsConfig, ConfigErrors> {
        segments::read(&self.tables.segments, &self.root.at("segments"), &self.environment)
    }

    /// Reads `[filesets]`, with the tokens of platforms.
    ///
    /// # Errors
    /// Fails if a setting is wrong, or a token cannot be read.
    pub fn filesets(&self) -> Result<IngestSettings, ConfigErrors> {
        filesets::read(&self.tables.filesets, &self.root.at("filesets"), &self.environment)
    }

    /// Returns the names of the enabled sources, sorted.
    ///
    /// # Errors
    /// Fails if `enabled` of a source is not a boolean.
    pub fn source_names(&self) -> Result<Vec<String>, ConfigErrors> {
        let mut names = Vec::new();
        for (name, setting) in self.tables.sources.entries()? {
            if setting.get::<Flag>("enabled")?.unwrap_or(true) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Reads the source of this name, with its secrets; `None` if there is none, or it is not enabled.
    ///
    /// # Errors
    /// Fails if a setting of the source is wrong, or one of its secrets cannot be read.
    pub fn source(&self, name: &SourceName) -> Result<Option<SourceConfig>, ConfigErrors> {
        let table = self.tables.sources.entry(name.as_str())?;
        if !table.is_given() {
            return Ok(None);
        }
        let source = source::read(name.as_str(), &table, &self.environment, DIALECTS)?;
        Ok(source.map(|(_, source)| source))
    }

    /// Reads all parts.
    ///
    /// # Errors
    /// Fails if a setting is unknown, missing or wrong, or a secret cannot be read.
    pub fn all(self) -> Result<Config, ConfigErrors> {
        self.all_with(DIALECTS)
    }

    /// Reads all parts, with the given dialects.
    pub(super) fn all_with(self, dialects: &[&'static DialectKind]) -> Result<Config, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let (store, files, filesets) =
            (errors.keep(self.store()), errors.keep(self.files()), errors.keep(self.filesets()));
        let segments = errors.keep(self.segments());
        let Self { root, tables, environment } = self;
        let Tables { server, journal, node, limits, log, delivery, page, feed, oai_pmh, .. } = tables;
        let Tables { iiif_discovery, ldes, resourcesync, hub, dbus, publish, access, .. } = tables;
        errors.keep(limits.refuse_contradictions(&root.at("limits")));
        let mut sources = BTreeMap::new();
        let mut names = Vec::new();
        for (name, setting) in tables.sources.entries()? {
            if let Some((name, source)) = errors.keep(source::read(&name, &setting, &environment, dialects)).flatten() {
                errors.keep(source::refuse_shared_name(&source, &setting, &sources));
                sources.insert(name, source);
            }
            names.push(name);
        }
        errors.keep(dbus.check(&root.at("dbus"), &names));
        for source in &sources {
            errors.keep(source_names::check_source(source, &names, &tables.sources));
        }
        let entries = tables.subscriptions.entries()?;
        if entries.len() > MAX_SUBSCRIPTIONS {
            let reason = format!(
                "it defines {} subscriptions, and {MAX_SUBSCRIPTIONS} are possible; remove some, or let several \
                 receivers share one",
                entries.len()
            );
            errors.keep(Err::<(), _>(tables.subscriptions.invalid(reason)));
        }
        let subscriptions = entries.iter();
        let subscriptions = subscriptions
            .filter_map(|(name, setting)| errors.keep(subscription::read(name, setting, &environment, &names)))
            .collect();
        let signature =
            |(name, source): (&SourceName, &SourceConfig)| Some((name.to_string(), source.signature.clone()?));
        let signatures = sources.iter().filter_map(signature).collect();
        let AccessTable { tokens: token_tables, public } = access;
        let tokens = token_tables.map(|tables| errors.keep(access::tokens(&tables, &names)).unwrap_or_default());
        let mut access = Access::new(tokens.unwrap_or_default(), signatures);
        let public = public
            .and_then(|public| errors.keep(access::public_access(public, &access, &root.at("access.public"), &names)));
        if let Some(public) = public {
            access = access.with_public(public);
        }
        let publish = errors.keep(publish::read(publish, &root.at("publish"), &environment, &access, &names));
        let (Some(store), Some(files), Some(filesets), Some(segments)) = (store, files, filesets, segments) else {
            return Err(errors);
        };
        errors.or(())?;
        segments.refuse_shared_place(&files, &store, &journal.data, &root.at("segments"))?;
        let publish = publish.flatten();
        let segments_place = segments.location(&store, &journal.data);
        let disabled = [
            (PublishedDocuments::Segments, "the gateway seals no segments (segments.folder)", segments_place.is_none()),
            (PublishedDocuments::Iiif, "iiif_discovery.enabled is false", !iiif_discovery.enabled),
            (PublishedDocuments::Ldes, "ldes.enabled is false", !ldes.enabled),
        ];
        let absent = disabled.into_iter().filter(|(.., is_absent)| *is_absent);
        let absent: Vec<_> = absent.map(|(documents, setting, _)| (documents, setting)).collect();
        publish::refuse_absent(publish.as_ref(), &absent, &root.at("publish"))?;
        let places = [
            ("the journal", Some(FileStoreLocation::Folder(journal.data.clone()))),
            ("the downloaded files", Some(files.location(&journal.data))),
            ("the segments", segments_place),
        ];
        publish::refuse_shared_place(publish.as_ref(), &places, &root.at("publish"))?;
        access::refuse_open(&server, &access)?;
        Ok(Config {
            server,
            journal,
            begin_new_journal: false,
            store,
            node,
            limits,
            log,
            delivery,
            page,
            feed,
            oai_pmh,
            iiif_discovery,
            ldes,
            resourcesync,
            hub,
            dbus,
            files,
            segments,
            filesets,
            publish,
            access,
            sources,
            subscriptions,
        })
    }
}

/// Returns what a value contains whose declaration does not say it: sources, subscriptions and tokens, by their names.
fn shape(setting: &Setting) -> Shape {
    match setting.path()[..] {
        // The settings of a dialect have no secrets.
        ["sources", _, "settings"] => Shape::Plain,
        ["sources", _] => Shape::Table(source::declared_keys(setting)),
        ["subscriptions", _] => Shape::Table(subscription::declared_keys(setting)),
        ["access", "tokens", _] => Shape::Table(vec![TokenTable::KEYS]),
        _ => Shape::Secret,
    }
}
