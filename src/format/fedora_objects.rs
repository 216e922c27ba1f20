//! Which objects a Fedora 3 has: what its REST API answers to `GET /objects` (findObjects).
//!
//! Written so by `DefaultSerializer` (fcrepo 3.3 to 3.8), after `findObjects.xsd`. A page has a token where there are more
//! pages; the objects are in no order.

use super::{
    Limits, Rejection,
    fedora_rest::{local, state_of},
    xml::Document,
};
use crate::model::{State, Timestamp};

/// A page of the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectPage {
    /// The objects.
    pub objects: Vec<ListedObject>,
    /// By what the next page is asked for; `None` when this is the last.
    pub token: Option<String>,
}

/// An object, with those of the fields that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedObject {
    /// Its PID.
    pub pid: String,
    /// Its state.
    pub state: Option<State>,
    /// When it was made.
    pub created: Option<Timestamp>,
}

/// Reads a page of objects.
///
/// # Errors
/// When it is something else.
pub fn object_page(body: &[u8], limits: Limits) -> Result<ObjectPage, Rejection> {
    let mut document = Document::open(body, limits)?;
    let root = document.root()?;
    if local(&root) != "result" {
        return Err(root.unprocessable("this is no result of findObjects"));
    }
    let mut page = ObjectPage::default();
    while let Some(part) = document.child()? {
        match local(&part) {
            "listSession" => {
                while let Some(child) = document.child()? {
                    let text = document.text()?;
                    let is_told = local(&child) == "token" && !text.trim().is_empty();
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

fn objects(document: &mut Document<'_>, objects: &mut Vec<ListedObject>) -> Result<(), Rejection> {
    while let Some(fields) = document.child()? {
        let mut object = ListedObject::default();
        while let Some(field) = document.child()? {
            let text = document.text()?;
            let text = text.trim();
            match local(&field) {
                "pid" => text.clone_into(&mut object.pid),
                "state" => object.state = state_of(text),
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
    use super::{Limits, ListedObject, ObjectPage, State, object_page};

    #[test]
    fn a_page_has_objects_and_perhaps_a_token() {
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
    fn what_is_something_else_is_refused() {
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
