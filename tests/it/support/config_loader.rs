//! Configuration loader for tests, with stubs in place of the real dialects.

use std::{collections::BTreeMap, fs};

use serde::Deserialize;
use serde_json::Value;
use tidings::{
    config::{Config, Flags},
    format::{
        Dialect, DialectKind, DuplicateDetection, InvalidSettings, Limits, Message, ParsedMessage, Rejection,
        RepositoryApi, RepositoryKind, parse_settings,
    },
};

/// Dialects of the default configuration, as stubs: the tests do not depend on the settings of the real
/// dialects.
pub(crate) static DIALECTS: [&DialectKind; 14] = [
    &kind("fedora-apim", Some(RepositoryApi::Fedora3)),
    &kind("fedora-events", Some(RepositoryApi::Ldp)),
    &DialectKind { repository: Some(ISLANDORA), ..kind("islandora", None) },
    &kind("sfm", None),
    &kind("hoarder", None),
    &kind("oai-pmh", None),
    &kind("feed", None),
    &kind("folder", None),
    &kind("fileset-request", None),
    &kind("fileset-result", None),
    &kind("download", None),
    &kind("gateway", None),
    &kind("mapped", None),
    &kind("content-change", None),
];

/// Repository whose messages are about other things than its own.
const ISLANDORA: RepositoryKind =
    RepositoryKind { api: RepositoryApi::Ldp, not_crawlable: Some("its objects are somewhere else") };

const fn kind(name: &'static str, api: Option<RepositoryApi>) -> DialectKind {
    let repository = match api {
        Some(api) => Some(RepositoryKind { api, not_crawlable: None }),
        None => None,
    };
    DialectKind {
        name,
        about: "",
        accepts: &[],
        headers: &[],
        duplicates: DuplicateDetection::ByBody,
        redact: None,
        repository,
        sample_settings: &["{}"],
        build,
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct StubSettings {
    #[serde(rename = "base_url")]
    _base_url: Option<String>,
    #[serde(rename = "files_url")]
    _files_url: Option<String>,
    #[serde(rename = "files_path")]
    _files_path: Option<String>,
    #[serde(rename = "templates")]
    _templates: Option<BTreeMap<String, String>>,
    #[serde(rename = "preset")]
    _preset: Option<String>,
    #[serde(rename = "depth")]
    _depth: Option<u8>,
    #[serde(rename = "names")]
    _names: Vec<String>,
}

struct StubDialect;

impl Dialect for StubDialect {
    fn read(&self, _: &Message<'_>) -> Result<ParsedMessage, Rejection> {
        Ok(ParsedMessage::NoChange("it is a test"))
    }
}

fn build(value: Value, _: Limits) -> Result<Box<dyn Dialect>, InvalidSettings> {
    parse_settings::<StubSettings>(value).map(|_| Box::new(StubDialect) as Box<dyn Dialect>)
}

/// Loads a configuration with this file content and this environment. Error messages name the file `my.toml`, and one error
/// alone does not begin with its line, of which `several_errors` has a test.
pub(crate) fn load(file: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.toml");
    fs::write(&path, file).unwrap();
    let environment = environment.iter().map(|(name, value)| (name.into(), value.into()));
    Config::load_with(Some(&path), environment, &Flags::default(), &DIALECTS).map_err(|errors| {
        let text = match errors.all() {
            [error] => error.to_string(),
            _ => errors.to_string(),
        };
        text.replace(path.to_str().unwrap(), "my.toml")
    })
}
