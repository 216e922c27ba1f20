//! Results of ingests: the dialect `fileset-result`.
//!
//! * A success lists all files of the dataset: a file that is no longer among them is deleted. A failure concerns only the
//!   files that were attempted.
//! * The content of a file is its copy in the archive, which names the file at the platform as its original.
//! * Some results have the MD5 of a file in the place of its SHA-1. Such a SHA-1 is left out.

use std::collections::HashSet;

use percent_encoding::utf8_percent_encode;
use serde::Deserialize;

use super::{
    NOT_IN_PATH, below, draft, file_uri,
    message::{FilesetResult, IngestStrategy, ManifestFile},
    public_url::{without_secrets, without_signature},
    rejection,
};
use crate::{
    format::{Dialect, DialectKind, DuplicateDetection, Message, ParsedMessage, Rejection, json, parse_settings},
    model::{
        ContentLocation, Digest, DigestAlgorithm, Draft, DraftChange, DraftItem, DraftItems, JsonDocument, MediaType,
        NonEmpty, OriginalContent, Report, Uri,
    },
};

/// The dialect `fileset-result`.
pub(in crate::format) static DIALECT: DialectKind = DialectKind {
    name: "fileset-result",
    about: "results of archiving datasets, as from Sandcrawler",
    accepts: &["application/json"],
    headers: &[],
    duplicates: DuplicateDetection::ByBodyUnlessNews,
    redact: None,
    repository: None,
    sample_settings: &["{}"],
    build: |value, _| Ok(Box::new(parse_settings::<Results>(value)?)),
};

/// The configured dialect, without settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Results {}

impl Dialect for Results {
    fn read(&self, message: &Message<'_>) -> Result<ParsedMessage, Rejection> {
        let Kind { request } = json::read(message.body)?;
        if request.ingest_type != super::DATASET {
            return Ok(ParsedMessage::NoChange("the result is not about a dataset"));
        }
        let result: FilesetResult = json::read(message.body)?;
        if result.hit != result.status.is_success() {
            let (hit, status) = (result.hit, &result.status);
            return Err(rejection("/hit".to_owned(), format!("hit is {hit}, but the status is {status}")));
        }
        result_draft(&result).map(ParsedMessage::one)
    }
}

/// The member of a result that names its subject.
#[derive(Deserialize)]
struct Kind {
    request: RequestKind,
}

#[derive(Deserialize)]
struct RequestKind {
    ingest_type: String,
}

fn result_draft(result: &FilesetResult) -> Result<Draft, Rejection> {
    let dataset = &result.request.base_url;
    let own = DraftChange::Present {
        content: if result.hit { archive(result).map(ContentLocation::at) } else { None },
        state: Some(result.status.state()),
    };
    let mut items = vec![DraftItem::new(dataset.clone(), own.clone())];
    let mut paths = HashSet::new();
    let mut wrong_sha1 = 0;
    for (index, file) in result.manifest.iter().flatten().enumerate() {
        let Some(status) = file.status.as_ref().or_else(|| result.hit.then_some(&result.status)) else { continue };
        if !result.hit && status.is_unchanged_file() {
            // The file is good, but this ingest has not archived it; an earlier one may have.
            continue;
        }
        let pointer = format!("/manifest/{index}");
        if !paths.insert(&*file.path) {
            return Err(rejection(format!("{pointer}/path"), format!("another file has the path {:?} too", file.path)));
        }
        wrong_sha1 += usize::from(file.sha1.is_some() && file.sha1 == file.md5);
        let uri =
            file_uri(dataset, &file.path).map_err(|error| rejection(format!("{pointer}/path"), error.to_string()))?;
        let content = content(result, file).map_err(|error| below(&pointer, error))?;
        // A file may have a status of its own, such as `exists`, in a dataset that was archived as a whole.
        let state = if result.hit { result.status.state() } else { status.state() };
        items.push(DraftItem::new(uri, DraftChange::Present { content, state: Some(state) }));
    }
    let mut described = description(result);
    if wrong_sha1 > 0 {
        described += &format!("; SHA-1 left out because it is the MD5, files: {wrong_sha1}");
    }
    let report = JsonDocument::new(&result.publishable()).ok().map(Report::Result);
    let draft = Draft { report, ..draft(&result.request, own, &described) };
    let items = match NonEmpty::try_from(items) {
        Ok(items) if result.hit && result.manifest.is_some() => DraftItems::Complete(items.into_vec()),
        Ok(items) => DraftItems::Listed(items),
        Err(_) => return Ok(draft),
    };
    Ok(Draft { items, ..draft })
}

/// Describes a result for people.
fn description(result: &FilesetResult) -> String {
    let mut text = format!("archiving of the dataset: {}", result.status);
    if let (Some(count), Some(size)) = (result.file_count, result.total_size) {
        text += &format!("; files: {count}, bytes: {size}");
    }
    if let (Some(name), Some(id)) = (&result.platform_name, &result.platform_id) {
        text += &format!("; {name} {id}");
    }
    if let Some(strategy) = result.ingest_strategy {
        text += &format!("; {}", strategy.name());
    }
    if let Some(message) = &result.error_message {
        text += &format!("; {message}");
    }
    text
}

/// Returns the URL of the archived dataset: its item at archive.org, or the archived landing page.
fn archive(result: &FilesetResult) -> Option<Uri> {
    if let Some(url) = &result.archive_url {
        return Uri::parse(url).ok();
    }
    if result.ingest_strategy.is_none_or(IngestStrategy::is_web) {
        let terminal = result.landing_page.terminal.as_ref()?;
        return captured(&terminal.terminal_url, terminal.terminal_dt.as_deref());
    }
    let item = result.archiveorg_item_name.as_deref()?;
    Uri::parse(&format!("https://archive.org/details/{}", utf8_percent_encode(item, NOT_IN_PATH))).ok()
}

/// Returns the content of a file: the copy, or else the file at the platform.
fn content(result: &FilesetResult, file: &ManifestFile) -> Result<Option<ContentLocation>, Rejection> {
    let platform_url = file.platform_url.as_deref().map(|url| uri(&without_signature(url), "/platform_url"));
    let platform_url = platform_url.transpose()?;
    let copy = if result.hit { copy(result, file) } else { None };
    let (media_type, size, digest) = (media_type(file), file.size, digest(file)?);
    let Some(url) = copy.or_else(|| platform_url.clone()) else { return Ok(None) };
    let original = platform_url.filter(|original| *original != url);
    let original = original
        .map(|url| Box::new(OriginalContent { url, media_type: media_type.clone(), size, digest: digest.clone() }));
    Ok(Some(ContentLocation { media_type, size, digest, original, ..ContentLocation::at(url) }))
}

/// Returns the URL of the copy of a file. A file in a bundle has none.
fn copy(result: &FilesetResult, file: &ManifestFile) -> Option<Uri> {
    if let Some(url) = &file.archive_url {
        return Uri::parse(url).ok();
    }
    let strategy = result.ingest_strategy?;
    if strategy.is_bundled() {
        return None;
    }
    if strategy.is_web() {
        return captured(file.terminal_url.as_deref()?, file.terminal_dt.as_deref());
    }
    let item = utf8_percent_encode(result.archiveorg_item_name.as_deref()?, NOT_IN_PATH);
    let path = utf8_percent_encode(&file.path, NOT_IN_PATH);
    Uri::parse(&format!("https://archive.org/download/{item}/{path}")).ok()
}

/// Returns the URL of a response in the web archive of the Internet Archive. A URL with a credential is none.
fn captured(url: &str, time: Option<&str>) -> Option<Uri> {
    let time = time.filter(|time| time.len() == 14 && time.bytes().all(|b| b.is_ascii_digit()))?;
    if without_secrets(url) != url {
        return None;
    }
    Uri::parse(&format!("https://web.archive.org/web/{time}/{url}")).ok()
}

/// Returns the strongest digest of a file.
fn digest(file: &ManifestFile) -> Result<Option<Digest>, Rejection> {
    let sha1 = file.sha1.as_ref().filter(|sha1| file.md5.as_ref() != Some(sha1));
    let digests = [
        (file.sha256.as_ref(), DigestAlgorithm::Sha256, "/sha256"),
        (sha1, DigestAlgorithm::Sha1, "/sha1"),
        (file.md5.as_ref(), DigestAlgorithm::Md5, "/md5"),
    ];
    let mut parsed = digests.into_iter().filter_map(|(value, algorithm, pointer)| {
        let parse =
            |value: &String| Digest::parse(algorithm, value).map_err(|e| rejection(pointer.to_owned(), e.to_string()));
        value.map(parse)
    });
    let strongest = parsed.next().transpose()?;
    // The others must be valid too.
    parsed.try_for_each(|digest| digest.map(drop))?;
    Ok(strongest)
}

/// Returns the media type of a file; a text that is none is left out, because platforms copy what depositors write.
fn media_type(file: &ManifestFile) -> Option<MediaType> {
    file.mimetype.as_deref().and_then(|text| MediaType::parse(text).ok())
}

fn uri(text: &str, pointer: &str) -> Result<Uri, Rejection> {
    Uri::parse(text).map_err(|error| rejection(pointer.to_owned(), error.to_string()))
}
