//! Zenodo and other installations of InvenioRDM: `/records/ID`, `/record/ID`, `/doi/…`.
//!
//! The interface has had four forms of the list of files: `key` and `links.self`; `filename`, `filesize` and a bare MD5 (some
//! days of October 2023); a map by key (the native form); and a list of its own, `/files`. A work has a record for each
//! version, and an identifier of its own, which stands for the newest one.

use std::fmt;

use futures_util::future::BoxFuture;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use url::Url;

use super::{
    Dataset, DatasetMetadata, PlatformFile, PlatformHelper, PlatformSettings, below, domain, is_below, item_name,
    out_of_scope, segments, set_digest,
};
use crate::{
    format::fileset::message::ManifestFile,
    harvest::fileset::{
        IngestFailure, LandingPage, PlatformClient,
        json::{self, List, Text, TextOr},
    },
};

/// Zenodo.
pub(super) struct Invenio;

pub(super) const NAME: &str = "zenodo";

/// Documents of the interface.
pub(super) const DOCUMENTS: &[json::Reads] = &[json::is::<Record>, json::is::<Files>];

/// A record in any of the forms.
#[derive(Deserialize)]
struct Record {
    id: Identifier,
    #[serde(default)]
    conceptrecid: Option<Identifier>,
    #[serde(default)]
    parent: Option<Parent>,
    #[serde(default)]
    doi: Option<String>,
    metadata: Metadata,
    #[serde(default)]
    access: Option<Access>,
    #[serde(default)]
    files: Option<Files>,
}

/// An identifier, as a number in the old form and as text in the native one.
#[derive(Default, Deserialize)]
#[serde(transparent)]
struct Identifier(Text);

impl Identifier {
    fn text(&self) -> &str {
        self.0.0.as_deref().unwrap_or_default()
    }
}

#[derive(Deserialize)]
struct Parent {
    id: Identifier,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    creators: List<TextOr<Creator>>,
    #[serde(default)]
    publication_date: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    license: TextOr<License>,
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    access_right: Option<String>,
    #[serde(default)]
    embargo_date: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Creator {
    name: Text,
    /// In the native form.
    person_or_org: TextOr<Person>,
}

#[derive(Deserialize)]
struct Person {
    #[serde(default)]
    name: Text,
}

#[derive(Deserialize)]
struct License {
    #[serde(default)]
    id: Text,
}

/// Access in the native form.
#[derive(Deserialize)]
struct Access {
    #[serde(default)]
    files: Option<String>,
    #[serde(default)]
    record: Option<String>,
    #[serde(default)]
    embargo: Option<Embargo>,
}

#[derive(Deserialize)]
struct Embargo {
    #[serde(default)]
    until: Option<String>,
}

/// Files in any of the forms: a list, or an object whose member `entries` is a list or an object by name.
#[derive(Default)]
struct Files {
    list: List<File>,
    /// Number of files that the object says.
    count: Option<usize>,
}

impl<'de> Deserialize<'de> for Files {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FilesVisitor;
        impl<'de> Visitor<'de> for FilesVisitor {
            type Value = Files;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of files, or an object with one")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, files: A) -> Result<Files, A::Error> {
                Ok(Files { list: List::of_seq(files)?, count: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Files, A::Error> {
                let mut files = Files::default();
                while let Some(member) = members.next_key::<Text>()? {
                    match member.0.as_deref() {
                        Some("entries") => files.list = members.next_value::<Option<Entries>>()?.unwrap_or_default().0,
                        Some("count") => files.count = members.next_value()?,
                        _ => {
                            members.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(files)
            }
        }
        deserializer.deserialize_any(FilesVisitor)
    }
}

/// Files as a list, or by their names.
#[derive(Default)]
struct Entries(List<File>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of files, or an object with files")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, files: A) -> Result<Entries, A::Error> {
                List::of_seq(files).map(Entries)
            }

            fn visit_map<A: MapAccess<'de>>(self, files: A) -> Result<Entries, A::Error> {
                List::of_values(files).map(Entries)
            }
        }
        deserializer.deserialize_any(EntriesVisitor)
    }
}

#[derive(Deserialize)]
struct File {
    #[serde(alias = "filename")]
    key: String,
    #[serde(default, alias = "filesize")]
    size: Option<u64>,
    #[serde(default)]
    checksum: Option<String>,
    #[serde(default)]
    mimetype: Option<String>,
    #[serde(default)]
    links: Links,
}

#[derive(Default, Deserialize)]
struct Links {
    #[serde(rename = "self", default)]
    own: Option<String>,
    #[serde(default)]
    content: Option<String>,
}

impl Files {
    /// Returns the files.
    ///
    /// # Errors
    /// Fails if the list has another number of files than it says.
    fn list(self) -> Result<List<File>, IngestFailure> {
        let listed = self.list.count;
        match self.count.filter(|count| *count != listed) {
            Some(count) => Err(IngestFailure::bad_answer(format!("the record has {count} files, and lists {listed}"))),
            None => Ok(self.list),
        }
    }
}

impl PlatformHelper for Invenio {
    fn name(&self) -> &'static str {
        NAME
    }

    fn matches(&self, page: &LandingPage, settings: &PlatformSettings) -> bool {
        base(&page.url, settings).is_some_and(|base| record_id(&page.url, base).is_some())
    }

    fn dataset<'a>(
        &'a self,
        page: &'a LandingPage,
        settings: &'a PlatformSettings,
        client: &'a PlatformClient,
    ) -> BoxFuture<'a, Result<Dataset, IngestFailure>> {
        Box::pin(async move {
            let base = base(&page.url, settings).ok_or_else(|| out_of_scope("the page is no record"))?;
            let token = settings.token_for(NAME, base);
            let id = record_id(&page.url, base).unwrap_or(Err(out_of_scope("the page is no record")))?;
            let record: Record = client.json(&below(base, ["api", "records", &id]), token).await?;
            record.check(&id, base)?;
            let mut files = record.files.map(Files::list).transpose()?.unwrap_or_default();
            if files.is_empty() {
                let list: Files = client.json(&below(base, ["api", "records", &id, "files"]), token).await?;
                files = list.list()?;
            }
            let (doi, host) = (record.doi.clone(), domain(base));
            let (installation, record_id) = (base.clone(), id.clone());
            let manifests = client.convert(files.len(), move || {
                files.into_iter().map(|file| file.manifest(&installation, &record_id)).collect()
            });
            Ok(Dataset {
                platform_name: NAME,
                platform_domain: host.clone(),
                archiveorg_item_name: item_name(&[&host, &id]),
                base_url: Some(below(base, ["records", &id, "files"]).to_string()),
                bundle_url: Some(below(base, ["api", "records", &id, "files-archive"]).to_string()),
                files: manifests.await,
                metadata: record.metadata.bibliography(doi),
                platform_id: id,
            })
        })
    }
}

/// Returns the installation of a page.
fn base<'s>(url: &Url, settings: &'s PlatformSettings) -> Option<&'s Url> {
    settings.invenio.iter().find(|base| is_below(url, base))
}

/// Returns the identifier of the record of a page; `None` if it is no record, and an error for a part of one.
fn record_id(url: &Url, base: &Url) -> Option<Result<String, IngestFailure>> {
    let before = segments(base).len();
    let path = segments(url);
    let id = match path.get(before..)? {
        [kind, id, rest @ ..] if matches!(kind.as_str(), "record" | "records") => {
            if rest.first().is_some_and(|part| part == "files") {
                return Some(Err(out_of_scope("the page is a single file of a record; request the record")));
            }
            id.as_str()
        }
        [kind, _, name] if kind == "doi" => name.rsplit('.').next()?,
        _ => return None,
    };
    let is_id = !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    is_id.then(|| Ok(id.to_owned()))
}

impl Record {
    /// Checks that the record is the version that was requested, and public.
    fn check(&self, id: &str, base: &Url) -> Result<(), IngestFailure> {
        let own = self.id.text();
        let work = self.conceptrecid.as_ref().or(self.parent.as_ref().map(|parent| &parent.id));
        if own != id || work.is_some_and(|work| work.text() == id) {
            let newest = below(base, ["records", own]);
            return Err(out_of_scope(format!("{id} stands for all versions; the newest one is {newest}")));
        }
        let Metadata { access_right, embargo_date, .. } = &self.metadata;
        if let Some(right) = access_right.as_deref().filter(|right| *right != "open") {
            return Err(IngestFailure::restricted(format!("access to the files is {right}"), embargo_date.as_deref()));
        }
        let access = self.access.as_ref();
        let is_restricted = access.is_some_and(|access| {
            [&access.record, &access.files].into_iter().flatten().any(|access| access == "restricted")
        });
        if is_restricted {
            let until = access.and_then(|access| access.embargo.as_ref()?.until.as_deref());
            return Err(IngestFailure::restricted("access to the files is restricted", until));
        }
        Ok(())
    }
}

impl Metadata {
    fn bibliography(self, doi: Option<String>) -> DatasetMetadata {
        let person = |person: TextOr<Person>| person.object()?.name.0;
        let name = |creator: Creator| creator.name.0.or_else(|| person(creator.person_or_org));
        DatasetMetadata {
            creators: self.creators.into_iter().filter_map(TextOr::object).filter_map(name).collect(),
            license: self.license.text(|license| license.id.0),
            title: self.title,
            date: self.publication_date,
            description: self.description,
            version: self.version,
            doi,
        }
    }
}

impl File {
    fn manifest(self, base: &Url, id: &str) -> PlatformFile {
        let Self { key, size, checksum, mimetype, links } = self;
        // `links.self` was the content until 2023, and is a description now.
        let is_content = |link: &String| link.ends_with("/content") || link.contains("/api/files/");
        let url = links.content.or(links.own.filter(is_content)).unwrap_or_else(|| {
            let mut url = below(base, ["api", "records", id, "files"]);
            if let Ok(mut path) = url.path_segments_mut() {
                path.push(&key).push("content");
            }
            url.to_string()
        });
        let mut file = ManifestFile { path: key, size, mimetype, platform_url: Some(url), ..ManifestFile::default() };
        if let Some(checksum) = checksum {
            let (algorithm, value) = checksum.split_once(':').unwrap_or(("md5", &checksum));
            set_digest(&mut file, algorithm, value);
        }
        PlatformFile::new(file)
    }
}
