//! Parses responses of Fedora 3's REST API: the profile of a datastream, its history, and the list of an object's
//! datastreams. They supply what messages of Fedora 3 lack.
//!
//! Elements are matched by local name: profiles of 3.3 have no namespace, and lists of profiles put the fields
//! under a prefix. Sources: `DefaultSerializer` and `DatastreamResource` of fcrepo 3.3 to 3.8.

use super::{
    Limits, Rejection,
    xml::{Document, Element},
};
use crate::model::{Digest, DigestAlgorithm, MediaType, State, Timestamp};

/// A version of a datastream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatastreamVersion {
    /// Identifier of the datastream; empty if the response omits it.
    pub datastream: String,
    /// Identifier of the version; empty if the response omits it.
    pub id: String,
    /// Creation time.
    pub created: Timestamp,
    /// State of the datastream, which applies to all its versions.
    pub state: Option<State>,
    /// Media type.
    pub media_type: Option<MediaType>,
    /// Size in bytes, if Fedora stores the content and knows the size.
    pub size: Option<u64>,
    /// Digest of the content, if Fedora computes one.
    pub digest: Option<Digest>,
    /// Whether the version remains when a newer one is created.
    pub is_versioned: bool,
}

impl DatastreamVersion {
    /// Returns whether this is the first version, which `addDatastream` creates with the number 0.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.id.rsplit_once('.').is_some_and(|(_, number)| number == "0")
    }
}

/// An entry in the list of an object's datastreams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListedDatastream {
    /// With the newest version (3.6 and later).
    WithProfile(DatastreamVersion),
    /// Only the identifier.
    IdOnly(String),
}

impl ListedDatastream {
    /// Returns the identifier; empty if the response omits it.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::WithProfile(version) => &version.datastream,
            Self::IdOnly(id) => id,
        }
    }
}

/// Parses `GET /objects/{pid}/datastreams/{dsID}?format=xml`.
///
/// # Errors
/// Rejects any other document.
pub fn datastream_profile(body: &[u8], limits: Limits) -> Result<DatastreamVersion, Rejection> {
    let mut document = Document::open(body, limits)?;
    let root = document.root()?;
    if local_name(&root) != "datastreamProfile" {
        return Err(root.unprocessable("this is not a datastreamProfile"));
    }
    let version = version(&mut document, &root)?;
    document.finish()?;
    Ok(version)
}

/// Parses `GET /objects/{pid}/datastreams/{dsID}/history?format=xml`, up to as many versions as a change may
/// have items.
///
/// # Errors
/// Rejects any other document.
pub fn datastream_history(body: &[u8], limits: Limits) -> Result<Vec<DatastreamVersion>, Rejection> {
    let mut document = Document::open(body, limits)?;
    let root = document.root()?;
    if local_name(&root) != "datastreamHistory" {
        return Err(root.unprocessable("this is not a datastreamHistory"));
    }
    let mut versions = Vec::new();
    while let Some(child) = document.child()? {
        match local_name(&child) {
            "datastreamProfile" if versions.len() < limits.items => versions.push(version(&mut document, &child)?),
            "datastreamProfile" => return Err(too_many(&child, "versions", limits)),
            _ => document.skip()?,
        }
    }
    document.finish()?;
    Ok(versions)
}

/// Parses `GET /objects/{pid}/datastreams?format=xml`, with or without `profiles=true`.
///
/// # Errors
/// Rejects any other document, and more datastreams than a change may have items.
pub fn datastreams(body: &[u8], limits: Limits) -> Result<Vec<ListedDatastream>, Rejection> {
    let mut document = Document::open(body, limits)?;
    let root = document.root()?;
    if local_name(&root) != "objectDatastreams" {
        return Err(root.unprocessable("this is not an objectDatastreams"));
    }
    let mut listed = Vec::new();
    while let Some(child) = document.child()? {
        let name = local_name(&child);
        if matches!(name, "datastream" | "datastreamProfile") && listed.len() == limits.items {
            return Err(too_many(&child, "datastreams", limits));
        }
        match name {
            "datastreamProfile" => listed.push(ListedDatastream::WithProfile(version(&mut document, &child)?)),
            "datastream" => {
                let id = child.attribute("dsid").or_else(|| child.attribute("dsID"));
                let id = id.ok_or_else(|| child.unprocessable("the datastream has no dsid"))?;
                listed.push(ListedDatastream::IdOnly(id.into_owned()));
                document.skip()?;
            }
            _ => document.skip()?,
        }
    }
    document.finish()?;
    Ok(listed)
}

/// Parses the fields of a profile.
fn version(document: &mut Document<'_>, start: &Element<'_>) -> Result<DatastreamVersion, Rejection> {
    let datastream = start.attribute("dsID").unwrap_or_default().into_owned();
    let (mut id, mut created, mut state, mut media_type) = (String::new(), None, None, None);
    let (mut size, mut algorithm, mut digest) = (None::<i64>, None, String::new());
    let (mut is_managed, mut is_versioned) = (true, true);
    while let Some(field) = document.child()? {
        let text = document.text()?;
        let text = text.trim();
        match local_name(&field) {
            "dsVersionID" => text.clone_into(&mut id),
            "dsCreateDate" => {
                let time = Timestamp::parse(text).map_err(|invalid| field.unprocessable(invalid.to_string()))?;
                created = Some(time);
            }
            "dsState" => state = state_from_letter(text),
            // Fedora accepts any text here.
            "dsMIME" => media_type = MediaType::parse(text).ok(),
            "dsSize" => size = text.parse().ok(),
            "dsChecksumType" => algorithm = DigestAlgorithm::parse(text),
            "dsChecksum" => text.clone_into(&mut digest),
            "dsControlGroup" => is_managed = matches!(text, "X" | "M"),
            "dsVersionable" => is_versioned = text != "false",
            _ => {}
        }
    }
    let created = created.ok_or_else(|| start.unprocessable("the profile has no dsCreateDate"))?;
    // Fedora also reports 0 for content that it does not store.
    let size = size.and_then(|size| u64::try_from(size).ok()).filter(|size| *size > 0 || is_managed);
    let digest = algorithm.and_then(|algorithm| Digest::parse(algorithm, &digest).ok());
    Ok(DatastreamVersion { datastream, id, created, state, media_type, size, digest, is_versioned })
}

/// Converts Fedora's letter for a state.
pub(super) fn state_from_letter(letter: &str) -> Option<State> {
    match letter {
        "A" => Some(State::ACTIVE),
        "I" => Some(State::INACTIVE),
        "D" => Some(State::DELETED),
        _ => None,
    }
}

fn too_many(at: &Element<'_>, what: &str, limits: Limits) -> Rejection {
    at.unprocessable(format!("there are more than {} {what}", limits.items))
}

/// Returns the element's name without its prefix.
pub(super) fn local_name<'a>(element: &Element<'a>) -> &'a str {
    let name = element.name();
    name.split_once(':').map_or(name, |(_, local)| local)
}

#[cfg(test)]
mod tests {
    use super::{Limits, ListedDatastream, datastream_history, datastream_profile, datastreams};

    const FIELDS: &str = "<dsLabel>Dublin Core</dsLabel><dsVersionID>DC.2</dsVersionID>\
        <dsCreateDate>2013-04-05T06:07:08.9Z</dsCreateDate><dsState>I</dsState><dsMIME>text/xml</dsMIME>\
        <dsFormatURI/><dsControlGroup>X</dsControlGroup><dsSize>491</dsSize><dsVersionable>true</dsVersionable>\
        <dsInfoType/><dsLocation>demo:5+DC+DC.2</dsLocation><dsLocationType/>\
        <dsChecksumType>MD5</dsChecksumType><dsChecksum>d41d8cd98f00b204e9800998ecf8427e</dsChecksum>";

    fn profile(fields: &str) -> String {
        format!(
            r#"<?xml version="1.0" encoding="UTF-8"?><datastreamProfile pid="demo:5" dsID="DC">{fields}</datastreamProfile>"#
        )
    }

    #[test]
    fn profile_is_parsed_with_and_without_namespace() {
        let read = datastream_profile(profile(FIELDS).as_bytes(), Limits::default()).unwrap();
        assert_eq!((read.datastream.as_str(), read.id.as_str()), ("DC", "DC.2"));
        assert_eq!(read.created.to_string(), "2013-04-05T06:07:08.900Z");
        assert_eq!(read.state.as_ref().unwrap().as_str(), "INACTIVE");
        assert_eq!(read.media_type.as_ref().unwrap().as_str(), "text/xml");
        assert_eq!((read.size, read.is_first(), read.is_versioned), (Some(491), false, true));
        assert_eq!(read.digest.as_ref().unwrap().hex(), "d41d8cd98f00b204e9800998ecf8427e");
        let named = profile(FIELDS).replace(
            "<datastreamProfile ",
            r#"<datastreamProfile xmlns="http://www.fedora.info/definitions/1/0/management/" "#,
        );
        assert_eq!(datastream_profile(named.as_bytes(), Limits::default()).unwrap(), read);
    }

    #[test]
    fn unknown_values_are_none() {
        for (from, to) in [
            ("<dsMIME>text/xml", "<dsMIME>unknown"),
            ("<dsSize>491", "<dsSize>-1"),
            ("<dsChecksumType>MD5", "<dsChecksumType>DISABLED"),
            ("d41d8cd98f00b204e9800998ecf8427e", "none"),
            ("<dsControlGroup>X</dsControlGroup><dsSize>491", "<dsControlGroup>R</dsControlGroup><dsSize>0"),
        ] {
            let fields = FIELDS.replace(from, to);
            assert_ne!(fields, FIELDS);
            let read = datastream_profile(profile(&fields).as_bytes(), Limits::default()).unwrap();
            let missing = [read.media_type.is_none(), read.size.is_none(), read.digest.is_none()];
            assert_eq!(missing.into_iter().filter(|missing| *missing).count(), 1, "{to}");
        }
        let empty = FIELDS.replace("<dsSize>491", "<dsSize>0");
        assert_eq!(datastream_profile(profile(&empty).as_bytes(), Limits::default()).unwrap().size, Some(0));
    }

    #[test]
    fn list_contains_ids_or_profiles() {
        let named = r#"<objectDatastreams xmlns="http://www.fedora.info/definitions/1/0/access/" pid="demo:5" baseURL="http://h/">
            <datastream dsid="DC" label="Dublin Core" mimeType="text/xml"/><datastream dsid="OBJ" label="" mimeType=""/>
            </objectDatastreams>"#;
        let named = datastreams(named.as_bytes(), Limits::default()).unwrap();
        assert_eq!(named, ["DC", "OBJ"].map(|id| ListedDatastream::IdOnly(id.to_owned())));
        let prefixed = FIELDS.replace("</ds", "</apim:ds").replace("<ds", "<apim:ds");
        let whole = format!(
            r#"<objectDatastreams xmlns="http://www.fedora.info/definitions/1/0/access/" xmlns:apim="http://www.fedora.info/definitions/1/0/management/" pid="demo:5"><datastreamProfile pid="demo:5" dsID="DC" >{prefixed}</datastreamProfile></objectDatastreams>"#
        );
        let whole = datastreams(whole.as_bytes(), Limits::default()).unwrap();
        let alone = datastream_profile(profile(FIELDS).as_bytes(), Limits::default()).unwrap();
        assert_eq!(whole, [ListedDatastream::WithProfile(alone)]);
    }

    #[test]
    fn history_contains_every_version() {
        let of = |id: &str| format!("<datastreamProfile>{}</datastreamProfile>", FIELDS.replace("DC.2", id));
        let history = format!("<datastreamHistory>{}{}</datastreamHistory>", of("DC.1"), of("DC.0"));
        let versions = datastream_history(history.as_bytes(), Limits::default()).unwrap();
        assert_eq!(versions.iter().map(super::DatastreamVersion::is_first).collect::<Vec<_>>(), [false, true]);
        let limits = Limits { items: 1, ..Limits::default() };
        assert!(datastream_history(history.as_bytes(), limits).unwrap_err().reason.contains("more than 1 versions"));
    }

    #[test]
    fn other_documents_are_rejected() {
        for body in ["", "<html><body>Log in</body></html>", "nonsense", "<datastreamProfile/>", "{}", "\u{0}\u{1}"] {
            let body = body.as_bytes();
            assert!(datastream_profile(body, Limits::default()).is_err());
            assert!(datastreams(body, Limits::default()).is_err());
            assert!(datastream_history(body, Limits::default()).is_err());
        }
    }
}
