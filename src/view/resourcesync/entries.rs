//! Entries of resources and of their changes.
//!
//! A resource is an item that the public sees, and its URL is the URI of the item. So an item that is withdrawn is deleted, and
//! one that appears is created; the journal has decided this from the registry when it settled the change
//! ([`Change::public`]). A change that the public does not see has no entry.
//!
//! Media type, size and digest describe the content of an item. If the content has a URL of its own, they belong to a link to
//! it (section 14.3), because the URL of the item can answer with something else.

use std::io::{self, Write};

use super::sitemap::{Link, SitemapWriter};
use crate::{
    format::xml_writer::Pair,
    model::{Aspect, Change, ChangeType, ContentLocation, DigestAlgorithm, OriginalContent, Timestamp, Uri},
};

/// Writes an entry for each item of a change, which is as the public sees it. Returns the number of entries.
///
/// # Errors
/// Fails as the writer does.
pub(super) fn write_change<W: Write>(
    writer: &mut SitemapWriter<W>,
    change: &Change,
    time: Timestamp,
) -> io::Result<usize> {
    let time = time.to_string();
    for (index, item) in change.modification.items.iter().enumerate() {
        let kind = match item.change.change_type() {
            Some(ChangeType::Add) => "created",
            Some(ChangeType::Delete) => "deleted",
            Some(ChangeType::Update) | None => "updated",
        };
        let is_late = change.settlement.item(index).late.contains(Aspect::Content);
        let content = item.change.content().filter(|_| !is_late);
        write_entry(writer, &item.uri, content, &[("change", kind), ("datetime", time.as_str())])?;
    }
    Ok(change.modification.items.len())
}

/// Writes the entry of a resource.
///
/// # Errors
/// Fails as the writer does.
pub(super) fn write_resource<W: Write>(
    writer: &mut SitemapWriter<W>,
    uri: &Uri,
    content: Option<&ContentLocation>,
) -> io::Result<()> {
    write_entry(writer, uri, content, &[])
}

fn write_entry<W: Write>(
    writer: &mut SitemapWriter<W>,
    uri: &Uri,
    content: Option<&ContentLocation>,
    metadata: &[Pair<'_>],
) -> io::Result<()> {
    let Some(content) = content.map(ContentLocation::reported) else {
        return writer.entry(uri.as_str(), metadata, &[]);
    };
    let facts = Facts::of(&content);
    if content.url == *uri {
        return writer.entry(uri.as_str(), &[metadata, &facts.attributes()].concat(), &[]);
    }
    let link = [&[("rel", "alternate"), ("href", content.url.as_str())], &*facts.attributes()].concat();
    let links: [Link<'_>; 1] = [&link];
    writer.entry(uri.as_str(), metadata, &links)
}

/// Facts about content that the protocol knows.
struct Facts<'a> {
    hash: Option<String>,
    length: Option<String>,
    media_type: Option<&'a str>,
}

impl<'a> Facts<'a> {
    fn of(content: &'a OriginalContent) -> Self {
        // Clients know no others, and some cannot read two of them.
        let is_known = |algorithm: DigestAlgorithm| {
            matches!(algorithm, DigestAlgorithm::Md5 | DigestAlgorithm::Sha1 | DigestAlgorithm::Sha256)
        };
        let digest = content.digest.as_ref().filter(|digest| is_known(digest.algorithm()));
        // Parameters are no part of the attribute.
        let media_type = content.media_type.as_ref().and_then(|media_type| media_type.as_str().split(';').next());
        Self {
            hash: digest.map(|digest| format!("{}:{}", digest.algorithm().name(), digest.hex())),
            length: content.size.map(|size| size.to_string()),
            media_type: media_type.map(str::trim),
        }
    }

    fn attributes(&self) -> Vec<Pair<'_>> {
        let values = [("hash", self.hash.as_deref()), ("length", self.length.as_deref()), ("type", self.media_type)];
        values.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}
