//! `[oai_pmh]`: the registry as a repository with OAI-PMH.

use utoipa::openapi::Schema;

use crate::{
    config::own_feed::Label,
    format::Limits,
    model::{SourceName, Uri, UriPrefix},
    settings::{
        Any, Choice, Choose, Content, List, Setting, SettingErrors, Text, TextType, ValueType, Whole, settings,
    },
    view::oai_pmh::{ConfiguredSet, DeletedRecords, IdentifierKind, OaiPmhSettings},
};

settings! {
    /// `[oai_pmh]`: the registry as a repository with OAI-PMH 2.0 at `/oai`.
    #[derive(Clone, Debug)]
    pub struct OwnOaiPmhConfig {
        /// Name of the repository, up to 200 characters.
        pub repository_name: Label,
        /// E-mail address of the administrator, which each response to Identify contains. Without it there is no repository.
        pub admin_email: Option<EmailAddress>,
        /// Records on a page, 1 to 1000.
        pub page: Whole<usize, 1, 1000>,
        /// Support for deleted records: "persistent" or "transient".
        pub deleted: Choice<DeletedRecords>,
        /// Requests that are served at the same time, 1 to 1000.
        pub requests: Whole<usize, 1, 1000>,
        /// Identifiers of records that harvests keep: "uri" or "original".
        pub identifiers: Choice<IdentifierKind>,
        /// `[oai_pmh.sets.NAME]`: filters of objects that are sets. Default: none.
        pub sets: ConfiguredSets,
    }
}

impl OwnOaiPmhConfig {
    /// Returns the settings of the repository; `None` if there is none. `limits` are those on the form of records.
    #[must_use]
    pub fn settings(&self, limits: Limits) -> Option<OaiPmhSettings> {
        Some(OaiPmhSettings {
            repository_name: self.repository_name.clone(),
            admin_email: self.admin_email.clone()?,
            page: self.page,
            deleted: self.deleted,
            requests: self.requests,
            identifiers: self.identifiers,
            limits,
            sets: self.sets.clone().into(),
        })
    }
}

impl Choose for IdentifierKind {
    const WHAT: &'static str = "kind of identifiers";
}

impl Choose for DeletedRecords {
    const WHAT: &'static str = "support for deleted records";
}

settings! {
    /// One table `[oai_pmh.sets.NAME]`.
    struct SetTable {
        /// Name for people, up to 200 characters. Default: the name of the table.
        title: Option<Label>,
        /// Sources that were the first to report the objects. Default: all.
        sources: List<Text<SourceName>> = Vec::new(),
        /// Beginnings of the URIs of the objects. Default: all.
        objects: List<Text<UriPrefix>> = Vec::new(),
        /// Parents of the objects. Default: all.
        parents: List<Text<Uri>> = Vec::new(),
        /// Types of the objects. Default: all.
        types: List<Text<Uri>> = Vec::new(),
    }
}

/// The tables `[oai_pmh.sets.NAME]`.
pub struct ConfiguredSets;

/// Maximum number of sets.
const MAX_SETS: usize = 100;

/// Maximum length of the name of a set, in bytes.
const MAX_NAME: usize = 100;

impl ValueType for ConfiguredSets {
    type Value = Vec<ConfiguredSet>;
    const OPTIONAL: bool = true;
    const CONTENT: Content = Content::Undeclared;

    fn read(tables: &Setting) -> Result<Vec<ConfiguredSet>, SettingErrors> {
        let entries = tables.entries()?;
        if entries.len() > MAX_SETS {
            return Err(tables
                .invalid(format!("there are {} sets, and {MAX_SETS} are possible", entries.len()))
                .into());
        }
        entries.into_iter().map(|(name, table)| set(name, &table)).collect()
    }

    fn absent() -> Option<Vec<ConfiguredSet>> {
        Some(Vec::new())
    }

    fn schema() -> Schema {
        Any::schema()
    }
}

/// Reads a set. Its name becomes a part of a setSpec.
fn set(name: String, table: &Setting) -> Result<ConfiguredSet, SettingErrors> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_allowed) {
        let reason = format!("the name of a set has up to {MAX_NAME} letters, digits and the characters - _ .");
        return Err(table.invalid(reason).into());
    }
    let SetTable { title, sources, objects, parents, types } = table.read::<SetTable>()?;
    if [sources.len(), objects.len(), parents.len(), types.len()].iter().all(|values| *values == 0) {
        let reason = "it selects all objects; give sources, objects, parents or types";
        return Err(table.invalid(reason).into());
    }
    Ok(ConfiguredSet { title: title.unwrap_or_else(|| name.clone()), name, sources, objects, parents, types })
}

/// E-mail address in the form that the schema of the protocol requires.
pub struct EmailAddress;

impl TextType for EmailAddress {
    type Value = String;

    fn parse(text: &str) -> Result<String, String> {
        let text = text.trim();
        let is_address = text.split_once('@').is_some_and(|(user, host)| {
            let is_label = |label: &str| !label.is_empty() && !label.contains('@');
            !user.is_empty() && host.contains('.') && host.split('.').all(is_label)
        });
        if !is_address || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("it is not an e-mail address as in admin@repository.example.org".to_owned());
        }
        Ok(text.to_owned())
    }
}
