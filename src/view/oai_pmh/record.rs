//! A record: an object of the registry as a reader sees it, with its items.
//!
//! The object is the item of the protocol, and not each item of the object. An object and its metadata often have the same
//! URI, items of several objects can have the same one, and harvesters index what a person looks for. *Cost:* a change of one
//! item is a new datestamp of its object.

use uuid::Builder;

use super::{document::datestamp, set::SetSpec};
use crate::{
    format::{
        content_change,
        xml_writer::{XSI, XmlWriter},
    },
    journal::{RawContentLocation, acceptance::AcceptanceTime, registry::ObjectState, store::StoreError},
    model::{
        ChangeId, ContentItemModification, ContentLocation, ContentObjectModification, ItemChange, ItemId, NonEmpty,
        Origin, SourceName, State, Text, Timestamp, Uri, User,
    },
    view::registry_view::RegistryView,
};
use sha2::{Digest, Sha256};

const OAI_DC: &str = "http://www.openarchives.org/OAI/2.0/oai_dc/";
const OAI_DC_SCHEMA: &str = "http://www.openarchives.org/OAI/2.0/oai_dc.xsd";
const DC: &str = "http://purl.org/dc/elements/1.1/";

/// File of the schema of the format `content-change`.
pub(super) const CONTENT_CHANGE_SCHEMA: &str = "content-change-message-0.1.xsd";

/// Description of each record as a message.
const DESCRIPTION: &str = "the object as the registry has it";

/// Name of the source of records whose objects have none.
const NO_SOURCE: &str = "registry";

named_values! {
    /// Metadata format.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum MetadataFormat {
        /// Unqualified Dublin Core, which the protocol requires.
        DublinCore = "oai_dc",
        /// The content-change message 0.1, with all that the registry knows.
        ContentChange = "content-change",
    }
}

impl MetadataFormat {
    /// Returns the format with this prefix.
    pub(super) fn of_prefix(prefix: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == prefix)
    }

    /// Returns the namespace of the format.
    pub(super) fn namespace(self) -> &'static str {
        match self {
            Self::DublinCore => OAI_DC,
            Self::ContentChange => content_change::ATOM_NAMESPACE,
        }
    }

    /// Returns the URL of the schema; `base_url` is that of the repository.
    pub(super) fn schema(self, base_url: &str) -> String {
        match self {
            Self::DublinCore => OAI_DC_SCHEMA.to_owned(),
            Self::ContentChange => format!("{base_url}/schemas/{CONTENT_CHANGE_SCHEMA}"),
        }
    }
}

/// A record of the repository.
pub(super) struct Record<'a> {
    uri: &'a Uri,
    state: &'a ObjectState,
    time: AcceptanceTime,
    /// The items that the reader sees; none of a deleted record.
    items: Vec<VisibleItem<'a>>,
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
    ) -> Result<Option<Self>, StoreError> {
        let mut items = Vec::new();
        for (item, _) in state.live_items().filter(|(item, _)| sight.shows_item(item, state)) {
            let content = state.content(item).map(RawContentLocation::parse).transpose()?;
            let content = content.map(|content| sight.content(content));
            items.push(VisibleItem { uri: item, content, state: state.state(item) });
        }
        let has_existed = || {
            let existed = |record: &crate::journal::registry::ItemRecord| record.existence.clock.latest().is_some();
            state.purged.latest().is_some() || state.items.values().any(|record| existed(record))
        };
        let exists = !items.is_empty() || has_existed();
        Ok(exists.then_some(Self { uri, state, time, items, for_public: sight.is_public() }))
    }

    /// Returns whether the object does not exist any more, for the reader.
    pub(super) fn is_deleted(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the sets of the record.
    pub(super) fn sets(&self) -> Vec<SetSpec> {
        match self.is_deleted() {
            true => SetSpec::of_deleted(self.state, self.for_public),
            false => SetSpec::of_object(self.state),
        }
    }

    /// Writes the element `header`.
    pub(super) fn write_header(&self, xml: &mut XmlWriter) {
        let status: &[_] = if self.is_deleted() { &[("status", "deleted")] } else { &[] };
        xml.open("header", status);
        xml.leaf("identifier", &[], self.uri.as_str());
        xml.leaf("datestamp", &[], &datestamp(self.time));
        for set in self.sets() {
            xml.leaf("setSpec", &[], &set.to_string());
        }
        xml.close("header");
    }

    /// Writes the element `record`.
    pub(super) fn write(self, xml: &mut XmlWriter, format: MetadataFormat, base_url: &str) {
        xml.open("record", &[]);
        self.write_header(xml);
        if !self.is_deleted() {
            xml.open("metadata", &[]);
            match format {
                MetadataFormat::DublinCore => self.write_dublin_core(xml),
                MetadataFormat::ContentChange => self.write_message(xml, &format.schema(base_url)),
            }
            xml.close("metadata");
        }
        xml.close("record");
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
    fn write_message(self, xml: &mut XmlWriter, schema: &str) {
        let Self { uri, state, time, items, for_public: _ } = self;
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
        content_change::embed(xml, &modification, schema);
    }
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
