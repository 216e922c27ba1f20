//! Records that a harvest keeps in the file store: each as the response to `GetRecord` that would contain it alone.
//!
//! So a stored file is valid by itself, and has the origin of the record: the repository, the identifier there, and the date
//! of the response. The metadata are those of the repository, with the same names, namespaces, attributes and texts. They are
//! copied when the record is kept and once more when it is disseminated ([`Document::copy`]), so they are well-formed and need
//! no declaration around them, whatever wrote the file. The namespace of the protocol is the default one of all responses.

use super::{
    super::{
        Limits, Location, Rejection,
        xml::Document,
        xml_writer::{XSI, XmlWriter},
    },
    CONTENT_CHANGE, NAMESPACE, OaiPmh, PROVENANCE, Record, RecordHeader, SCHEMA_LOCATION, get_record_url,
    provenance::{OriginDescription, in_form, origins},
};
use crate::{
    model::{ContentLocation, SourceName, Timestamp, Uri},
    text::is_xml_char,
};

/// Approximate size of a response without its record, in bytes.
const ENVELOPE_BYTES: usize = 1024;

/// Maximum number of containers `about` that a copy has. Others are left out.
const MAX_ABOUTS: usize = 32;

/// Maximum depth of an element of a response that is not one of a record's metadata: its origins are within each other.
const ENVELOPE_DEPTH: usize = 16;

/// Number of namespaces that a response declares.
const ENVELOPE_NAMES: usize = 2;

/// Records of a repository with OAI-PMH that the file store has as the repository has sent them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRecords {
    /// Source of the harvest.
    pub source: SourceName,
    /// Base URL in the URIs of the records.
    pub base_url: String,
    /// Prefix of their metadata format.
    pub prefix: String,
}

/// A record that can be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRecord {
    /// URI of the record.
    pub address: Uri,
    /// The response that contains it.
    pub document: String,
    /// SHA-256 of the canonical metadata, by the rules of this version and by those of versions until 0.1.0.
    digests: [String; 2],
}

/// Origin of a list of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordOrigin {
    /// Base URL of the repository, without credentials.
    pub base_url: String,
    /// Prefix of the metadata format.
    pub prefix: String,
    /// Date of the response.
    pub date: Timestamp,
}

impl KeptRecord {
    /// Reads the element `record` with the namespaces that it uses. `None` if it has no metadata, cannot be read, which the
    /// dialect reports, or is the record of an object of another gateway, which the registry has already.
    ///
    /// # Errors
    /// Fails if the metadata cannot be a part of another document.
    pub fn read(record: &[u8], origin: &RecordOrigin, limits: Limits) -> Result<Option<Self>, Rejection> {
        let RecordOrigin { base_url, prefix, .. } = origin;
        let Ok(Record { header: Some(header), digest: Some(digest), .. }) =
            (OaiPmh { files: None, sets: false, limits }).record(record, false)
        else {
            return Ok(None);
        };
        if header.is_deleted || prefix == CONTENT_CHANGE {
            return Ok(None);
        }
        let Ok(address) = get_record_url(base_url, prefix, &header.identifier) else { return Ok(None) };
        let copies = Copies::read(record, limits)?;
        let document = document(&header, &copies, origin);
        // A copy that the dialect cannot read again would be lost to harvesters without a report.
        let is_readable = KeptDocument::parse(document.as_bytes(), limits)?.is_of(base_url, prefix, &header.identifier);
        if !is_readable {
            let reason = "its identifier has characters that XML forbids";
            return Err(Rejection::unprocessable(Location::Message, reason));
        }
        Ok(Some(Self { address, document, digests: [digest.digest, digest.former] }))
    }

    /// Returns whether content is a copy of a record with the same metadata.
    #[must_use]
    pub fn is_kept_as(&self, content: &ContentLocation) -> bool {
        let original = content.original.as_deref().and_then(|original| original.digest.as_ref());
        original.is_some_and(|digest| self.digests.iter().any(|known| known == digest.hex()))
    }
}

/// Copies of the parts of a record.
#[derive(Default)]
struct Copies {
    metadata: Option<CopiedMetadata>,
    /// Contents of the containers `about`, without provenance.
    abouts: Vec<String>,
    origins: Vec<OriginDescription>,
}

/// Copy of the metadata.
#[derive(Debug)]
struct CopiedMetadata {
    xml: String,
    namespace: String,
    schema: Option<String>,
}

impl Copies {
    /// Reads the element `record`.
    fn read(record: &[u8], limits: Limits) -> Result<Self, Rejection> {
        let mut document = Document::open(record, limits)?;
        document.root()?;
        Self::of(&mut document).map(|(_, copies)| copies)
    }

    /// Reads the content of an element `record`, with its header.
    fn of(document: &mut Document<'_>) -> Result<(RecordHeader, Self), Rejection> {
        let (mut header, mut copies) = (RecordHeader::default(), Self::default());
        while let Some(child) = document.child()? {
            if child.is(NAMESPACE, "header") {
                header = super::record_header(document, &child)?;
            } else if child.is(NAMESPACE, "about") {
                copies.about(document)?;
            } else if child.is(NAMESPACE, "metadata") {
                copies.metadata(document)?;
            } else {
                document.skip()?;
            }
        }
        Ok((header, copies))
    }

    /// Copies the metadata, which the schema of the protocol allows in another namespace alone.
    fn metadata(&mut self, document: &mut Document<'_>) -> Result<(), Rejection> {
        while let Some(content) = document.child()? {
            let namespace = content.namespace().filter(|namespace| is_foreign(namespace)).map(ToOwned::to_owned);
            let namespace =
                namespace.ok_or_else(|| content.unprocessable("the metadata have no namespace of their own"))?;
            let schema = content.attribute("xsi:schemaLocation").and_then(|pairs| {
                let mut words = pairs.split_ascii_whitespace();
                words.by_ref().find(|word| *word == namespace)?;
                words.next().filter(|schema| Uri::parse(schema).is_ok()).map(ToOwned::to_owned)
            });
            let mut xml = String::new();
            document.copy(&content, NAMESPACE, &mut xml)?;
            self.metadata = Some(CopiedMetadata { xml, namespace, schema });
        }
        Ok(())
    }

    /// Copies the content of a container `about`. One in the namespace of the protocol, which its schema forbids, is left out.
    fn about(&mut self, document: &mut Document<'_>) -> Result<(), Rejection> {
        while let Some(content) = document.child()? {
            if content.is(PROVENANCE, "provenance") {
                origins(document, &mut self.origins)?;
                continue;
            }
            let is_foreign = content.namespace().is_some_and(is_foreign);
            let mut xml = String::new();
            document.copy(&content, NAMESPACE, &mut xml)?;
            if is_foreign && self.abouts.len() < MAX_ABOUTS {
                self.abouts.push(xml);
            }
        }
        Ok(())
    }
}

fn is_foreign(namespace: &str) -> bool {
    !namespace.is_empty() && namespace != NAMESPACE
}

fn document(header: &RecordHeader, copies: &Copies, origin: &RecordOrigin) -> String {
    let RecordHeader { identifier, datestamp, sets, .. } = header;
    let RecordOrigin { base_url, prefix, date } = origin;
    let cleaned = |text: &str| text.chars().filter(|c| is_xml_char(*c)).collect::<String>();
    let [identifier, datestamp] = [identifier, datestamp].map(|text| cleaned(text));
    let metadata = copies.metadata.as_ref().map_or("", |metadata| &metadata.xml);
    let mut xml = XmlWriter::document(metadata.len() + ENVELOPE_BYTES);
    xml.open("OAI-PMH", &[("xmlns", NAMESPACE), ("xmlns:xsi", XSI), ("xsi:schemaLocation", SCHEMA_LOCATION)]);
    xml.leaf("responseDate", &[], &datestamp_text(*date));
    let arguments = [("verb", "GetRecord"), ("identifier", identifier.as_str()), ("metadataPrefix", prefix)];
    xml.leaf("request", &arguments, base_url);
    xml.open("GetRecord", &[]);
    xml.open("record", &[]);
    xml.open("header", &[]);
    xml.leaf("identifier", &[], &identifier);
    xml.leaf("datestamp", &[], &datestamp);
    for set in sets {
        xml.leaf("setSpec", &[], &cleaned(set));
    }
    xml.close("header");
    write_copies(&mut xml, metadata, &copies.abouts, &copies.origins);
    xml.close("record");
    xml.close("GetRecord");
    xml.close("OAI-PMH");
    xml.into_text()
}

/// Writes the elements `metadata` and `about` of a record. Of several origins, each is within the one before it.
fn write_copies(xml: &mut XmlWriter, metadata: &str, abouts: &[String], origins: &[OriginDescription]) {
    xml.open("metadata", &[]);
    xml.element(metadata);
    xml.close("metadata");
    for about in abouts {
        xml.open("about", &[]);
        xml.element(about);
        xml.close("about");
    }
    let origins: Vec<_> = origins.iter().cloned().map_while(OriginDescription::valid).collect();
    if origins.is_empty() {
        return;
    }
    xml.open("about", &[]);
    xml.open(
        "provenance",
        &[("xmlns", PROVENANCE), ("xmlns:xsi", XSI), ("xsi:schemaLocation", PROVENANCE_SCHEMA_LOCATION)],
    );
    for origin in &origins {
        let altered = if origin.is_altered { "true" } else { "false" };
        xml.open("originDescription", &[("harvestDate", &origin.harvest_date), ("altered", altered)]);
        xml.leaf("baseURL", &[], &origin.base_url);
        xml.leaf("identifier", &[], &origin.identifier);
        xml.leaf("datestamp", &[], &origin.datestamp);
        xml.leaf("metadataNamespace", &[], &origin.metadata_namespace);
    }
    origins.iter().for_each(|_| xml.close("originDescription"));
    xml.close("provenance");
    xml.close("about");
}

/// Namespace and location of the schema of provenance.
const PROVENANCE_SCHEMA_LOCATION: &str =
    "http://www.openarchives.org/OAI/2.0/provenance http://www.openarchives.org/OAI/2.0/provenance.xsd";

/// Returns a time in the form of datestamps with seconds (section 3.3).
#[must_use]
pub fn datestamp_text(time: Timestamp) -> String {
    time.datetime().format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A kept record, as its file has it.
#[derive(Debug)]
pub struct KeptDocument {
    /// Base URL of the repository.
    base_url: String,
    /// Prefix of the metadata format.
    prefix: String,
    /// Identifier in the repository.
    identifier: String,
    metadata: CopiedMetadata,
    abouts: Vec<String>,
    /// Origins, that of the file first.
    origins: Vec<OriginDescription>,
}

impl KeptDocument {
    /// Parses the file of a kept record.
    ///
    /// # Errors
    /// Fails if it is another document, or its metadata cannot be a part of a response.
    pub fn parse(file: &[u8], limits: Limits) -> Result<Self, Rejection> {
        // A copy has the declarations around it, and a file the elements around its record.
        let limits = Limits {
            xml_depth: limits.xml_depth.saturating_add(ENVELOPE_DEPTH),
            xml_attributes: limits.xml_attributes.saturating_mul(2).saturating_add(ENVELOPE_NAMES),
            ..limits
        };
        let mut document = Document::open(file, limits)?;
        let root = document.root()?;
        let other =
            |reason: &str| Rejection::unprocessable(Location::Message, format!("this is no kept record: {reason}"));
        if !root.is(NAMESPACE, "OAI-PMH") {
            return Err(other("another root"));
        }
        let (mut base_url, mut prefix, mut date, mut kept) = (String::new(), String::new(), String::new(), None);
        while let Some(child) = document.child()? {
            if child.is(NAMESPACE, "responseDate") {
                date = document.text()?.into_owned();
            } else if child.is(NAMESPACE, "request") {
                prefix = child.attribute("metadataPrefix").unwrap_or_default().into_owned();
                base_url = document.text()?.into_owned();
            } else {
                while let Some(record) = document.child()? {
                    if record.is(NAMESPACE, "record") {
                        kept = Some(Copies::of(&mut document)?);
                    } else {
                        document.skip()?;
                    }
                }
            }
        }
        let (RecordHeader { identifier, datestamp, .. }, Copies { metadata, abouts, mut origins }) =
            kept.ok_or_else(|| other("no record"))?;
        let metadata = metadata.ok_or_else(|| other("no metadata"))?;
        let own = OriginDescription {
            base_url: base_url.clone(),
            identifier: identifier.clone(),
            datestamp: in_form(&datestamp).unwrap_or_else(|| date.clone()),
            metadata_namespace: metadata.namespace.clone(),
            harvest_date: date,
            is_altered: false,
        };
        origins.insert(0, own);
        Ok(Self { base_url, prefix, identifier, metadata, abouts, origins })
    }

    /// Returns whether the record is that of this repository, format and identifier.
    #[must_use]
    pub fn is_of(&self, base_url: &str, prefix: &str, identifier: &str) -> bool {
        self.base_url == base_url && self.prefix == prefix && self.identifier == identifier
    }

    /// Returns the namespace of the metadata.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    /// Returns the location of the schema of this namespace, if the metadata name it.
    #[must_use]
    pub fn schema(&self) -> Option<&str> {
        self.metadata.schema.as_deref()
    }

    /// Writes the elements `metadata` and `about`, the latter also with the provenance.
    pub(crate) fn write(&self, xml: &mut XmlWriter) {
        write_copies(xml, &self.metadata.xml, &self.abouts, &self.origins);
    }
}

#[cfg(test)]
mod tests;
