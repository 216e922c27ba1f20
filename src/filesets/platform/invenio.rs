//! Zenodo and other installations of InvenioRDM: `/records/ID`, `/record/ID`, `/doi/…`.
//!
//! The interface has had four forms of the list of files: `key` and `links.self`; `filename`, `filesize` and a bare MD5 (some
//! days of October 2023); a map by key (the native form); and a list of its own, `/files`. A work has a record for each
//! version, and an identifier of its own, which stands for the newest one.

pub(super) mod files;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use url::Url;

use self::files::Files;
use super::{
    Dataset, DatasetMetadata, PlatformHelper, PlatformSettings, below, domain, is_below, item_name, out_of_scope,
    segments,
};
use crate::{
    filesets::{
        IngestFailure, LandingPage, PlatformClient,
        client::named,
        json::{self, List, Text, TextOr},
    },
    format::fileset::status::IngestStatus,
};

/// Zenodo.
pub(super) struct Invenio;

pub(super) const NAME: &str = "zenodo";

/// Documents of the interface.
pub(super) const DOCUMENTS: &[json::Reads] = &[json::is::<Record>];

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
    /// DOI of the work.
    #[serde(default)]
    conceptdoi: Text,
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
    #[serde(default)]
    pids: TextOr<Pids>,
}

#[derive(Deserialize)]
struct Pids {
    #[serde(default)]
    doi: TextOr<Pid>,
}

#[derive(Deserialize)]
struct Pid {
    #[serde(default)]
    identifier: Text,
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

impl PlatformHelper for Invenio {
    fn name(&self) -> &'static str {
        NAME
    }

    fn matches(&self, page: &LandingPage, settings: &PlatformSettings) -> bool {
        let is_place = |base: &Url| record_id(&page.url, base).is_some() || is_other_place(&page.url, base);
        base(&page.url, settings).is_some_and(is_place)
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
            let record: Record = client.json(&below(base, ["api", "records", &id]), token.as_ref()).await?;
            record.check(&id, base)?;
            record.check_way(page, base)?;
            let has_no_files = record.files.as_ref().is_some_and(|files| files.is_disabled);
            let mut files = record.files.map(Files::list).transpose()?.unwrap_or_default();
            if files.is_empty() && !has_no_files {
                let list = client.json::<Files>(&below(base, ["api", "records", &id, "files"]), token.as_ref()).await;
                files = match list {
                    // The record exists, so it only has no files.
                    Err(failure) if failure.status == IngestStatus::PLATFORM_404 => files,
                    list => list?.list()?,
                };
            }
            let (doi, host) = (record.doi.clone(), domain(base));
            let (installation, record_id) = (base.clone(), id.clone());
            let manifests = client.convert(files.len(), move || {
                files.into_iter().map(|file| file.manifest(&installation, &record_id)).collect::<Result<_, _>>()
            });
            Ok(Dataset {
                platform_name: NAME,
                platform_domain: host.clone(),
                archiveorg_item_name: item_name(&host, &[&id]),
                former_item_name: None,
                told_bytes: None,
                base_url: Some(below(base, ["records", &id, "files"]).to_string()),
                bundle_url: Some(below(base, ["api", "records", &id, "files-archive"]).to_string()),
                files: manifests.await?,
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

/// Returns whether a page of an installation is none of a record, such as the one of a community.
fn is_other_place(url: &Url, base: &Url) -> bool {
    const PLACES: [&str; 5] = ["communities", "collections", "collection", "search", "deposit"];
    segments(url).get(segments(base).len()).is_some_and(|first| PLACES.contains(&first.as_str()))
}

/// Returns the identifier of the record of a page; `None` if it is no record, and an error for a part of one.
fn record_id(url: &Url, base: &Url) -> Option<Result<String, IngestFailure>> {
    let before = segments(base).len();
    let path = segments(url);
    let id = match path.get(before..)? {
        [kind, id, rest @ ..] if matches!(kind.as_str(), "record" | "records") => {
            match rest.first().map(String::as_str) {
                Some("files") => {
                    return Some(Err(out_of_scope("the page is a single file of a record; request the record")));
                }
                Some("latest") => {
                    return Some(Err(out_of_scope(
                        "the page is the newest version, whichever it is; request a version",
                    )));
                }
                _ => {}
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
            return Err(self.all_versions(id, base));
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

    /// Checks that no URL on the way to the record, and no DOI of the request, stands for all versions.
    fn check_way(&self, page: &LandingPage, base: &Url) -> Result<(), IngestFailure> {
        let Self { conceptrecid, parent, conceptdoi, .. } = self;
        let ids = [conceptrecid.as_ref(), parent.as_ref().map(|parent| &parent.id)].into_iter().flatten();
        let ids: Vec<&str> = ids.map(Identifier::text).filter(|id| !id.is_empty()).collect();
        let pid = match parent.as_ref().map(|parent| &parent.pids) {
            Some(TextOr::Object(Pids { doi: TextOr::Object(Pid { identifier }) })) => identifier.0.as_deref(),
            _ => None,
        };
        let dois: Vec<&str> = conceptdoi.0.as_deref().into_iter().chain(pid).filter(|doi| !doi.is_empty()).collect();
        let is_doi = |text: &str| dois.iter().any(|doi| text.eq_ignore_ascii_case(doi));
        for hop in &page.hops {
            let path = segments(hop);
            let start = path.iter().position(|part| part.starts_with("10."));
            let doi = start.map(|start| path[start..].join("/"));
            let is_newest =
                matches!(record_id(hop, base), Some(Err(_))) && path.last().is_some_and(|part| part == "latest");
            let id = match record_id(hop, base) {
                Some(Ok(id)) => Some(id),
                // The DOI of a record ends with its identifier.
                _ => doi.as_deref().and_then(|doi| Some(doi.rsplit_once('.')?.1.to_owned())),
            };
            if is_newest || id.is_some_and(|id| ids.contains(&&*id)) || doi.is_some_and(|doi| is_doi(&doi)) {
                return Err(self.all_versions(&named(hop), base));
            }
        }
        match page.requested_doi.as_deref().filter(|doi| is_doi(doi)) {
            Some(doi) => Err(self.all_versions(doi, base)),
            None => Ok(()),
        }
    }

    /// Fails for an identifier of a work.
    fn all_versions(&self, what: &str, base: &Url) -> IngestFailure {
        let newest = below(base, ["records", self.id.text()]);
        out_of_scope(format!("{what} stands for all versions; the newest one is {newest}"))
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
