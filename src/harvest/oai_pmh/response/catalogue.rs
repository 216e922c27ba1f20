//! The parts of responses that say what a repository has: its sets and its metadata formats.

use serde::Serialize;

use super::{Child, InvalidResponse, Parser};

/// Maximum length of a text of a set or a metadata format in memory, in bytes. A longer one is cut.
const MAX_FIELD_BYTES: usize = 256;

/// Maximum number of sets of a page of `ListSets`, and of metadata formats. Others are ignored.
const MAX_DESCRIPTIONS: usize = 10_000;

/// A set of a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SetDescription {
    /// Value of the setting `sets`, and of the argument `set`.
    pub spec: String,
    /// Name for people.
    pub name: String,
}

/// A metadata format of a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FormatDescription {
    /// Value of the setting `metadata_prefix`.
    pub prefix: String,
    /// Namespace of the metadata.
    pub namespace: String,
    /// URL of the XML schema.
    pub schema: String,
}

impl Parser<'_> {
    /// Reads a page of sets, and the token of the next one.
    pub(super) fn sets(&mut self) -> Result<(Vec<SetDescription>, Option<String>), InvalidResponse> {
        let (mut sets, mut token) = (Vec::new(), None);
        while let Child::Start(start, is_oai) = self.child()? {
            match start.local_name().as_ref() {
                b"set" if is_oai => {}
                b"resumptionToken" if is_oai => {
                    token = self.token()?;
                    continue;
                }
                _ => {
                    self.skip()?;
                    continue;
                }
            }
            let mut set = SetDescription::default();
            while let Child::Start(field, is_oai) = self.child()? {
                match field.local_name().as_ref() {
                    b"setSpec" if is_oai => set.spec = self.text_of(MAX_FIELD_BYTES)?,
                    b"setName" if is_oai => set.name = self.text_of(MAX_FIELD_BYTES)?,
                    _ => self.skip()?,
                }
            }
            if sets.len() < MAX_DESCRIPTIONS && !set.spec.is_empty() {
                sets.push(set);
            }
        }
        Ok((sets, token))
    }

    /// Reads the metadata formats.
    pub(super) fn formats(&mut self) -> Result<Vec<FormatDescription>, InvalidResponse> {
        let mut formats = Vec::new();
        while let Child::Start(start, is_oai) = self.child()? {
            if !is_oai || start.local_name().as_ref() != b"metadataFormat" {
                self.skip()?;
                continue;
            }
            let mut format = FormatDescription::default();
            while let Child::Start(field, is_oai) = self.child()? {
                match field.local_name().as_ref() {
                    b"metadataPrefix" if is_oai => format.prefix = self.text_of(MAX_FIELD_BYTES)?,
                    b"metadataNamespace" if is_oai => format.namespace = self.text_of(MAX_FIELD_BYTES)?,
                    b"schema" if is_oai => format.schema = self.text_of(MAX_FIELD_BYTES)?,
                    _ => self.skip()?,
                }
            }
            if formats.len() < MAX_DESCRIPTIONS && !format.prefix.is_empty() {
                formats.push(format);
            }
        }
        Ok(formats)
    }
}
