//! `[files]`: the store of downloaded files.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use url::Url;

use super::{
    certificate::ca_certificate,
    error::ConfigErrors,
    secret,
    value::{Folder, is_plain},
};
use crate::{
    features::missing,
    files::{FileLinks, FileStoreLocation, S3Name, S3Settings},
    settings::{Choice, Choose, SecretText, Setting, SettingErrors, Text, settings},
    web::Secret,
};

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

settings! {
    /// `[files]` as it is written.
    pub(super) struct FilesTable {
        /// Folder of the files.
        folder: Option<Folder>,
        /// Links to the copies in the content of items.
        links: Choice<FileLinks> = FileLinks::default(),
        /// A bucket instead of the folder.
        s3: Option<S3Table>,
    }
}

settings! {
    /// `[files.s3]`
    pub(super) struct S3Table {
        /// URL of the server, to whose path the name of the bucket is added.
        endpoint: Text,
        /// The bucket, which must exist.
        bucket: Text,
        /// Folder in the bucket. Default: none.
        prefix: Text = String::new(),
        /// Region of the bucket. Default: "us-east-1", which most servers other than Amazon's ignore.
        region: Text = "us-east-1".to_owned(),
        /// Identifier of the key, and
        access_key: SecretText,
        /// The key: "...", { file = "PATH" } or { env = "NAME" }.
        secret_key: SecretText,
        /// PEM file with the CA certificate for https. Default: the CA certificates of the operating system.
        ca: Option<Text>,
    }
}

impl Choose for FileLinks {
    const WHAT: &'static str = "links";

    fn unknown(name: &str, known: &[&str]) -> String {
        format!("there are no links {name:?}; there are {}", known.join(", "))
    }
}

/// Reads the store of files.
pub(super) fn read(
    files: &FilesTable,
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<FilesConfig, ConfigErrors> {
    let FilesTable { folder, links, s3 } = files;
    if folder.is_some() && s3.is_some() {
        return Err(table.at("folder").invalid("the files are in a bucket (files.s3); leave the folder out").into());
    }
    let s3 = location_in_bucket(s3.as_ref(), table, environment)?;
    Ok(FilesConfig { folder: folder.clone(), s3, links: *links })
}

/// Reads the table `s3` of a table.
pub(super) fn location_in_bucket(
    s3: Option<&S3Table>,
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<Option<S3Settings>, ConfigErrors> {
    if let (Some(_), Some(reason)) = (s3, missing("s3")) {
        return Err(table.at("s3").invalid(reason).into());
    }
    Ok(s3.map(|s3| bucket(s3, &table.at("s3"), environment)).transpose()?)
}

pub(super) fn bucket(
    s3: &S3Table,
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<S3Settings, SettingErrors> {
    let S3Table { endpoint, bucket, prefix, region, access_key, secret_key, ca } = s3;
    let endpoint = Url::parse(endpoint).ok().filter(is_plain).ok_or_else(|| {
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
        return Err(table.at("prefix").invalid(format!("it has more than {MAX_FOLDERS} folders")).into());
    }
    let key = |key| Ok::<_, SettingErrors>(Secret::new(secret::text(key, environment)?));
    Ok(S3Settings {
        ca: ca_certificate(ca.clone(), endpoint.scheme() == "https", "https", table)?,
        endpoint,
        region: name("region", region)?,
        bucket: name("bucket", bucket)?,
        prefix: folders.into_iter().map(|folder| name("prefix", folder)).collect::<Result<_, _>>()?,
        access_key: key(access_key)?,
        secret_key: key(secret_key)?,
    })
}
