//! Parses responses of Fedora 3's REST API: the profile of a datastream, its history, the list of an object's
//! datastreams, and the relationships in RELS-EXT. They supply what messages of Fedora 3 lack.
//!
//! Elements are matched by local name: profiles of 3.3 have no namespace, and lists of profiles put the fields
//! under a prefix. Sources: `DefaultSerializer` and `DatastreamResource` of fcrepo 3.3 to 3.8, and the ontology
//! of relationships (`info:fedora/fedora-system:def/relations-external#`).

use std::collections::HashSet;

use super::{
    Limits, Rejection,
    stated_dates::{DatePredicates, DateStatements},
    xml::{Document, Element},
};
use crate::model::{Digest, DigestAlgorithm, MediaType, State, Timestamp, Uri};

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

/// Relationships in RELS-EXT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relations {
    /// Content models.
    pub models: Vec<Uri>,
    /// Object that this one belongs to, from the closest relationship.
    pub parent: Option<Uri>,
    /// Dates of the object.
    pub dates: DateStatements,
}

/// Relationships to a parent, closest first.
const PARENT_RELATIONS: [&str; 5] = ["isConstituentOf", "isPartOf", "isMemberOf", "isMemberOfCollection", "isSubsetOf"];

/// Namespaces of Fedora's relationships and of its content models.
const RELATIONS: &str = "info:fedora/fedora-system:def/relations-external#";
const MODEL: &str = "info:fedora/fedora-system:def/model#";

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

/// Parses RELS-EXT: RDF/XML with one `rdf:Description`, one level deep, as Fedora enforces. The values of `predicates` are
/// dates of the object. Dates that RDF/XML writes in another form are unreadable, and so are those of a document that
/// describes nothing.
///
/// # Errors
/// Rejects any other document.
pub fn relations(body: &[u8], predicates: &DatePredicates, limits: Limits) -> Result<Relations, Rejection> {
    let mut document = Document::open(body, limits)?;
    let root = document.root()?;
    if local_name(&root) != "RDF" {
        return Err(root.unprocessable("this is not RDF"));
    }
    let mut relations = Relations::default();
    let mut closest = PARENT_RELATIONS.len();
    let mut models = HashSet::new();
    let mut has_unknown_node = false;
    let mut is_described = false;
    while let Some(description) = document.child()? {
        // A property attribute of the date (RDF 1.1 XML Syntax section 2.5) is a date that the loop below does not see.
        has_unknown_node |= own_attributes(&description).any(|name| predicates.has_local_name(name));
        if local_name(&description) != "Description" {
            has_unknown_node = true;
            document.skip()?;
            continue;
        }
        is_described = true;
        while let Some(relation) = document.child()? {
            let name = local_name(&relation);
            let text = document.text()?;
            if let Some(role) = predicates.role(&format!("{}{name}", relation.namespace().unwrap_or_default())) {
                // The other attributes make the value a resource or a structure.
                match own_attributes(&relation).all(|name| name == "datatype") {
                    true => relations.dates.add(role, &text),
                    false => relations.dates.add_unreadable(),
                }
                continue;
            }
            let resource = relation.attribute_names().find(|name| name.ends_with(":resource"));
            let resource = resource.and_then(|name| relation.attribute(name));
            let Some(object) = resource.and_then(|object| Uri::parse(&object).ok()) else { continue };
            if relation.is(MODEL, name) && name == "hasModel" && models.insert(object.clone()) {
                relations.models.push(object);
            } else if relation.is(RELATIONS, name)
                && let Some(rank) = PARENT_RELATIONS.iter().position(|known| *known == name)
                && rank < closest
            {
                closest = rank;
                relations.parent = Some(object);
            }
        }
    }
    document.finish()?;
    if !predicates.is_empty() && (has_unknown_node || !is_described) {
        relations.dates.add_unreadable();
    }
    Ok(relations)
}

/// Returns the local names of the attributes, without those of XML itself.
fn own_attributes<'a>(element: &Element<'a>) -> impl Iterator<Item = &'a str> {
    element.attribute_names().filter_map(|name| match name.split_once(':') {
        Some(("xml" | "xmlns", _)) => None,
        Some((_, local)) => Some(local),
        None => Some(name).filter(|name| *name != "xmlns"),
    })
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
    use super::{
        DatePredicates, DateStatements, Limits, ListedDatastream, Relations, Uri, datastream_history,
        datastream_profile, datastreams, relations,
    };
    use crate::format::stated_dates::DateRole;

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
    fn relations_give_models_and_closest_parent() {
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
        let read = relations(rdf.as_bytes(), &DatePredicates::default(), Limits::default()).unwrap();
        let expected = Relations {
            models: vec![uri("info:fedora/demo:Image")],
            parent: Some(uri("info:fedora/demo:whole")),
            dates: DateStatements::default(),
        };
        assert_eq!(read, expected);
    }

    /// RELS-EXT as the module Scholar Embargo of Islandora 7 writes it.
    #[test]
    fn relations_give_the_dates_of_the_configured_predicates() {
        let namespace = "info:islandora/islandora-system:def/scholar#";
        let from = vec![Uri::parse(&format!("{namespace}embargo-until")).unwrap()];
        let predicates = DatePredicates { from, until: Vec::new() };
        for (value, readable) in [("2030-02-03T00:00:00Z", true), ("indefinite", true), ("in spring", false)] {
            let rdf = format!(
                r#"<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="{namespace}" xmlns:o="http://h/">
                <rdf:Description rdf:about="info:fedora/demo:5">
                <e:embargo-until rdf:datatype="http://www.w3.org/2001/XMLSchema#dateTime">{value}</e:embargo-until>
                <e:embargo-expiry-notification-date>2029-01-01</e:embargo-expiry-notification-date>
                <o:embargo-until>2040-01-01</o:embargo-until>
                </rdf:Description></rdf:RDF>"#
            );
            let read = relations(rdf.as_bytes(), &predicates, Limits::default()).unwrap().dates;
            let mut expected = DateStatements::default();
            expected.add(DateRole::From, value);
            assert_eq!((&read, read.has_unreadable()), (&expected, !readable), "{value}");
        }
    }

    /// Each of these is RDF/XML, and its dates are not where Fedora's validation puts them.
    #[test]
    fn dates_in_another_form_are_unreadable() {
        let date = DatePredicates { from: vec![Uri::parse("http://h/until").unwrap()], until: Vec::new() };
        let read = |nodes: &str, predicates: &DatePredicates| {
            let rdf = format!(
                r#"<r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:h="http://h/"
                xmlns:m="info:fedora/fedora-system:def/model#">{nodes}</r:RDF>"#
            );
            relations(rdf.as_bytes(), predicates, Limits::default()).unwrap()
        };
        for (nodes, is_readable) in [
            (
                r#"<r:Description r:about="a"><h:until xml:lang="en" r:datatype="d">2030</h:until></r:Description>"#,
                true,
            ),
            (r#"<r:Description r:about="a" m:label="x"/>"#, true),
            (r#"<r:Description r:about="a"><h:until r:resource="b"/></r:Description>"#, false),
            (r#"<r:Description r:about="a"><h:until r:parseType="Resource"/></r:Description>"#, false),
            (r#"<r:Description r:about="a" h:until="2030"/>"#, false),
            (r#"<h:Thing r:about="a"><h:until>2030</h:until></h:Thing>"#, false),
            ("", false),
        ] {
            assert_eq!(read(nodes, &date).dates.has_unreadable(), !is_readable, "{nodes}");
            let without = read(nodes, &DatePredicates::default()).dates;
            assert_eq!(without, DateStatements::default(), "no predicates are configured");
        }
        let model = r#"<r:Description r:about="a"><m:hasModel r:resource="info:fedora/m:1"/></r:Description>"#;
        assert_eq!(read(model, &date).models.len(), 1, "the prefix of RDF is free");
    }

    /// The dates of an object are literals, so those of another resource stay unknown.
    #[test]
    fn relation_of_a_date_predicate_is_unreadable() {
        let predicates = DatePredicates { from: vec![Uri::parse("http://h/until").unwrap()], until: Vec::new() };
        for resource in ["info:fedora/demo:6", "no URI"] {
            let rdf = format!(
                r#"<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description
                rdf:about="info:fedora/demo:5"><until xmlns="http://h/" rdf:resource="{resource}"/></rdf:Description></rdf:RDF>"#
            );
            let read = relations(rdf.as_bytes(), &predicates, Limits::default()).unwrap().dates;
            assert!(read.has_unreadable(), "{resource}");
        }
    }

    #[test]
    fn other_documents_are_rejected() {
        for body in ["", "<html><body>Log in</body></html>", "nonsense", "<datastreamProfile/>", "{}", "\u{0}\u{1}"] {
            let body = body.as_bytes();
            assert!(datastream_profile(body, Limits::default()).is_err());
            assert!(datastreams(body, Limits::default()).is_err());
            assert!(relations(body, &DatePredicates::default(), Limits::default()).is_err());
            assert!(datastream_history(body, Limits::default()).is_err());
        }
    }
}
