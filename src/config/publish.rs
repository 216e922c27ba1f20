//! `[publish]`: the copy of the faces as files.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

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
    settings::{Flag, List, Seconds, Setting, Text, settings},
    web::Access,
};

settings! {
    /// `[publish]`
    pub(super) struct PublishTable {
        /// Folder of the copy. Without it, and without a bucket, nothing is published.
        folder: Option<Folder>,
        /// A bucket instead of the folder.
        s3: Option<S3Table>,
        /// URL under which the copy is served.
        url: Option<PublicUrl>,
        /// Whether the sealed segments are in the copy, too. Only with a view of everything.
        segments: Flag = false,
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

/// Name of the place of the segments.
pub(super) const SEGMENTS: &str = "the segments";

/// Refuses a place that is, contains or lies in one of these places of the gateway, each with its name: a web server would show
/// them to everybody.
pub(super) fn refuse_shared_place(
    publish: Option<&PublicationSettings>,
    places: &[(&str, Option<FileStoreLocation>)],
    table: &Setting,
) -> Result<(), ConfigErrors> {
    let Some(publish) = publish else { return Ok(()) };
    if publish.segments && places.iter().any(|(name, place)| *name == SEGMENTS && place.is_none()) {
        let reason = "the gateway seals no segments; set segments.folder or segments.s3, or leave it out";
        return Err(table.at("segments").invalid(reason).into());
    }
    for (name, place) in places {
        if place.as_ref().is_some_and(|place| overlap(&publish.location, place)) {
            let key = if matches!(publish.location, FileStoreLocation::Folder(_)) { "folder" } else { "s3" };
            let reason = format!(
                "{name} would be published, or lie in the copy; give the copy a folder or a prefix apart from it"
            );
            return Err(table.at(key).invalid(reason).into());
        }
    }
    Ok(())
}

/// Returns whether a place is the other one, or one of the two is in the other.
fn overlap(one: &FileStoreLocation, other: &FileStoreLocation) -> bool {
    match (one, other) {
        (FileStoreLocation::Folder(one), FileStoreLocation::Folder(other)) => {
            let (one, other) = (resolved(one), resolved(other));
            one.starts_with(&other) || other.starts_with(&one)
        }
        (FileStoreLocation::S3(one), FileStoreLocation::S3(other)) => {
            let is_same_bucket = one.endpoint == other.endpoint && one.bucket == other.bucket;
            is_same_bucket && (one.prefix.starts_with(&other.prefix) || other.prefix.starts_with(&one.prefix))
        }
        _ => false,
    }
}

/// Follows the links of a path, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let existing = path.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    let Some((ancestor, real)) = existing else { return path.to_owned() };
    path.strip_prefix(ancestor).map_or_else(|_| path.to_owned(), |rest| real.join(rest))
}

/// Reads the settings of the copy; `None` if there is none. `sources` contains the names of all configured sources.
pub(super) fn read(
    publish: PublishTable,
    table: &Setting,
    environment: &[(OsString, OsString)],
    access: &Access,
    known: &[String],
) -> Result<Option<PublicationSettings>, ConfigErrors> {
    let PublishTable { folder, s3, url, segments, interval, view } = publish;
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
    if segments && view.is_some() {
        let reason = "the copy shows only a part of the journal, and segments have everything; leave it out, or set public = \
                      false in [publish.view], without sources and objects";
        return Err(table.at("segments").invalid(reason).into());
    }
    Ok(Some(PublicationSettings { location, url: url.as_str().to_owned(), view, segments, interval }))
}

#[cfg(test)]
mod tests {
    use super::{FileStoreLocation, overlap};

    #[test]
    fn folders_overlap_if_one_is_in_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let place = |path: &str| FileStoreLocation::Folder(folder.path().join(path));
        std::fs::create_dir(folder.path().join("data")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("data"), folder.path().join("link")).unwrap();
        for (path, expected) in [
            ("data", true),
            ("data/copy/feed", true),
            ("link/copy", true),
            ("", true),
            ("database", false),
            ("copy", false),
        ] {
            assert_eq!(overlap(&place(path), &place("data")), expected, "{path}");
        }
    }
}
