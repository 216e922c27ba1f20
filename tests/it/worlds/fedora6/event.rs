//! Events of the simulated Fedora 6, and the behaviours of real ones.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

pub(super) const BASE: &str = "http://localhost:8080/rest";

/// URL of the same repository behind its proxy.
pub(super) const PROXY: &str = "https://repository.example.org/fcrepo/rest";

/// Names of the resources as their editors typed them, and as the REST API spells their paths.
pub(super) const NAMES: [(&str, &str); 8] = [
    ("book", "book"),
    ("book/page1", "book/page1"),
    ("ground floor", "ground%20floor"),
    ("plans/ground^floor{1}", "plans/ground%5Efloor%7B1%7D"),
    ("plans/Skøyen", "plans/Sk%C3%B8yen"),
    ("50%", "50%25"),
    ("scan", "scan"),
    ("scan/fcr:metadata", "scan/fcr:metadata"),
];

/// Part of an event that reaches the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// The whole event, with its headers.
    Event,
    /// The body of the HTTP forwarder, with the headers of the event.
    Forwarder,
    /// The body of the HTTP forwarder without headers: it has neither a time nor an identifier.
    BareForwarder,
    /// Headers without a body.
    Headers,
}

/// Form of the body of a whole event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The activity of Fedora 6.
    Activity,
    /// The activity of LAKEsuperior, whose time is in the object, and whose actor is `null`.
    LakeSuperior,
    /// The resource with the activity that generated it, as in Fedora 4 and 5.
    Provenance,
    /// The same with the time as a number of milliseconds.
    ProvenanceWithNumber,
}

/// Behaviour of this Fedora.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    pub(super) transfer: Transfer,
    pub(super) form: Form,
    /// Events about deleted resources have no types, or only that of any resource.
    pub(super) untyped_deletes: bool,
    /// The kinds of an event are in any order, which says nothing.
    pub(super) shuffled_kinds: bool,
    /// Paths in events are not percent-encoded (Fedora 6 up to 6.5).
    pub(super) raw_paths: bool,
    /// Descriptions of files are called `fedora:description`, as in Fedora 4.7 and 5.
    pub(super) old_descriptions: bool,
    /// The base URL in events ends with a slash.
    pub(super) slash_after_base: bool,
    /// Every second request comes through the proxy, so that its events have the URL of the proxy.
    pub(super) proxy: bool,
    /// Every third request has a slash at the end of its path.
    pub(super) slash_after_path: bool,
}

/// Event in the form in which it reaches the gateway.
#[derive(Clone)]
pub(super) struct Event {
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

fn event_id(number: u64) -> String {
    format!("urn:uuid:00000000-0000-4000-8000-{number:012}")
}

/// Namespace of the kinds of events in Fedora 4 and 5.
const EVENT_TYPES: &str = "http://fedora.info/definitions/v4/event#";

/// Returns the name of a kind of event in Fedora 4 and 5, after `Resource`.
fn provenance(kind: &str) -> &'static str {
    match kind {
        "Create" => "Creation",
        "Update" => "Modification",
        "Delete" => "Deletion",
        other => panic!("Fedora 4 and 5 have no event {other}"),
    }
}

impl Behaviour {
    /// Returns the path of a resource as this Fedora writes it in events.
    fn path(&self, name: u8) -> String {
        let (raw, encoded) = NAMES[usize::from(name)];
        let path = if self.raw_paths { raw } else { encoded };
        if self.old_descriptions { path.replace("fcr:metadata", "fedora:description") } else { path.into() }
    }

    /// Returns the event of a transaction about one resource, with its number.
    pub(super) fn event(&self, number: u64, time: DateTime<Utc>, name: u8, kinds: &[&str]) -> Event {
        let id = event_id(number);
        let host = if self.proxy && number.is_multiple_of(2) { PROXY } else { BASE };
        let base = if self.slash_after_base { format!("{host}/") } else { host.to_owned() };
        let slash = if self.slash_after_path && number.is_multiple_of(3) { "/" } else { "" };
        let resource = format!("{host}/{}{slash}", self.path(name));
        let long = |kind: &&str| format!("https://www.w3.org/ns/activitystreams#{kind}");
        let mut kinds = kinds.to_vec();
        if self.shuffled_kinds && number.is_multiple_of(2) {
            kinds.reverse();
        }
        let event_type = kinds.iter().map(long).collect::<Vec<_>>().join(",");
        let mut headers = Vec::new();
        if self.transfer != Transfer::BareForwarder {
            headers.extend([
                ("org.fcrepo.jms.eventType", event_type.clone()),
                ("org.fcrepo.jms.eventID", id.clone()),
                ("org.fcrepo.jms.timestamp", time.timestamp_millis().to_string()),
                ("org.fcrepo.jms.baseURL", base.clone()),
                ("org.fcrepo.jms.identifier", format!("/{}{slash}", self.path(name))),
                ("org.fcrepo.jms.user", "fedoraAdmin".to_owned()),
            ]);
        }
        let body = match self.transfer {
            Transfer::Headers => Vec::new(),
            Transfer::Forwarder | Transfer::BareForwarder => {
                // The forwarder takes one of the kinds. A deletion is the only one after which the resource is gone.
                let told = if kinds.contains(&"Delete") { "Delete" } else { kinds[0] };
                json!({ "id": resource, "type": long(&told) }).to_string().into_bytes()
            }
            Transfer::Event => self.body(&kinds, number, time, (&resource, &base)).to_string().into_bytes(),
        };
        if !body.is_empty() {
            headers.push(("content-type", "application/json".to_owned()));
        }
        Event { headers, body }
    }

    /// Returns the body of a whole event.
    fn body(&self, kinds: &[&str], number: u64, time: DateTime<Utc>, (resource, base): (&str, &str)) -> Value {
        let is_untyped = self.untyped_deletes && kinds.contains(&"Delete");
        let types = match number % 2 {
            0 if is_untyped => json!([]),
            _ if is_untyped => json!(["http://www.w3.org/ns/prov#Entity"]),
            _ => json!(["http://www.w3.org/ns/ldp#Container", "http://fedora.info/definitions/v4/repository#Resource"]),
        };
        let id = event_id(number);
        let published = time.to_rfc3339_opts(SecondsFormat::Millis, true);
        let generation = |at_time: Value| {
            let kinds: Vec<_> = kinds.iter().map(|kind| format!("{EVENT_TYPES}Resource{}", provenance(kind))).collect();
            json!({
                "id": resource,
                "type": types,
                "isPartOf": base,
                "wasGeneratedBy": { "type": kinds, "identifier": id, "atTime": at_time },
                "wasAttributedTo": [{ "type": "Person", "name": "fedoraAdmin" }],
            })
        };
        match self.form {
            Form::Activity => json!({
                "@context": "https://www.w3.org/ns/activitystreams",
                "id": id,
                "type": kinds,
                "name": "create resource",
                "published": published,
                "actor": [{ "type": "Person", "id": "info:fedora/local-user#fedoraAdmin" }],
                "object": { "id": resource, "type": types, "isPartOf": base },
            }),
            Form::LakeSuperior => json!({
                "@context": "https://www.w3.org/ns/activitystreams",
                "id": id,
                "type": kinds,
                "actor": null,
                "object": { "id": resource, "type": types, "updated": published },
            }),
            Form::Provenance => generation(published.into()),
            Form::ProvenanceWithNumber => generation(time.timestamp_millis().into()),
        }
    }
}
