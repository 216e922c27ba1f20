//! What Fedora 3's REST API answers: the profile of a datastream, its history, the list of an object's datastreams, and
//! the relationships in RELS-EXT. It is read to complete what a message of Fedora 3 could not say.
//!
//! Elements are known by their local names: the namespaces came late (the profiles of 3.3 have none), and a list of
//! profiles has those of its fields under a prefix. Sources: `DefaultSerializer` and `DatastreamResource` of fcrepo 3.3
//! to 3.8, and the ontology of relationships (`info:fedora/fedora-system:def/relations-external#`).

use std::collections::HashSet;

use super::{
    Limits, Rejection,
    xml::{Document, Element},
};
use crate::model::{Digest, DigestAlgorithm, MediaType, State, Timestamp, Uri};

/// A version of a datastream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatastreamVersion {
    /// The datastream's identifier; empty where the answer leaves it out.
    pub datastream: String,
    /// The version's identifier; empty where the answer leaves it out.
    pub id: String,
    /// When it was made.
    pub created: Timestamp,
    /// The state of the datastream, in all its versions.
    pub state: Option<State>,
    /// Its media type.
    pub media_type: Option<MediaType>,
    /// Its size in bytes, where Fedora holds the content and knows it.
    pub size: Option<u64>,
    /// A digest of it, where Fedora makes one.
    pub digest: Option<Digest>,
    /// Whether it stays when there is a newer one.
    pub is_kept: bool,
}

impl DatastreamVersion {
    /// Whether it is the first, which `addDatastream` made: that has the number 0.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.id.rsplit_once('.').is_some_and(|(_, number)| number == "0")
    }
}

/// A datastream in the list of an object's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListedDatastream {
    /// With its newest version (3.6 and later).
    Whole(DatastreamVersion),
    /// By its identifier.
    Named(String),
}

/// What RELS-EXT says of its object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relations {
    /// Its content models.
    pub models: Vec<Uri>,
    /// What it belongs to, by the relationship that says so most closely.
    pub parent: Option<Uri>,
}

/// The relationships that say what an object belongs to, the closest first.
const OF_PARENTS: [&str; 5] = ["isConstituentOf", "isPartOf", "isMemberOf", "isMemberOfCollection", "isSubsetOf"];

/// Where the relationships of Fedora's own ontology and of its content models are.
const RELATIONS: &str = "info:fedora/fedora-system:def/relations-external#";
const MODEL: &str = "info:fedora/fedora-system:def/model#";

/// Reads `GET /objects/{pid}/datastreams/{dsID}?format=xml`.
///
/// # Errors
/// When it is something else.
pub fn datastream_profile(body: &[u8], limits: Limits) -> Result<DatastreamVersion, Rejection> {
    let mut document = Document::open(body, limits)?;
    let root = document.root()?;
    if local(&root) != "datastreamProfile" {
        return Err(root.unprocessable("this is no datastreamProfile"));
    }
    let version = version(&mut document, &root)?;
    document.finish()?;
    Ok(version)
}

/// Reads `GET /objects/{pid}/datastreams/{dsID}/history?format=xml`, as many versions as a change may have items.
///
/// # Errors
/// When it is something else.
pub fn datastream_history(body: &[u8], limits: Limits) -> Result<Vec<DatastreamVersion>, Rejection> {
    let mut document = Document::open(body, limits)?;
    let root = document.root()?;
    if local(&root) != "datastreamHistory" {
        return Err(root.unprocessable("this is no datastreamHistory"));
    }
    let mut versions = Vec::new();
    while let Some(child) = document.child()? {
        match local(&child) {
            "datastreamProfile" if versions.len() < limits.items => versions.push(version(&mut document, &child)?),
            "datastreamProfile" => return Err(too_many(&child, "versions", limits)),
            _ => document.skip()?,
        }
    }
    document.finish()?;
    Ok(versions)
}

/// Reads `GET /objects/{pid}/datastreams?format=xml`, with `profiles=true` or without.
///
/// # Errors
/// When it is something else, or lists more datastreams than a change may have items.
pub fn datastreams(body: &[u8], limits: Limits) -> Result<Vec<ListedDatastream>, Rejection> {
    let mut document = Document::open(body, limits)?;
    let root = document.root()?;
    if local(&root) != "objectDatastreams" {
        return Err(root.unprocessable("this is no objectDatastreams"));
    }
    let mut listed = Vec::new();
    while let Some(child) = document.child()? {
        let name = local(&child);
        if matches!(name, "datastream" | "datastreamProfile") && listed.len() == limits.items {
            return Err(too_many(&child, "datastreams", limits));
        }
        match name {
            "datastreamProfile" => listed.push(ListedDatastream::Whole(version(&mut document, &child)?)),
            "datastream" => {
                let id = child.attribute("dsid").or_else(|| child.attribute("dsID"));
                let id = id.ok_or_else(|| child.unprocessable("the datastream has no dsid"))?;
                listed.push(ListedDatastream::Named(id.into_owned()));
                document.skip()?;
            }
            _ => document.skip()?,
        }
    }
    document.finish()?;
    Ok(listed)
}

/// Reads the content of RELS-EXT (RDF/XML, as Fedora's own checks demand it: one `rdf:Description`, one level deep).
///
/// # Errors
/// When it is something else.
pub fn relations(body: &[u8], limits: Limits) -> Result<Relations, Rejection> {
    let mut document = Document::open(body, limits)?;
    let root = document.root()?;
    if local(&root) != "RDF" {
        return Err(root.unprocessable("this is no RDF"));
    }
    let mut relations = Relations::default();
    let mut closest = OF_PARENTS.len();
    let mut models = HashSet::new();
    while let Some(description) = document.child()? {
        if local(&description) != "Description" {
            document.skip()?;
            continue;
        }
        while let Some(relation) = document.child()? {
            let object = relation.attribute("rdf:resource").and_then(|object| Uri::parse(&object).ok());
            document.skip()?;
            let Some(object) = object else { continue };
            let name = local(&relation);
            if relation.is(MODEL, name) && name == "hasModel" && models.insert(object.clone()) {
                relations.models.push(object);
            } else if relation.is(RELATIONS, name)
                && let Some(rank) = OF_PARENTS.iter().position(|known| *known == name)
                && rank < closest
            {
                closest = rank;
                relations.parent = Some(object);
            }
        }
    }
    document.finish()?;
    Ok(relations)
}

/// The fields of a profile.
fn version(document: &mut Document<'_>, start: &Element<'_>) -> Result<DatastreamVersion, Rejection> {
    let datastream = start.attribute("dsID").unwrap_or_default().into_owned();
    let (mut id, mut created, mut state, mut media_type) = (String::new(), None, None, None);
    let (mut size, mut algorithm, mut digest) = (None::<i64>, None, String::new());
    let (mut is_held, mut is_kept) = (true, true);
    while let Some(field) = document.child()? {
        let text = document.text()?;
        let text = text.trim();
        match local(&field) {
            "dsVersionID" => text.clone_into(&mut id),
            "dsCreateDate" => {
                let time = Timestamp::parse(text).map_err(|invalid| field.unprocessable(invalid.to_string()))?;
                created = Some(time);
            }
            "dsState" => state = state_of(text),
            // Fedora takes any text.
            "dsMIME" => media_type = MediaType::parse(text).ok(),
            "dsSize" => size = text.parse().ok(),
            "dsChecksumType" => algorithm = DigestAlgorithm::parse(text),
            "dsChecksum" => text.clone_into(&mut digest),
            "dsControlGroup" => is_held = matches!(text, "X" | "M"),
            "dsVersionable" => is_kept = text != "false",
            _ => {}
        }
    }
    let created = created.ok_or_else(|| start.unprocessable("the profile has no dsCreateDate"))?;
    // Of what is elsewhere Fedora says 0 as well.
    let size = size.and_then(|size| u64::try_from(size).ok()).filter(|size| *size > 0 || is_held);
    let digest = algorithm.and_then(|algorithm| Digest::parse(algorithm, &digest).ok());
    Ok(DatastreamVersion { datastream, id, created, state, media_type, size, digest, is_kept })
}

/// The state that stands behind a letter of Fedora's.
pub(super) fn state_of(letter: &str) -> Option<State> {
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

/// The name without its prefix.
pub(super) fn local<'a>(element: &Element<'a>) -> &'a str {
    let name = element.name();
    name.split_once(':').map_or(name, |(_, local)| local)
}

#[cfg(test)]
mod tests {
    use super::{
        Limits, ListedDatastream, Relations, Uri, datastream_history, datastream_profile, datastreams, relations,
    };

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
    fn a_profile_is_read_with_a_namespace_and_without() {
        let read = datastream_profile(profile(FIELDS).as_bytes(), Limits::default()).unwrap();
        assert_eq!((read.datastream.as_str(), read.id.as_str()), ("DC", "DC.2"));
        assert_eq!(read.created.to_string(), "2013-04-05T06:07:08.900Z");
        assert_eq!(read.state.as_ref().unwrap().as_str(), "INACTIVE");
        assert_eq!(read.media_type.as_ref().unwrap().as_str(), "text/xml");
        assert_eq!((read.size, read.is_first(), read.is_kept), (Some(491), false, true));
        assert_eq!(read.digest.as_ref().unwrap().hex(), "d41d8cd98f00b204e9800998ecf8427e");
        let named = profile(FIELDS).replace(
            "<datastreamProfile ",
            r#"<datastreamProfile xmlns="http://www.fedora.info/definitions/1/0/management/" "#,
        );
        assert_eq!(datastream_profile(named.as_bytes(), Limits::default()).unwrap(), read);
    }

    #[test]
    fn what_fedora_does_not_know_is_not_told() {
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
            let untold = [read.media_type.is_none(), read.size.is_none(), read.digest.is_none()];
            assert_eq!(untold.into_iter().filter(|untold| *untold).count(), 1, "{to}");
        }
        let empty = FIELDS.replace("<dsSize>491", "<dsSize>0");
        assert_eq!(datastream_profile(profile(&empty).as_bytes(), Limits::default()).unwrap().size, Some(0));
    }

    #[test]
    fn a_list_has_names_or_profiles() {
        let named = r#"<objectDatastreams xmlns="http://www.fedora.info/definitions/1/0/access/" pid="demo:5" baseURL="http://h/">
            <datastream dsid="DC" label="Dublin Core" mimeType="text/xml"/><datastream dsid="OBJ" label="" mimeType=""/>
            </objectDatastreams>"#;
        let named = datastreams(named.as_bytes(), Limits::default()).unwrap();
        assert_eq!(named, ["DC", "OBJ"].map(|id| ListedDatastream::Named(id.to_owned())));
        let prefixed = FIELDS.replace("</ds", "</apim:ds").replace("<ds", "<apim:ds");
        let whole = format!(
            r#"<objectDatastreams xmlns="http://www.fedora.info/definitions/1/0/access/" xmlns:apim="http://www.fedora.info/definitions/1/0/management/" pid="demo:5"><datastreamProfile pid="demo:5" dsID="DC" >{prefixed}</datastreamProfile></objectDatastreams>"#
        );
        let whole = datastreams(whole.as_bytes(), Limits::default()).unwrap();
        let alone = datastream_profile(profile(FIELDS).as_bytes(), Limits::default()).unwrap();
        assert_eq!(whole, [ListedDatastream::Whole(alone)]);
    }

    #[test]
    fn a_history_has_every_version() {
        let of = |id: &str| format!("<datastreamProfile>{}</datastreamProfile>", FIELDS.replace("DC.2", id));
        let history = format!("<datastreamHistory>{}{}</datastreamHistory>", of("DC.1"), of("DC.0"));
        let versions = datastream_history(history.as_bytes(), Limits::default()).unwrap();
        assert_eq!(versions.iter().map(super::DatastreamVersion::is_first).collect::<Vec<_>>(), [false, true]);
        let limits = Limits { items: 1, ..Limits::default() };
        assert!(datastream_history(history.as_bytes(), limits).unwrap_err().reason.contains("more than 1 versions"));
    }

    #[test]
    fn relationships_tell_models_and_the_closest_parent() {
        let rdf = r#"<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:rel="info:fedora/fedora-system:def/relations-external#" xmlns:own="http://example.org/own#">
            <rdf:Description rdf:about="info:fedora/demo:5">
            <hasModel xmlns="info:fedora/fedora-system:def/model#" rdf:resource="info:fedora/demo:Image"/>
            <rel:isMemberOfCollection rdf:resource="info:fedora/demo:collection"/>
            <rel:isPartOf rdf:resource="info:fedora/demo:whole"/>
            <rel:isMemberOf rdf:resource="info:fedora/demo:group"/>
            <own:isConstituentOf rdf:resource="info:fedora/demo:other"/>
            <rel:isConstituentOf>a text</rel:isConstituentOf>
            <own:hasModel rdf:resource="info:fedora/demo:NotAModel"/>
            </rdf:Description></rdf:RDF>"#;
        let uri = |text| Uri::parse(text).unwrap();
        let expected =
            Relations { models: vec![uri("info:fedora/demo:Image")], parent: Some(uri("info:fedora/demo:whole")) };
        assert_eq!(relations(rdf.as_bytes(), Limits::default()).unwrap(), expected);
    }

    #[test]
    fn what_is_something_else_is_refused() {
        for body in ["", "<html><body>Log in</body></html>", "nonsense", "<datastreamProfile/>", "{}", "\u{0}\u{1}"] {
            let body = body.as_bytes();
            assert!(datastream_profile(body, Limits::default()).is_err());
            assert!(datastreams(body, Limits::default()).is_err());
            assert!(relations(body, Limits::default()).is_err());
            assert!(datastream_history(body, Limits::default()).is_err());
        }
    }
}
