//! `[publish]`: the copy of the faces as files.

use std::{ffi::OsString, sync::Arc};

use super::{
    access::read_view,
    error::ConfigErrors,
    files::{S3Table, bucket},
    server::PublicUrl,
    value::Folder,
};
use crate::{
    features::missing,
    files::FileStoreLocation,
    model::{ReaderView, SourceName, UriPrefix},
    publish::PublicationSettings,
    settings::{Choice, Choose, Flag, List, Seconds, Setting, Text, settings},
    web::Access,
};

named_values! {
    /// Documents of the gateway that a copy can have.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum PublishedDocuments {
        /// The Atom feed with its archive.
        Feed = "feed",
        /// The sealed segments, which have the whole journal.
        Segments = "segments",
        /// The IIIF Change Discovery API.
        Iiif = "iiif",
        /// The Linked Data Event Stream.
        Ldes = "ldes",
        /// The source with ResourceSync.
        ResourceSync = "resourcesync",
    }
}

impl Choose for PublishedDocuments {
    const WHAT: &'static str = "kind of documents";
}

/// `[publish]`: the published copy.
#[derive(Clone, Debug)]
pub struct PublishConfig {
    /// Place, URL and view of the copy.
    pub settings: PublicationSettings,
    /// Documents of the copy.
    pub documents: Vec<PublishedDocuments>,
}

settings! {
    /// `[publish]`
    pub(super) struct PublishTable {
        /// Folder of the copy. Without it, and without a bucket, nothing is published.
        folder: Option<Folder>,
        /// A bucket instead of the folder.
        s3: Option<S3Table>,
        /// URL under which the copy is served.
        url: Option<PublicUrl>,
        /// Documents of the copy: "feed", "segments", "iiif", "ldes" and "resourcesync".
        documents: List<Choice<PublishedDocuments>> = vec![PublishedDocuments::Feed],
        /// Time between two runs, 5 seconds to a day.
        interval as "interval_seconds": Seconds<5, 86_400>,
        /// `[publish.view]`: what the readers of the copy may see. Default: that of `[access.public]`, or else what the public
        /// sees.
        view: Option<PublishViewTable>,
    }
}

settings! {
    /// `[publish.view]`
    struct PublishViewTable {
        /// Sources of the changes. Default: all.
        sources: List<Text<SourceName>> = Vec::new(),
        /// Beginnings of the URIs of the objects. Default: all.
        objects: List<Text<UriPrefix>> = Vec::new(),
        /// Whether the readers see only what the public sees, and no names of users. Default: true.
        public: Flag = true,
    }
}

/// Refuses documents that the gateway does not have, each with the setting that enables them.
pub(super) fn refuse_absent(
    publish: Option<&PublishConfig>,
    absent: &[(PublishedDocuments, &str)],
    table: &Setting,
) -> Result<(), ConfigErrors> {
    let Some(publish) = publish else { return Ok(()) };
    match absent.iter().find(|(documents, _)| publish.documents.contains(documents)) {
        None => Ok(()),
        Some((documents, setting)) => {
            let reason =
                format!("{setting}, so there are no such documents; change that, or leave {:?} out", documents.name());
            Err(table.at("documents").invalid(reason).into())
        }
    }
}

/// Refuses a place that is, contains or lies in one of these places of the gateway, each with its name: a web server would show
/// them to everybody.
pub(super) fn refuse_shared_place(
    publish: Option<&PublishConfig>,
    places: &[(&str, Option<FileStoreLocation>)],
    table: &Setting,
) -> Result<(), ConfigErrors> {
    let Some(publish) = publish else { return Ok(()) };
    for (name, place) in places {
        if place.as_ref().is_some_and(|place| publish.settings.location.overlaps(place)) {
            let key = if matches!(publish.settings.location, FileStoreLocation::Folder(_)) { "folder" } else { "s3" };
            let reason = format!(
                "{name} would be published, or lie in the copy; give the copy a folder or a prefix apart from it"
            );
            return Err(table.at(key).invalid(reason).into());
        }
    }
    Ok(())
}

/// Reads the settings of the copy; `None` if there is none. `sources` contains the names of all configured sources.
pub(super) fn read(
    publish: PublishTable,
    table: &Setting,
    environment: &[(OsString, OsString)],
    access: &Access,
    known: &[String],
) -> Result<Option<PublishConfig>, ConfigErrors> {
    let PublishTable { folder, s3, url, documents, interval, view } = publish;
    let location = match (folder, s3) {
        (None, None) => {
            let reason = "there is no folder and no bucket to publish to; give publish.folder or publish.s3";
            let given = [("url", url.is_some()), ("view", view.is_some())].into_iter().find(|(_, is_given)| *is_given);
            return given.map_or(Ok(None), |(key, _)| Err(table.at(key).invalid(reason).into()));
        }
        (Some(_), Some(_)) => {
            return Err(table
                .at("folder")
                .invalid("the copy is in a bucket (publish.s3); leave the folder out")
                .into());
        }
        (Some(folder), None) => FileStoreLocation::Folder(folder),
        (None, Some(s3)) => {
            if let Some(reason) = missing("s3") {
                return Err(table.at("s3").invalid(reason).into());
            }
            FileStoreLocation::S3(bucket(&s3, &table.at("s3"), environment)?)
        }
    };
    let Some(url) = url else {
        let reason =
            "it is missing; give the URL under which the copy is served, because its documents link to each other";
        return Err(table.at("url").invalid(reason).into());
    };
    let view = match view {
        Some(PublishViewTable { sources, objects, public }) => {
            read_view(sources, objects, public, &table.at("view"), known)?
        }
        None => match access.public() {
            Some(public) => (*public.view).clone(),
            None => ReaderView { public: true, ..ReaderView::default() },
        },
    };
    let view = Some(view).filter(|view| *view != ReaderView::default()).map(Arc::new);
    if let Some(view) = &view {
        refuse_narrow_view(view, &documents, &table.at("documents"))?;
    }
    let settings = PublicationSettings { location, url: url.as_str().to_owned(), view, interval };
    Ok(Some(PublishConfig { settings, documents }))
}

/// Refuses documents that cannot show this part of the journal alone.
fn refuse_narrow_view(
    view: &ReaderView,
    documents: &[PublishedDocuments],
    setting: &Setting,
) -> Result<(), ConfigErrors> {
    let reason = if documents.contains(&PublishedDocuments::Segments) {
        "the copy shows only a part of the journal, and segments have everything; leave \"segments\" out, or set public = \
         false in [publish.view], without sources and objects"
    } else if documents.contains(&PublishedDocuments::ResourceSync) && !view.sources.is_empty() {
        "the copy shows only some sources, and the lists of resources combine those of all; leave \"resourcesync\" out, or \
         the sources of [publish.view]"
    } else {
        return Ok(());
    };
    Err(setting.invalid(reason).into())
}
