//! What the repository offers: its metadata formats and its configured sets.
//!
//! The gateway makes two formats of the registry. A harvest that keeps its records ([`kept_record`](crate::format::oai_pmh::kept_record))
//! adds its own, in which the records are disseminated as their repository has sent them.

use std::sync::Arc;

use futures_util::TryStreamExt;
use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};

use super::{IdentifierKind, set::ConfiguredSet};
use crate::{
    files::{FileDigest, FileStore, FileStoreError},
    format::{
        Limits, content_change,
        oai_pmh::{
            CONTENT_CHANGE, get_record_url,
            kept_record::{KeptDocument, KeptRecords},
        },
    },
    model::Uri,
    view::{block_on, files::store_problem as file_problem},
    web::Problem,
};

pub(super) const OAI_DC: &str = "http://www.openarchives.org/OAI/2.0/oai_dc/";
pub(super) const OAI_DC_SCHEMA: &str = "http://www.openarchives.org/OAI/2.0/oai_dc.xsd";

/// File of the schema of the format `content-change`.
pub(super) const CONTENT_CHANGE_SCHEMA: &str = "content-change-message-0.1.xsd";

/// Maximum size of a file that is read as a kept record, in bytes. A copy can be larger than its record, whose size
/// `limits.body_bytes` limits, because of references and declarations of namespaces.
const MAX_FILE_BYTES: usize = 256 << 20;

/// Metadata format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MetadataFormat {
    /// Unqualified Dublin Core, which the protocol requires.
    DublinCore,
    /// The content-change message 0.1, with all that the registry knows.
    ContentChange,
    /// Format with this prefix, in which records are kept.
    Harvested(String),
}

/// Description of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FormatDescription {
    pub(super) prefix: String,
    pub(super) schema: String,
    pub(super) namespace: String,
}

impl FormatDescription {
    /// Describes the format of a kept record. The protocol requires a schema, which not all metadata name.
    pub(super) fn of_kept(format: &MetadataFormat, kept: &KeptDocument) -> Self {
        let namespace = kept.namespace().to_owned();
        let schema = kept.schema().map_or_else(|| namespace.clone(), ToOwned::to_owned);
        Self { prefix: format.prefix().to_owned(), schema, namespace }
    }
}

impl MetadataFormat {
    /// The formats that the gateway makes.
    pub(super) const MADE: [Self; 2] = [Self::DublinCore, Self::ContentChange];

    /// Returns the prefix.
    pub(super) fn prefix(&self) -> &str {
        match self {
            Self::DublinCore => "oai_dc",
            Self::ContentChange => CONTENT_CHANGE,
            Self::Harvested(prefix) => prefix,
        }
    }

    /// Returns the description of a format that the gateway makes; `base_url` is that of the repository.
    pub(super) fn description(&self, base_url: &str) -> Option<FormatDescription> {
        let (schema, namespace) = match self {
            Self::DublinCore => (OAI_DC_SCHEMA.to_owned(), OAI_DC),
            Self::ContentChange => {
                (format!("{base_url}/schemas/{CONTENT_CHANGE_SCHEMA}"), content_change::ATOM_NAMESPACE)
            }
            Self::Harvested(_) => return None,
        };
        Some(FormatDescription { prefix: self.prefix().to_owned(), schema, namespace: namespace.to_owned() })
    }
}

/// The formats and the sets of the repository at the time of a request.
#[derive(Clone, Default)]
pub(super) struct Catalogue {
    /// Records that harvests keep, each with the begin of their URIs.
    kept: Vec<(KeptRecords, String)>,
    files: Option<FileStore>,
    identifiers: IdentifierKind,
    /// Limits on the form of records.
    limits: Limits,
    /// Configured sets.
    pub(super) sets: Arc<[ConfiguredSet]>,
}

/// Place of a record in its repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordPlace<'a> {
    /// Base URL of the repository.
    pub(super) base_url: &'a str,
    /// Prefix of the metadata format.
    pub(super) prefix: &'a str,
    /// Identifier in the repository.
    pub(super) identifier: String,
}

impl Catalogue {
    pub(super) fn new(
        kept: Vec<KeptRecords>,
        files: Option<FileStore>,
        (identifiers, limits): (IdentifierKind, Limits),
        sets: Arc<[ConfiguredSet]>,
    ) -> Self {
        let begin = |kept: KeptRecords| {
            let url = get_record_url(&kept.base_url, &kept.prefix, "").ok()?;
            Some((kept, url.as_str().to_owned()))
        };
        Self { kept: kept.into_iter().filter_map(begin).collect(), files, identifiers, limits, sets }
    }

    /// Returns the format with this prefix.
    pub(super) fn format(&self, prefix: &str) -> Option<MetadataFormat> {
        let made = MetadataFormat::MADE.into_iter().find(|format| format.prefix() == prefix);
        let is_kept = || self.kept.iter().any(|(kept, _)| kept.prefix == prefix);
        made.or_else(|| is_kept().then(|| MetadataFormat::Harvested(prefix.to_owned())))
    }

    /// Returns the prefixes of the formats that only harvests have, in their order.
    pub(super) fn harvested_prefixes(&self) -> Vec<String> {
        let is_made = |prefix: &String| MetadataFormat::MADE.iter().any(|format| format.prefix() == prefix);
        let mut prefixes: Vec<_> = self.kept.iter().map(|(kept, _)| kept.prefix.clone()).collect();
        prefixes.retain(|prefix| !is_made(prefix));
        prefixes.sort_unstable();
        prefixes.dedup();
        prefixes
    }

    /// Returns the records that are kept in a format.
    pub(super) fn kept_in(&self, prefix: &str) -> impl Iterator<Item = &KeptRecords> {
        self.kept.iter().map(|(kept, _)| kept).filter(move |kept| kept.prefix == prefix)
    }

    /// Returns the place of an object that is a record of a repository whose records are kept.
    pub(super) fn place<'a>(&'a self, object: &Uri) -> Option<RecordPlace<'a>> {
        self.kept.iter().find_map(|(kept, begin)| {
            let identifier = object.as_str().strip_prefix(begin.as_str())?;
            let identifier = percent_decode_str(identifier).decode_utf8().ok()?.into_owned();
            Some(RecordPlace { base_url: &kept.base_url, prefix: &kept.prefix, identifier })
        })
    }

    /// Returns the objects that an identifier can stand for. Without a format, these are the ones in all formats.
    pub(super) fn objects(&self, identifier: &str, format: Option<&MetadataFormat>) -> Vec<Uri> {
        let is_of_format = |kept: &KeptRecords| format.is_none_or(|format| format.prefix() == kept.prefix);
        let kept = self.kept.iter().filter(|(kept, _)| self.keeps_identifiers() && is_of_format(kept));
        let records = kept.filter_map(|(kept, _)| get_record_url(&kept.base_url, &kept.prefix, identifier).ok());
        records.chain(Uri::parse(identifier).ok()).collect()
    }

    /// Returns whether kept records have the identifiers that they have in their repositories.
    pub(super) fn keeps_identifiers(&self) -> bool {
        self.identifiers == IdentifierKind::Original
    }

    /// Reads the kept record of a place; `None` if the store does not have the file, or it is not the record of this place. The
    /// call blocks.
    ///
    /// # Errors
    /// Fails if the store cannot be read. A record that is left out then would never come to harvesters.
    pub(super) fn kept_document(
        &self,
        copy: FileDigest,
        place: &RecordPlace<'_>,
    ) -> Result<Option<KeptDocument>, Problem> {
        let file = self.read(copy).map_err(file_problem)?;
        let is_intact = |file: &Vec<u8>| hex::encode(Sha256::digest(file)) == copy.to_string();
        let Some(file) = file.filter(is_intact) else { return Ok(None) };
        let kept = KeptDocument::parse(&file, self.limits).ok();
        Ok(kept.filter(|kept| kept.is_of(place.base_url, place.prefix, &place.identifier)))
    }

    fn read(&self, copy: FileDigest) -> Result<Option<Vec<u8>>, FileStoreError> {
        let Some(store) = &self.files else { return Ok(None) };
        block_on(async {
            let Some(mut content) = store.read(copy, None).await? else { return Ok(None) };
            let mut file = Vec::new();
            while let Some(piece) = content.pieces.try_next().await? {
                file.extend_from_slice(&piece);
                if file.len() > MAX_FILE_BYTES {
                    return Ok(None);
                }
            }
            Ok(Some(file))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Catalogue, IdentifierKind, KeptRecords, Limits, MetadataFormat, RecordPlace, Uri};
    use crate::model::SourceName;

    fn catalogue(identifiers: IdentifierKind) -> Catalogue {
        let kept = |source: &str, prefix: &str| KeptRecords {
            source: SourceName::parse(source).unwrap(),
            base_url: "http://h/oai?db=1".to_owned(),
            prefix: prefix.to_owned(),
        };
        Catalogue::new(
            vec![kept("a", "mods"), kept("b", "mods"), kept("c", "oai_dc")],
            None,
            (identifiers, Limits::default()),
            [].into(),
        )
    }

    #[test]
    fn records_and_their_identifiers_stand_for_each_other() {
        let catalogue = catalogue(IdentifierKind::Original);
        let uri = |prefix: &str| {
            let uri =
                format!("http://h/oai?db=1&verb=GetRecord&metadataPrefix={prefix}&identifier=oai%3Ah%3A%C3%A9%25");
            Uri::parse(&uri).unwrap()
        };
        let place = |prefix| RecordPlace { base_url: "http://h/oai?db=1", prefix, identifier: "oai:h:é%".to_owned() };
        assert_eq!(catalogue.place(&uri("mods")), Some(place("mods")));
        assert_eq!(catalogue.place(&uri("other")), None);
        assert_eq!(catalogue.place(&Uri::parse("http://h/oai").unwrap()), None);
        let mods = catalogue.format("mods").unwrap();
        assert_eq!(mods, MetadataFormat::Harvested("mods".to_owned()));
        // Two sources have the records in this format, and the identifier can also be a URI.
        let objects = catalogue.objects("oai:h:é%", Some(&mods));
        assert_eq!(objects, [uri("mods"), uri("mods"), Uri::parse("oai:h:é%").unwrap()]);
    }

    #[test]
    fn formats_are_those_of_the_gateway_and_of_harvests() {
        let catalogue = catalogue(IdentifierKind::Uri);
        assert_eq!(catalogue.format("oai_dc"), Some(MetadataFormat::DublinCore));
        assert_eq!(catalogue.format("marc"), None);
        assert_eq!(catalogue.harvested_prefixes(), ["mods"]);
        assert_eq!(catalogue.kept_in("mods").count(), 2);
        assert_eq!(catalogue.objects("urn:a", None), [Uri::parse("urn:a").unwrap()]);
    }
}
