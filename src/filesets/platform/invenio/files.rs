//! The list of the files of a record, in all its forms.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use url::Url;

use super::super::{PlatformFile, below, partial_list, set_digest};
use crate::{
    filesets::{
        IngestFailure,
        json::{self, List, Number, Text, TextOr},
    },
    format::fileset::message::ManifestFile,
};

/// Documents of lists of files.
pub(in super::super) const DOCUMENTS: &[json::Reads] = &[json::is::<Files>];

/// Files in any of the forms: a list, or an object whose member `entries` is a list or an object by name.
#[derive(Default)]
pub(super) struct Files {
    list: List<File>,
    /// Number of files that the object says.
    count: Option<usize>,
    /// Sum of their sizes that the object says, in bytes.
    total_bytes: Option<u64>,
    /// Whether the record has no files, which the object says.
    pub(super) is_disabled: bool,
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
                Ok(Files { list: List::of_seq(files)?, ..Files::default() })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Files, A::Error> {
                let mut files = Files::default();
                while let Some(member) = members.next_key::<Text>()? {
                    match member.0.as_deref() {
                        Some("entries") => files.list = members.next_value::<Option<Entries>>()?.unwrap_or_default().0,
                        Some("count") => {
                            files.count =
                                members.next_value::<Number>()?.0.and_then(|count| usize::try_from(count).ok());
                        }
                        Some("total_bytes") => files.total_bytes = members.next_value::<Number>()?.0,
                        Some("enabled") => files.is_disabled = members.next_value::<Option<bool>>()? == Some(false),
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

/// A file, with the members of all forms. Both names can occur at once.
#[derive(Deserialize)]
pub(super) struct File {
    #[serde(default)]
    key: Text,
    #[serde(default)]
    filename: Text,
    #[serde(default)]
    size: Number,
    #[serde(default)]
    filesize: Number,
    #[serde(default)]
    checksum: Text,
    #[serde(default)]
    mimetype: Text,
    #[serde(default)]
    links: TextOr<Links>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Links {
    #[serde(rename = "self")]
    own: Text,
    content: Text,
}

impl Files {
    /// Returns the files.
    ///
    /// # Errors
    /// Fails if the list has another number of files than it says.
    pub(super) fn list(self) -> Result<List<File>, IngestFailure> {
        let listed = self.list.count;
        if let Some(count) = self.count.filter(|count| *count != listed && !self.is_disabled) {
            return Err(partial_list(format!("the record has {count} files, and lists {listed}")));
        }
        let sizes = self.list.iter().map(|file| file.size.0.or(file.filesize.0)).sum::<Option<u64>>();
        let is_whole = self.list.len() == listed;
        match (self.total_bytes, sizes.filter(|_| is_whole && listed > 0)) {
            (Some(told), Some(sum)) if told != sum => {
                Err(partial_list(format!("the files have {sum} bytes, and the record {told}")))
            }
            _ => Ok(self.list),
        }
    }
}

impl File {
    /// Returns the entry of the manifest.
    ///
    /// # Errors
    /// Fails if the file has no name.
    pub(super) fn manifest(self, base: &Url, id: &str) -> Result<PlatformFile, IngestFailure> {
        let Self { key, filename, size, filesize, checksum, mimetype, links } = self;
        let key = key.0.or(filename.0);
        let key = key.ok_or_else(|| IngestFailure::bad_answer("a file of the record has neither key nor filename"))?;
        let size = size.0.or(filesize.0);
        let links = links.object().unwrap_or_default();
        // `links.self` was the content until 2023, and is a description now.
        let is_content = |link: &String| link.ends_with("/content") || link.contains("/api/files/");
        let url = links.content.0.or(links.own.0.filter(is_content)).unwrap_or_else(|| {
            let mut url = below(base, ["api", "records", id, "files"]);
            if let Ok(mut path) = url.path_segments_mut() {
                path.push(&key).push("content");
            }
            url.to_string()
        });
        let mut file =
            ManifestFile { path: key, size, mimetype: mimetype.0, platform_url: Some(url), ..ManifestFile::default() };
        if let Some(checksum) = checksum.0 {
            let (algorithm, value) = checksum.split_once(':').unwrap_or(("md5", &checksum));
            set_digest(&mut file, algorithm, value);
        }
        Ok(PlatformFile::new(file))
    }
}
