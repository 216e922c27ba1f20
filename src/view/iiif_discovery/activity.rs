//! Activities (section 3.3), written one by one into a page.

use std::io::{self, Write};

use serde::Serialize;
use url::form_urlencoded;

use super::{CollectionLink, IiifDiscoverySettings, OrderedCollectionPage, Wording};
use crate::model::{Change, ObjectChange, Timestamp, Uri};

/// Writer of a page.
pub(super) struct ActivityWriter<'a> {
    settings: &'a IiifDiscoverySettings,
    /// URL of the gateway, without a trailing slash.
    base: &'a str,
    collection: CollectionLink,
    out: &'a mut dyn Write,
    is_empty: bool,
}

#[derive(Serialize)]
struct Activity<'a> {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    object: Resource<'a>,
    #[serde(rename = "endTime")]
    end_time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a CollectionLink>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<&'a CollectionLink>,
}

#[derive(Serialize)]
struct Resource<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    class: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    canonical: Option<&'a Uri>,
}

/// The only activity of a page that has none about a resource.
#[derive(Serialize)]
struct Placeholder<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    summary: &'static str,
    object: &'a CollectionLink,
    #[serde(rename = "endTime", skip_serializing_if = "Option::is_none")]
    end_time: Option<Timestamp>,
}

impl<'a> ActivityWriter<'a> {
    /// Writes the members of a page before its activities.
    pub(super) fn begin(
        settings: &'a IiifDiscoverySettings,
        base: &'a str,
        collection: CollectionLink,
        head: &OrderedCollectionPage,
        out: &'a mut dyn Write,
    ) -> io::Result<Self> {
        let mut head = serde_json::to_vec(head)?;
        // The activities are the last member.
        head.pop();
        out.write_all(&head)?;
        out.write_all(b",\"orderedItems\":[")?;
        Ok(Self { settings, base, collection, out, is_empty: true })
    }

    /// Writes the activity of a change, if it is one.
    pub(super) fn change(&mut self, change: &Change) -> io::Result<()> {
        let object = &change.modification.object;
        let Some(effect) = change.object_change() else { return Ok(()) };
        let Some(resource) = resource_id(self.settings, self.base, object) else { return Ok(()) };
        let (kind, is_added, is_removed) = match (self.settings.wording, effect) {
            (Wording::Aggregator, ObjectChange::Create) => ("Add", true, false),
            (Wording::Aggregator, ObjectChange::Delete) => ("Remove", false, true),
            (_, effect) => (effect.activity_type(), false, false),
        };
        let activity = Activity {
            id: format!("{}/changes/{}", self.base, change.modification.id.uuid()),
            kind,
            object: Resource {
                id: &resource,
                class: &self.settings.class,
                canonical: (resource != object.as_str()).then_some(object),
            },
            end_time: change.received,
            target: Some(&self.collection).filter(|_| is_added),
            origin: Some(&self.collection).filter(|_| is_removed),
        };
        let between: &[u8] = if self.is_empty { b"" } else { b"," };
        self.is_empty = false;
        self.out.write_all(between)?;
        Ok(serde_json::to_writer(&mut *self.out, &activity)?)
    }

    /// Writes the end of the page. A page without an activity gets one about the collection, at this time.
    pub(super) fn finish(self, end_time: Option<Timestamp>) -> io::Result<()> {
        if self.is_empty {
            let summary = "No resource has changed on this page.";
            let placeholder = Placeholder { kind: "View", summary, object: &self.collection, end_time };
            serde_json::to_writer(&mut *self.out, &placeholder)?;
        }
        self.out.write_all(b"]}")
    }
}

/// Returns the URL of the resource: of the manifest, if there is a template, or else of the object. An object without a web
/// URL has its page at the gateway, because `id` is an HTTP(S) URI (section 3.3). `None` if it has no manifest.
fn resource_id(settings: &IiifDiscoverySettings, base: &str, object: &Uri) -> Option<String> {
    if let Some(template) = &settings.manifest {
        return template.url(object);
    }
    let uri = object.as_str();
    if uri.starts_with("http://") || uri.starts_with("https://") {
        return Some(uri.to_owned());
    }
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("uri", uri).finish();
    Some(format!("{base}/objects?{query}"))
}

#[cfg(test)]
mod tests {
    use super::{ActivityWriter, CollectionLink, IiifDiscoverySettings, OrderedCollectionPage, Wording};
    use crate::{model::Change, view::iiif_discovery::CONTEXT};

    /// If this fails and the new text is right, increase `RENDERING` in `mod.rs`, because caches have the old one.
    #[test]
    fn rendering_of_a_page_is_stable() {
        let change: Change = serde_json::from_str(
            r#"{"seq":7,"id":"urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48","source":"s","description":"",
            "received":"2026-01-02T03:04:05.006Z","time":"2011-01-02T03:04:05.000Z","user":{"name":"Ada"},
            "object":"urn:x:1","items":[
              {"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa3","uri":"urn:x:1","change":"ADD"}]}"#,
        )
        .unwrap();
        let settings = |wording| IiifDiscoverySettings {
            class: "Object".to_owned(),
            manifest: None,
            wording,
            has_retention: false,
        };
        let page = |wording, changes: &[Change]| {
            let collection = CollectionLink { id: "http://g/c".to_owned(), kind: "OrderedCollection" };
            let (part_of, id) = (collection.clone(), "http://g/p".to_owned());
            let head = OrderedCollectionPage { context: CONTEXT, id, kind: "Page", part_of, prev: None, next: None };
            let (settings, mut out) = (settings(wording), Vec::new());
            let mut writer = ActivityWriter::begin(&settings, "http://g", collection, &head, &mut out).unwrap();
            changes.iter().for_each(|change| writer.change(change).unwrap());
            writer.finish(None).unwrap();
            String::from_utf8(out).unwrap()
        };
        let begin = concat!(
            r#"{"@context":"http://iiif.io/api/discovery/1/context.json","id":"http://g/p","type":"Page","#,
            r#""partOf":{"id":"http://g/c","type":"OrderedCollection"},"orderedItems":["#,
        );
        let activity = |kind: &str, more: &str| {
            format!(
                "{{\"id\":\"http://g/changes/c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48\",\"type\":\"{kind}\",\"object\":{{\
                 \"id\":\"http://g/objects?uri=urn%3Ax%3A1\",\"type\":\"Object\",\"canonical\":\"urn:x:1\"}},\
                 \"endTime\":\"2026-01-02T03:04:05.006Z\"{more}}}"
            )
        };
        let create = activity("Create", "");
        let two = [change.clone(), change.clone()];
        assert_eq!(page(Wording::Publisher, &two), format!("{begin}{create},{create}]}}"));
        let add = activity("Add", ",\"target\":{\"id\":\"http://g/c\",\"type\":\"OrderedCollection\"}");
        assert_eq!(page(Wording::Aggregator, &[change]), format!("{begin}{add}]}}"));
        let none = r#"{"type":"View","summary":"No resource has changed on this page.","object":{"id":"http://g/c","type":"OrderedCollection"}}"#;
        assert_eq!(page(Wording::Publisher, &[]), format!("{begin}{none}]}}"));
    }
}
