//! Bags (RFC 8493): folders with a manifest of their payload, which the page is or links. A bag may name files that are to be
//! fetched from other places, and its number of files and bytes.

use std::collections::HashMap;

use futures_util::future::BoxFuture;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use url::Url;

use super::{
    Dataset, DatasetMetadata, MAX_LIST_BYTES, PlatformFile, PlatformHelper, PlatformSettings, Recognition, domain,
    former_name, item_name_of_page, name_of, partial_list, segments, set_digest, too_long_list,
};
use crate::{
    filesets::{IngestFailure, LandingPage, PlatformClient, Relation, json::MAX_ENTRIES},
    format::fileset::message::ManifestFile,
};

/// Bags.
pub(super) struct Bag;

const NAME: &str = "bagit";

/// Algorithms of manifests, the one that is preferred first. All have the same files.
const ALGORITHMS: [&str; 4] = ["sha256", "sha512", "sha1", "md5"];

/// Characters that are percent-encoded in the path of a payload file.
const NOT_IN_PATH: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>').add(b'?').add(b'`').add(b'{').add(b'}').add(b'%');

impl PlatformHelper for Bag {
    fn name(&self) -> &'static str {
        NAME
    }

    fn recognizes_by(&self) -> Recognition {
        Recognition::Page
    }

    fn matches(&self, page: &LandingPage, _: &PlatformSettings) -> bool {
        manifest(page).is_some()
    }

    fn dataset<'a>(
        &'a self,
        page: &'a LandingPage,
        _: &'a PlatformSettings,
        client: &'a PlatformClient,
    ) -> BoxFuture<'a, Result<Dataset, IngestFailure>> {
        Box::pin(async move {
            let no_bag = || IngestFailure::bad_answer("the page links no manifest of a bag");
            let (place, algorithm) = manifest(page).ok_or_else(no_bag)?;
            let tag_file = |name: &str| place.join(name).map_err(|error| IngestFailure::bad_answer(error.to_string()));
            let fetched = client.optional_text_as(&tag_file("fetch.txt")?, |text| Ok(fetched(text))).await?;
            let fetched = fetched.unwrap_or_default();
            let info = client.optional_text_as(&tag_file("bag-info.txt")?, |text| Ok(BagInfo::read(text))).await?;
            let info = info.unwrap_or_default();
            let manifest_place = place.clone();
            let files = client.text_as(&place, move |text| files(text, algorithm, &manifest_place, &fetched)).await?;
            info.check(&files)?;
            let folder = place.join(".").unwrap_or_else(|_| place.clone());
            let host = domain(&folder);
            Ok(Dataset {
                platform_name: NAME,
                archiveorg_item_name: item_name_of_page(&folder),
                former_item_name: Some(former_name(&[&host, &segments(&folder).join("-")])),
                told_bytes: info.oxum.map(|(bytes, _)| bytes),
                platform_domain: host,
                platform_id: folder.path().to_owned(),
                base_url: Some(folder.into()),
                bundle_url: None,
                files,
                metadata: DatasetMetadata {
                    title: info.identifier,
                    creators: info.organization.into_iter().collect(),
                    date: info.date,
                    description: info.description,
                    ..DatasetMetadata::default()
                },
            })
        })
    }
}

/// Returns the manifest with the best algorithm: the page itself, or a link of it.
fn manifest(page: &LandingPage) -> Option<(Url, &'static str)> {
    let algorithm = |url: &Url| {
        let name = name_of(url);
        ALGORITHMS.iter().position(|algorithm| name == format!("manifest-{algorithm}.txt"))
    };
    let links = &page.links;
    let linked = links.of(Relation::Item).chain(links.of(Relation::DescribedBy)).map(|link| &link.url);
    let all = std::iter::once(&page.url).chain(linked).chain(&links.manifests);
    let best = all.filter_map(|url| Some((algorithm(url)?, url))).min_by_key(|(rank, _)| *rank)?;
    Some((best.1.clone(), ALGORITHMS[best.0]))
}

/// Returns URL and size of the files that are elsewhere, by their paths.
fn fetched(text: &str) -> HashMap<String, (String, Option<u64>)> {
    let line = |line: &str| {
        let mut parts = line.splitn(3, [' ', '\t']);
        let (url, size, path) = (parts.next()?, parts.next()?, parts.next()?);
        Some((decoded(path.trim_start()), (url.to_owned(), size.parse().ok())))
    };
    text.lines().take(MAX_ENTRIES).filter_map(line).collect()
}

/// Returns the files of a manifest: in each line the digest and the path.
fn files(
    text: &str,
    algorithm: &str,
    place: &Url,
    fetched: &HashMap<String, (String, Option<u64>)>,
) -> Result<Vec<PlatformFile>, IngestFailure> {
    let mut made = 0;
    let mut file = |line: &str| {
        let (digest, path) = line.trim_end().split_once([' ', '\t'])?;
        // `md5sum` marks binary files with a star.
        let path = decoded(path.trim_start().trim_start_matches('*').trim_start_matches("./"));
        let is_digest = digest.len() >= 32 && digest.bytes().all(|b| b.is_ascii_hexdigit());
        let url = place.join(&utf8_percent_encode(&path, NOT_IN_PATH).to_string()).ok()?;
        let elsewhere = fetched.get(&path).cloned();
        let (url, size) = elsewhere.unwrap_or_else(|| (url.into(), None));
        made += path.len() + url.len();
        if made > MAX_LIST_BYTES {
            return Some(Err(too_long_list()));
        }
        let mut file = ManifestFile { path, size, platform_url: Some(url), ..ManifestFile::default() };
        set_digest(&mut file, algorithm, digest);
        is_digest.then(|| Ok(PlatformFile::new(file)))
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty()).take(MAX_ENTRIES + 1);
    let no_line = |line: &str| {
        let start: String = line.chars().take(80).collect();
        IngestFailure::bad_answer(format!("the manifest has a line without digest and path: {start:?}"))
    };
    lines.map(|line| file(line).unwrap_or_else(|| Err(no_line(line)))).collect()
}

/// Facts of a bag (`bag-info.txt`).
#[derive(Default)]
struct BagInfo {
    /// Number of bytes and of files.
    oxum: Option<(u64, usize)>,
    identifier: Option<String>,
    organization: Option<String>,
    date: Option<String>,
    description: Option<String>,
}

impl BagInfo {
    fn read(text: &str) -> Self {
        // `Payload-Oxum: BYTES.FILES`
        let oxum = field(text, "Payload-Oxum");
        let oxum = oxum.as_deref().and_then(|oxum| oxum.split_once('.'));
        let oxum = oxum.and_then(|(bytes, files)| Some((bytes.parse().ok()?, files.parse().ok()?)));
        Self {
            oxum,
            identifier: field(text, "External-Identifier"),
            organization: field(text, "Source-Organization"),
            date: field(text, "Bagging-Date"),
            description: field(text, "External-Description"),
        }
    }

    /// Compares the numbers of files and bytes with those of the bag. A list that was cut has too many in any case, and the
    /// sizes of a bag are rarely known before the files are there.
    fn check(&self, files: &[PlatformFile]) -> Result<(), IngestFailure> {
        let Some((bytes, count)) = self.oxum else { return Ok(()) };
        let listed = files.len();
        if count != listed && listed <= MAX_ENTRIES {
            return Err(partial_list(format!("the bag has {count} files, and lists {listed}")));
        }
        let sizes = files.iter().map(|file| file.manifest.size);
        let known = sizes.sum::<Option<u64>>();
        match known.filter(|known| *known != bytes) {
            Some(known) => Err(partial_list(format!("the bag has {bytes} bytes, and lists {known}"))),
            None => Ok(()),
        }
    }
}

/// Reads a text as each file of a bag; returns the number of its files.
pub(in crate::filesets) fn count_files(text: &str) -> usize {
    let Ok(place) = Url::parse("https://bag.invalid/manifest-md5.txt") else { return 0 };
    let (fetched, _) = (fetched(text), BagInfo::read(text));
    files(text, ALGORITHMS[0], &place, &fetched).map_or(0, |files| files.len())
}

/// Returns the first value of a field of `bag-info.txt`.
fn field(info: &str, name: &str) -> Option<String> {
    let line = info.lines().find_map(|line| line.split_once(':').filter(|(label, _)| label.eq_ignore_ascii_case(name)));
    line.map(|(_, value)| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// Decodes the three characters that a manifest encodes: line feed, carriage return and percent.
fn decoded(path: &str) -> String {
    path.replace("%0A", "\n").replace("%0a", "\n").replace("%0D", "\r").replace("%0d", "\r").replace("%25", "%")
}
