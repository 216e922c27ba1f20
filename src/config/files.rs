//! `[files]`: the store of downloaded files.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny},
};
use url::Url;

use super::{amqp::ca_certificate, amqp::required, error::ConfigError, folder, secret, setting::Setting};
use crate::{
    files::{FileLinks, FileStoreLocation, S3Name, S3Settings},
    web::Secret,
};

/// Default region, which servers other than Amazon's ignore.
const REGION: &str = "us-east-1";

/// Names of folders in a bucket that are reserved for nothing else.
const MAX_FOLDERS: usize = 8;

/// `[files]`: location of the store of downloaded files.
#[derive(Clone, Debug)]
pub struct FilesConfig {
    /// Folder of the store, as an absolute path; `None` for the folder `files` in that of the journal.
    folder: Option<PathBuf>,
    s3: Option<S3Settings>,
    /// Links to the copies in the content of items.
    pub links: FileLinks,
}

impl FilesConfig {
    /// Returns the location of the store. `data` is the folder of the journal.
    #[must_use]
    pub fn location(&self, data: &Path) -> FileStoreLocation {
        match &self.s3 {
            Some(settings) => FileStoreLocation::S3(settings.clone()),
            None => FileStoreLocation::Folder(self.folder.clone().unwrap_or_else(|| data.join("files"))),
        }
    }
}

/// `[files]` as it is written.
#[derive(Default, Deserialize)]
pub(super) struct FilesTable {
    #[serde(default, deserialize_with = "some_folder")]
    folder: Option<PathBuf>,
    #[serde(default, deserialize_with = "links")]
    links: FileLinks,
    #[serde(default)]
    s3: Option<S3Table>,
}

/// `[files.s3]`. The keys are read separately, because they may be in a file or a variable.
#[derive(Deserialize)]
struct S3Table {
    endpoint: String,
    bucket: String,
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    region: Option<String>,
    #[serde(default, rename = "access_key")]
    _access_key: IgnoredAny,
    #[serde(default, rename = "secret_key")]
    _secret_key: IgnoredAny,
    #[serde(default)]
    ca: Option<String>,
}

/// Reads the store of files.
pub(super) fn read(
    files: FilesTable,
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<FilesConfig, ConfigError> {
    let FilesTable { folder, links, s3 } = files;
    if folder.is_some() && s3.is_some() {
        return Err(table.entry("folder")?.invalid("the files are in a bucket (files.s3); leave the folder out"));
    }
    let s3 = s3.map(|s3| bucket(s3, &table.entry("s3")?, environment)).transpose()?;
    Ok(FilesConfig { folder, s3, links })
}

fn bucket(s3: S3Table, table: &Setting, environment: &[(OsString, OsString)]) -> Result<S3Settings, ConfigError> {
    let S3Table { endpoint, bucket, prefix, region, ca, .. } = s3;
    let is_plain = |url: &Url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    };
    let endpoint = Url::parse(&endpoint).ok().filter(is_plain).ok_or_else(|| {
        table
            .at("endpoint")
            .invalid("it is not the URL of a server; write it as in \"https://s3.example.org\", without keys and query")
    })?;
    let name = |key: &str, text: &str| {
        S3Name::parse(text).ok_or_else(|| {
            table.at(key).invalid(format!("{text:?} is not a name; use letters, digits, -, _ and ., at most 63 in all"))
        })
    };
    let folders: Vec<_> = prefix.split('/').filter(|folder| !folder.is_empty()).collect();
    if folders.len() > MAX_FOLDERS {
        return Err(table.at("prefix").invalid(format!("it has more than {MAX_FOLDERS} folders")));
    }
    let key = |key| Ok::<_, ConfigError>(Secret::new(secret::text(&required(table, key)?, environment)?));
    Ok(S3Settings {
        ca: ca_certificate(ca, endpoint.scheme() == "https", "https", table)?,
        endpoint,
        region: name("region", region.as_deref().unwrap_or(REGION))?,
        bucket: name("bucket", &bucket)?,
        prefix: folders.into_iter().map(|folder| name("prefix", folder)).collect::<Result<_, _>>()?,
        access_key: key("access_key")?,
        secret_key: key("secret_key")?,
    })
}

fn some_folder<'de, D: Deserializer<'de>>(setting: D) -> Result<Option<PathBuf>, D::Error> {
    folder(setting).map(Some)
}

fn links<'de, D: Deserializer<'de>>(setting: D) -> Result<FileLinks, D::Error> {
    let name = String::deserialize(setting)?;
    let known = FileLinks::ALL.into_iter().find(|links| links.name() == name);
    known.ok_or_else(|| D::Error::custom(format!("there are no links {name:?}; there are gateway, store")))
}
