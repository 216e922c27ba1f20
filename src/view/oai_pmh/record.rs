//! A record: an object of the registry as a reader sees it, with its items.
//!
//! The object is the item of the protocol, and not each item of the object. An object and its metadata often have the same
//! URI, items of several objects can have the same one, and harvesters index what a person looks for. *Cost:* a change of one
//! item is a new datestamp of its object.
//!
//! A record that a harvest keeps has further metadata: those of its repository, with their provenance.

use uuid::Builder;

use super::{
    catalogue::{Catalogue, MetadataFormat, OAI_DC, OAI_DC_SCHEMA, RecordPlace},
    document::datestamp,
    set::SetSpec,
};
use crate::{
    files::FileDigest,
    format::{
        content_change,
        oai_pmh::kept_record::KeptDocument,
        xml_writer::{XSI, XmlWriter},
    },
    journal::{RawContentLocation, acceptance::AcceptanceTime, registry::ObjectState, store::StoreError},
    model::{
        ChangeId, ContentItemModification, ContentLocation, ContentObjectModification, DigestAlgorithm, ItemChange,
        ItemId, NonEmpty, Origin, SourceName, State, Text, Timestamp, Uri, User,
    },
    view::registry_view::RegistryView,
    web::Problem,
};
use sha2::{Digest, Sha256};

const DC: &str = "http://purl.org/dc/elements/1.1/";

/// Description of each record as a message.
const DESCRIPTION: &str = "the object as the registry has it";

/// Name of the source of records whose objects have none.
const NO_SOURCE: &str = "registry";

/// Reason why a record cannot be written.
pub(super) enum Unwritable {
    /// The file with its metadata is missing, damaged or another document.
    Missing,
    /// The file store failed.
    Failed(Problem),
}

/// A record of the repository.
pub(super) struct Record<'a> {
    uri: &'a Uri,
    state: &'a ObjectState,
    time: AcceptanceTime,
    /// The items that the reader sees; none of a deleted record.
    items: Vec<VisibleItem<'a>>,
    catalogue: &'a Catalogue,
    /// Place of the record in its repository, if its harvest keeps records.
    place: Option<RecordPlace<'a>>,
    /// Name of the file of the kept record, if the reader sees it.
    copy: Option<FileDigest>,
    /// Whether the reader sees only what the public sees.
    for_public: bool,
}

/// An item of the object that the reader sees.
struct VisibleItem<'a> {
    uri: &'a Uri,
    content: Option<ContentLocation>,
    state: Option<&'a State>,
}

impl<'a> Record<'a> {
    /// Returns the record of an object, which the reader may see or has seen; `None` if the object has never existed.
    ///
    /// # Errors
    /// Fails if the location of a content is damaged.
    pub(super) fn of(
        uri: &'a Uri,
        state: &'a ObjectState,
        time: AcceptanceTime,
        sight: &RegistryView,
        catalogue: &'a Catalogue,
    ) -> Result<Option<Self>, StoreError> {
        let (mut items, mut copy) = (Vec::new(), None);
        let place = catalogue.place(uri);
        for (item, _) in state.live_items().filter(|(item, _)| sight.shows_item(item, state)) {
            let content = state.content(item).map(RawContentLocation::parse).transpose()?;
            if item == uri && place.is_some() {
                copy = content.as_ref().and_then(copy_of);
            }
            let content = content.map(|content| sight.content(content));
            items.push(VisibleItem { uri: item, content, state: state.state(item) });
        }
        let has_existed = || {
            let existed = |record: &crate::journal::registry::ItemRecord| record.existence.clock.latest().is_some();
            state.purged.latest().is_some() || state.items.values().any(|record| existed(record))
        };
        let exists = !items.is_empty() || has_existed();
        Ok(exists.then_some(Self { uri, state, time, items, catalogue, place, copy, for_public: sight.is_public() }))
    }

    /// Returns whether the object does not exist any more, for the reader.
    pub(super) fn is_deleted(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns whether the record has a format, or has had it.
    pub(super) fn has(&self, format: &MetadataFormat) -> bool {
        !matches!(format, MetadataFormat::Harvested(_)) || self.is_of_repository(format)
    }

    /// Returns the format in which the repository of the record has it, if its harvest keeps records.
    pub(super) fn place_format(&self) -> Option<MetadataFormat> {
        self.catalogue.format(self.place.as_ref()?.prefix)
    }

    /// Returns whether the record is deleted in a format. So is one in the format of its repository that is not kept any more,
    /// because harvesters would have its former metadata for ever.
    pub(super) fn is_deleted_in(&self, format: &MetadataFormat) -> bool {
        let is_of_repository = match format {
            MetadataFormat::Harvested(_) => true,
            MetadataFormat::DublinCore => self.catalogue.keeps_identifiers() && self.is_of_repository(format),
            MetadataFormat::ContentChange => false,
        };
        self.is_deleted() || (is_of_repository && self.copy.is_none())
    }

    /// Returns whether the repository of the record has it in this format.
    fn is_of_repository(&self, format: &MetadataFormat) -> bool {
        self.place.as_ref().is_some_and(|place| place.prefix == format.prefix())
    }

    /// Returns the kept record in a format; `None` if there is none. The call blocks.
    ///
    /// # Errors
    /// [`Unwritable::Missing`] if the file is not there, and [`Unwritable::Failed`] if the store fails.
    pub(super) fn kept_document(&self, format: &MetadataFormat) -> Result<Option<KeptDocument>, Unwritable> {
        let place = self.place.as_ref().filter(|_| self.is_of_repository(format) && !self.is_deleted());
        let Some((place, copy)) = place.zip(self.copy) else { return Ok(None) };
        let is_usable = |kept: &KeptDocument| *format != MetadataFormat::DublinCore || kept.namespace() == OAI_DC;
        match self.catalogue.kept_document(copy, place).map_err(Unwritable::Failed)?.filter(is_usable) {
            Some(kept) => Ok(Some(kept)),
            None => {
                tracing::warn!(object = %self.uri, file = %copy, "the file of a kept record is missing, damaged or another document");
                Err(Unwritable::Missing)
            }
        }
    }

    /// Returns the identifier of the record in a format. Metadata that the gateway makes must not have the identifier of the
    /// repository (guidelines for aggregators).
    pub(super) fn identifier(&self, format: &MetadataFormat) -> &str {
        let keeps = self.catalogue.keeps_identifiers() && self.is_of_repository(format);
        // Any other one could be that of another object, or no URI.
        let is_safe =
            |place: &&RecordPlace<'_>| place.identifier.starts_with("oai:") && Uri::parse(&place.identifier).is_ok();
        self.place.as_ref().filter(|_| keeps).filter(is_safe).map_or(self.uri.as_str(), |place| &place.identifier)
    }

    /// Returns the sets of the record.
    pub(super) fn sets(&self) -> Vec<SetSpec> {
        let filters = &self.catalogue.sets;
        match self.is_deleted() {
            true => SetSpec::of_deleted(self.uri, self.state, filters, self.for_public),
            false => SetSpec::of_object(self.uri, self.state, filters),
        }
    }

    /// Writes the element `header`.
    pub(super) fn write_header(&self, xml: &mut XmlWriter, format: &MetadataFormat) {
        let status: &[_] = if self.is_deleted_in(format) { &[("status", "deleted")] } else { &[] };
        xml.open("header", status);
        xml.leaf("identifier", &[], self.identifier(format));
        xml.leaf("datestamp", &[], &datestamp(self.time));
        for set in self.sets() {
            xml.leaf("setSpec", &[], &set.to_string());
        }
        xml.close("header");
    }

    /// Writes the element `record`. The call blocks.
    ///
    /// # Errors
    /// Writes nothing if the metadata cannot be read.
    pub(super) fn write(self, xml: &mut XmlWriter, format: &MetadataFormat, base_url: &str) -> Result<(), Unwritable> {
        let kept = match self.kept_document(format) {
            // The gateway can make Dublin Core, but not with the identifier of the repository.
            Err(Unwritable::Missing)
                if *format == MetadataFormat::DublinCore && self.identifier(format) == self.uri.as_str() =>
            {
                None
            }
            kept => kept?,
        };
        xml.open("record", &[]);
        self.write_header(xml, format);
        match kept {
            Some(kept) => kept.write(xml),
            None if self.is_deleted_in(format) => {}
            None => {
                xml.open("metadata", &[]);
                match format {
                    MetadataFormat::DublinCore => self.write_dublin_core(xml),
                    _ => self.write_message(xml, base_url),
                }
                xml.close("metadata");
            }
        }
        xml.close("record");
        Ok(())
    }

    /// Writes Dublin Core: the URI, the types, the media types, and as relations the parent and the other items.
    fn write_dublin_core(&self, xml: &mut XmlWriter) {
        let location = format!("{OAI_DC} {OAI_DC_SCHEMA}");
        let namespaces = [("xmlns:oai_dc", OAI_DC), ("xmlns:dc", DC), ("xmlns:xsi", XSI)];
        xml.open("oai_dc:dc", &[namespaces.as_slice(), &[("xsi:schemaLocation", location.as_str())]].concat());
        xml.leaf("dc:identifier", &[], self.uri.as_str());
        for object_type in self.state.types() {
            xml.leaf("dc:type", &[], object_type.as_str());
        }
        let media_types =
            self.items.iter().filter_map(|item| Some(item.content.as_ref()?.media_type.as_ref()?.as_str()));
        let mut media_types: Vec<_> = media_types.collect();
        media_types.sort_unstable();
        media_types.dedup();
        for media_type in media_types {
            xml.leaf("dc:format", &[], media_type);
        }
        let items = self.items.iter().map(|item| item.uri).filter(|item| *item != self.uri);
        for related in self.state.parent().into_iter().chain(items) {
            xml.leaf("dc:relation", &[], related.as_str());
        }
        xml.close("oai_dc:dc");
    }

    /// Writes the object as a message 0.1 that adds all its items.
    fn write_message(self, xml: &mut XmlWriter, base_url: &str) {
        let Self { uri, state, time, items, .. } = self;
        let item = |VisibleItem { uri: item, content, state }| ContentItemModification {
            id: ItemId::from(stable_id(&[uri.as_str(), item.as_str()])),
            uri: item.clone(),
            change: ItemChange::Add { content, after: state.cloned() },
        };
        let items: Vec<_> = items.into_iter().map(item).collect();
        let Ok(items) = NonEmpty::try_from(items) else { return };
        let modification = ContentObjectModification {
            id: ChangeId::from(stable_id(&[uri.as_str()])),
            user: User::unknown(),
            time: time.timestamp().unwrap_or(Timestamp::EPOCH),
            object: uri.clone(),
            parent: state.parent().cloned(),
            types: state.types().to_vec(),
            description: Text::new(DESCRIPTION),
            report: None,
            // The message has no place for the source.
            origin: Origin { source: source_of(state), event_id: None, software_version: None },
            items,
        };
        let description = MetadataFormat::ContentChange.description(base_url);
        content_change::embed(xml, &modification, &description.map(|known| known.schema).unwrap_or_default());
    }
}

/// Returns the name of the file if content is a copy in the file store.
fn copy_of(content: &ContentLocation) -> Option<FileDigest> {
    let digest = content.digest.as_ref().filter(|digest| digest.algorithm() == DigestAlgorithm::Sha256)?;
    content.original.as_ref()?;
    FileDigest::parse(digest.hex())
}

fn source_of(state: &ObjectState) -> SourceName {
    #[expect(clippy::expect_used, reason = "the constant is a name")]
    state.source.clone().unwrap_or_else(|| SourceName::parse(NO_SOURCE).expect("a name of a source"))
}

/// Returns an identifier that is the same in each response, as those of Atom must be.
fn stable_id(names: &[&str]) -> uuid::Uuid {
    let digest = names.iter().fold(Sha256::new(), |digest, name| {
        // The length separates the names.
        digest.chain_update((name.len() as u64).to_be_bytes()).chain_update(name)
    });
    let digest: [u8; 32] = digest.finalize().into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Builder::from_custom_bytes(bytes).into_uuid()
}
