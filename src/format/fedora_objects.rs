//! Parses object lists of Fedora 3's REST API: responses to `GET /objects` (findObjects).
//!
//! `DefaultSerializer` (fcrepo 3.3 to 3.8) writes them according to `findObjects.xsd`. A page has a token if
//! there are more pages; the objects are unordered.

use super::{
    Limits, Rejection,
    fedora_rest::{local_name, state_from_letter},
    xml::Document,
};
use crate::model::{State, Timestamp};

/// A page of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectPage {
    /// Objects.
    pub objects: Vec<ListedObject>,
    /// Token of the next page; `None` on the last page.
    pub token: Option<String>,
}

/// An object with the requested fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedObject {
    /// PID.
    pub pid: String,
    /// State.
    pub state: Option<State>,
    /// Creation time.
    pub created: Option<Timestamp>,
}

/// Parses a page of objects.
///
/// # Errors
/// Rejects any other document.
pub fn object_page(body: &[u8], limits: Limits) -> Result<ObjectPage, Rejection> {
    let mut document = Document::open(body, limits)?;
    let root = document.root()?;
    if local_name(&root) != "result" {
        return Err(root.unprocessable("this is not a result of findObjects"));
    }
    let mut page = ObjectPage::default();
    while let Some(part) = document.child()? {
        match local_name(&part) {
            "listSession" => {
                while let Some(child) = document.child()? {
                    let text = document.text()?;
                    let is_told = local_name(&child) == "token" && !text.trim().is_empty();
                    page.token = page.token.or_else(|| is_told.then(|| text.trim().to_owned()));
                }
            }
            "resultList" => objects(&mut document, &mut page.objects)?,
            _ => document.skip()?,
        }
    }
    document.finish()?;
    Ok(page)
}

/// Parses the profile of an object, the response to `GET /objects/PID`.
///
/// # Errors
/// Rejects any other document.
pub fn object_profile(body: &[u8], limits: Limits) -> Result<ListedObject, Rejection> {
    let mut document = Document::open(body, limits)?;
    let root = document.root()?;
    if local_name(&root) != "objectProfile" {
        return Err(root.unprocessable("this is not the profile of an object"));
    }
    let mut object = ListedObject::default();
    while let Some(field) = document.child()? {
        match local_name(&field) {
            "objState" => object.state = state_from_letter(document.text()?.trim()),
            "objCreateDate" => {
                let text = document.text()?;
                let date = Timestamp::parse(text.trim()).map_err(|invalid| field.unprocessable(invalid.to_string()))?;
                object.created = Some(date);
            }
            // Such as the list of models.
            _ => document.skip()?,
        }
    }
    document.finish()?;
    Ok(object)
}

fn objects(document: &mut Document<'_>, objects: &mut Vec<ListedObject>) -> Result<(), Rejection> {
    while let Some(fields) = document.child()? {
        let mut object = ListedObject::default();
        while let Some(field) = document.child()? {
            let text = document.text()?;
            let text = text.trim();
            match local_name(&field) {
                "pid" => text.clone_into(&mut object.pid),
                "state" => object.state = state_from_letter(text),
                "cDate" => {
                    let date = Timestamp::parse(text).map_err(|invalid| field.unprocessable(invalid.to_string()))?;
                    object.created = Some(date);
                }
                _ => {}
            }
        }
        if object.pid.is_empty() {
            return Err(fields.unprocessable("the object has no pid"));
        }
        objects.push(object);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Limits, ListedObject, ObjectPage, State, object_page, object_profile};

    #[test]
    fn profile_has_the_state_and_the_date() {
        let profile = r#"<objectProfile xmlns="http://www.fedora.info/definitions/1/0/access/" pid="demo:1">
              <objLabel>a</objLabel><objModels><model>info:fedora/m:1</model></objModels>
              <objCreateDate>2011-08-03T08:14:25.9Z</objCreateDate><objState>I</objState>
            </objectProfile>"#;
        let read = object_profile(profile.as_bytes(), Limits::default()).unwrap();
        assert_eq!(read.state, Some(State::INACTIVE));
        assert_eq!(read.created.unwrap().to_string(), "2011-08-03T08:14:25.900Z");
        assert!(object_profile(b"<html/>", Limits::default()).is_err());
    }

    #[test]
    fn page_contains_objects_and_optional_token() {
        let page = r#"<?xml version="1.0" encoding="UTF-8"?>
            <result xmlns="http://www.fedora.info/definitions/1/0/types/">
              <listSession><token>ab12</token><cursor>0</cursor><expirationDate>2026-11-21T08:00:00.000Z</expirationDate></listSession>
              <resultList>
                <objectFields><pid>demo:1</pid><state>I</state><cDate>2011-08-03T08:14:25.9Z</cDate><label>a &amp; b</label></objectFields>
                <objectFields><pid>demo:2</pid></objectFields>
              </resultList>
            </result>"#;
        let read = object_page(page.as_bytes(), Limits::default()).unwrap();
        assert_eq!(read.token.as_deref(), Some("ab12"));
        let created = read.objects[0].created.unwrap();
        assert_eq!(created.to_string(), "2011-08-03T08:14:25.900Z");
        let first = ListedObject { pid: "demo:1".to_owned(), state: Some(State::INACTIVE), created: Some(created) };
        let second = ListedObject { pid: "demo:2".to_owned(), ..ListedObject::default() };
        assert_eq!(read.objects, [first, second]);
        let last = "<result><resultList/></result>";
        assert_eq!(object_page(last.as_bytes(), Limits::default()).unwrap(), ObjectPage::default());
    }

    #[test]
    fn other_documents_are_rejected() {
        for body in [
            "",
            "<html><body>Log in</body></html>",
            "{}",
            "<result><resultList><objectFields/></resultList></result>",
            "<result><resultList><objectFields><pid>a:1</pid><cDate>soon</cDate></objectFields></resultList></result>",
        ] {
            assert!(object_page(body.as_bytes(), Limits::default()).is_err(), "{body}");
        }
    }
}
