//! Parses RELS-EXT, the datastream of Fedora 3 with the relationships, content models and dates of its object. Source: the
//! ontology of relationships (`info:fedora/fedora-system:def/relations-external#`).

use std::collections::HashSet;

use super::{
    Limits, Rejection,
    fedora_rest::local_name,
    stated_dates::{DatePredicates, DateStatements},
    xml::{Document, Element},
};
use crate::model::Uri;

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

/// Parses RELS-EXT: RDF/XML with one `rdf:Description`, one level deep, as Fedora enforces. The values of `predicates` are
/// dates of the object. Dates that RDF/XML writes as attributes or as descriptions of another type are unreadable.
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
    let mut has_other_form = false;
    while let Some(description) = document.child()? {
        // A property attribute of the date (RDF 1.1 XML Syntax section 2.5) is a date that the loop below does not see.
        has_other_form |= own_attributes(&description).any(|name| predicates.may_end_with(name));
        if local_name(&description) != "Description" {
            has_other_form = true;
            document.skip()?;
            continue;
        }
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
    if !predicates.is_empty() && has_other_form {
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

#[cfg(test)]
mod tests {
    use super::{DatePredicates, DateStatements, Limits, Relations, Uri, relations};
    use crate::format::stated_dates::DateRole;

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
            (r#"<r:Description r:about="a" m:label="x" m:til="2030"/>"#, true),
            (r#"<r:Description r:about="a"><h:until r:resource="b"/></r:Description>"#, false),
            (r#"<r:Description r:about="a"><h:until r:parseType="Resource"/></r:Description>"#, false),
            (r#"<r:Description r:about="a" h:until="2030"/>"#, false),
            (r#"<h:Thing r:about="a"><h:until>2030</h:until></h:Thing>"#, false),
            // The last relationship has been purged.
            ("", true),
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
            assert!(relations(body.as_bytes(), &DatePredicates::default(), Limits::default()).is_err());
        }
    }
}
