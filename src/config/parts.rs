//! Parts of the configuration, so that a command reads only what it needs.
//!
//! Secrets can be in files and variables that only the gateway has. A command that needs the address of the gateway, or the
//! folder of the journal, therefore resolves no other secret.

use std::{collections::BTreeMap, ffi::OsString, fs, path::Path};

use serde::{Deserialize, de::IgnoredAny};

use super::{
    Access, AllowList, Config, ConfigError, DEFAULTS, DIALECTS, DbusConfig, DeliveryTable, DialectKind, FilesConfig,
    Flags, HubConfig, IngestSettings, JournalConfig, Limits, LogConfig, MAX_SUBSCRIPTIONS, NodeConfig, ServerConfig,
    SourceConfig, SourceName, StoreLocation, access, download, files, filesets, journal, layer, setting::Setting,
    source, subscription,
};

/// The merged layers of a configuration. All names, and all tables without secrets, are checked; each method reads one more
/// part.
pub struct ConfigParts {
    root: Setting,
    tables: Tables,
    environment: Vec<(OsString, OsString)>,
}

/// All tables at the top level.
#[derive(Deserialize)]
struct Tables {
    server: ServerConfig,
    journal: JournalConfig,
    node: NodeConfig,
    limits: Limits,
    log: LogConfig,
    delivery: DeliveryTable,
    hub: HubConfig,
    dbus: DbusConfig,
    #[serde(rename = "files")]
    _files: files::FilesTable,
    #[serde(rename = "filesets")]
    _filesets: filesets::FilesetsTable,
    #[serde(rename = "access")]
    _access: AccessTable,
    /// Each source is read separately, because its settings depend on its dialect.
    #[serde(rename = "sources")]
    _sources: IgnoredAny,
    /// Each subscription is read separately, because its settings depend on its delivery.
    #[serde(rename = "subscriptions")]
    _subscriptions: IgnoredAny,
}

/// `[access]`. The tokens are read separately, because their scopes are checked against the sources.
#[derive(Deserialize)]
struct AccessTable {
    #[serde(default, rename = "tokens")]
    _tokens: IgnoredAny,
}

impl ConfigParts {
    /// Merges the defaults, `file`, the environment and `flags`.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or a setting of a table without secrets is unknown, missing or wrong.
    pub fn load(file: Option<&Path>, flags: &Flags) -> Result<Self, ConfigError> {
        Self::load_with(file, std::env::vars_os(), flags)
    }

    /// Merges the layers with the given environment.
    pub(super) fn load_with(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        flags: &Flags,
    ) -> Result<Self, ConfigError> {
        let defaults = layer::toml(None, DEFAULTS)?;
        let environment: Vec<_> = environment.into_iter().collect();
        let variables = layer::variables(environment.iter().cloned(), &defaults)?;
        let mut layers = config::Config::builder().add_source(defaults);
        if let Some(path) = file {
            let text =
                fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
            layers = layers.add_source(layer::toml(Some(&path.display().to_string()), &text)?);
        }
        layers = layers.add_source(variables);
        for flag in layer::flags(flags)? {
            layers = layers.add_source(flag);
        }
        let merged = layers.build().map_err(|error| ConfigError::Merge(error.to_string()))?;
        let root = Setting::root(merged.cache);
        let tables = root.clone().read()?;
        Ok(Self { root, tables, environment })
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

    /// Reads the location of the journal, with the password of a database.
    ///
    /// # Errors
    /// Fails if the location is wrong, or the password cannot be read.
    pub fn store(&self) -> Result<StoreLocation, ConfigError> {
        journal::store(&self.root.entry("journal")?, &self.tables.journal, &self.environment)
    }

    /// Reads `[files]`, with the keys of a bucket.
    ///
    /// # Errors
    /// Fails if a setting is wrong, or a key cannot be read.
    pub fn files(&self) -> Result<FilesConfig, ConfigError> {
        let table = self.root.entry("files")?;
        files::read(table.clone().read()?, &table, &self.environment)
    }

    /// Reads `[filesets]`, with the tokens of platforms.
    ///
    /// # Errors
    /// Fails if a setting is wrong, or a token cannot be read.
    pub fn filesets(&self) -> Result<IngestSettings, ConfigError> {
        let table = self.root.entry("filesets")?;
        filesets::read(table.clone().read()?, &table, &self.environment)
    }

    /// Returns the names of the enabled sources, sorted.
    ///
    /// # Errors
    /// Fails if `enabled` of a source is not a boolean.
    pub fn source_names(&self) -> Result<Vec<String>, ConfigError> {
        let mut names = Vec::new();
        for (name, setting) in self.root.entry("sources")?.entries()? {
            if setting.get("enabled")?.unwrap_or(true) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Reads the source of this name, with its secrets; `None` if there is none, or it is not enabled.
    ///
    /// # Errors
    /// Fails if a setting of the source is wrong, or one of its secrets cannot be read.
    pub fn source(&self, name: &SourceName) -> Result<Option<SourceConfig>, ConfigError> {
        let table = self.root.entry("sources")?.entry(name.as_str())?;
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
    pub fn all(self) -> Result<Config, ConfigError> {
        self.all_with(DIALECTS)
    }

    /// Reads all parts, with the given dialects.
    pub(super) fn all_with(self, dialects: &[&'static DialectKind]) -> Result<Config, ConfigError> {
        let (store, files, filesets) = (self.store()?, self.files()?, self.filesets()?);
        let Self { root, tables, environment } = self;
        let Tables { server, journal, node, limits, log, delivery, hub, dbus, .. } = tables;
        limits.refuse_contradictions(&root.entry("limits")?)?;
        let mut sources = BTreeMap::new();
        let mut names = Vec::new();
        for (name, setting) in root.entry("sources")?.entries()? {
            if let Some((name, source)) = source::read(&name, &setting, &environment, dialects)? {
                source::refuse_shared_name(&source, &setting, &sources)?;
                sources.insert(name, source);
            }
            names.push(name);
        }
        dbus.check_sources(&root.entry("dbus")?, &names)?;
        let source_table = root.entry("sources")?;
        sources.iter().try_for_each(|(name, source)| {
            download::check_sources(name, source, &names, &source_table)?;
            source::check_announcements(source, &names, &source_table)
        })?;
        let subscription_table = root.entry("subscriptions")?;
        let subscriptions = subscription_table.entries()?;
        if subscriptions.len() > MAX_SUBSCRIPTIONS {
            return Err(subscription_table.invalid(format!(
                "it defines {} subscriptions, and {MAX_SUBSCRIPTIONS} are possible; remove some, or let several \
                 receivers share one",
                subscriptions.len()
            )));
        }
        let subscriptions = subscriptions.into_iter();
        let subscriptions =
            subscriptions.map(|(name, setting)| subscription::read(&name, &setting, &environment, &names));
        let subscriptions = subscriptions.collect::<Result<_, _>>()?;
        let signature =
            |(name, source): (&SourceName, &SourceConfig)| Some((name.to_string(), source.signature.clone()?));
        let signatures = sources.iter().filter_map(signature).collect();
        let access = Access::new(access::tokens(&root.entry("access")?, &names)?, signatures);
        access::refuse_open(&server, &access)?;
        Ok(Config {
            server,
            journal,
            store,
            node,
            limits,
            log,
            delivery,
            hub,
            dbus,
            files,
            filesets,
            access,
            sources,
            subscriptions,
        })
    }
}
