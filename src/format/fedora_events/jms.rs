//! The headers `org.fcrepo.jms.*`: the whole event in Fedora 4.0–4.5, an addition to the body in later
//! generations.

use sha2::{Digest, Sha256};

use super::{
    Event,
    agent::{self, Agents},
    resource_uri::{ResourceUris, container, is_placeholder},
};
use crate::{
    format::{Headers, Location, Rejection},
    model::{DroppedPart, EventId, Reading, Timestamp, Uri, User},
};

/// Lower-case prefix of the header names.
pub(super) const PREFIX: &str = "org.fcrepo.jms.";

pub(super) const BASE_URL: &str = "org.fcrepo.jms.baseURL";
pub(super) const EVENT_ID: &str = "org.fcrepo.jms.eventID";
pub(super) const EVENT_TYPE: &str = "org.fcrepo.jms.eventType";
pub(super) const IDENTIFIER: &str = "org.fcrepo.jms.identifier";
pub(super) const RESOURCE_TYPE: &str = "org.fcrepo.jms.resourceType";
pub(super) const TIMESTAMP: &str = "org.fcrepo.jms.timestamp";
pub(super) const USER: &str = "org.fcrepo.jms.user";

/// The JMS headers of one message. Blank headers count as missing.
#[derive(Clone, Copy)]
pub(super) struct Jms<'a>(&'a Headers);

impl<'a> Jms<'a> {
    /// Selects the JMS headers among `headers`.
    pub(super) fn new(headers: &'a Headers) -> Self {
        Self(headers)
    }

    /// Returns whether the headers name a resource and a kind of event.
    pub(super) fn names_event(self) -> bool {
        self.0.get(IDENTIFIER).is_some() && !self.kinds().is_empty()
    }

    /// Returns the base URL, unless the header has only a placeholder.
    pub(super) fn base_url(self) -> Option<&'a str> {
        self.text(BASE_URL).filter(|base| !is_placeholder(base))
    }

    /// Parses an event from headers alone.
    ///
    /// # Errors
    /// Fails if a header is missing or invalid.
    pub(super) fn event(self, uris: ResourceUris<'_>) -> Result<Event<'a>, Rejection> {
        // The path of the root may be blank.
        let path = self.0.get(IDENTIFIER).map(str::trim);
        let path = path.ok_or_else(|| missing(IDENTIFIER, "and the body is empty: nothing names a resource"))?;
        if self.kinds().is_empty() {
            return Err(missing(EVENT_TYPE, "and the body is empty: nothing names an event"));
        }
        let base_url = self.base_url().or(uris.base.map(Uri::as_str));
        let base_url = base_url.ok_or_else(|| missing(BASE_URL, "and the source's settings have no base_url"))?;
        if !is_web_url(base_url) {
            let reason = format!("{base_url:?} does not begin with http:// or https://; correct fcrepo.jms.baseUrl");
            return Err(refused(BASE_URL, reason));
        }
        let mut reading = Reading::default();
        let mut at = |path: &str| {
            let uri = format!("{}/{}", base_url.trim_end_matches('/'), path.trim_start_matches('/'));
            uris.resource(&uri, Some(base_url), &mut reading).map_err(|error| refused(IDENTIFIER, error.to_string()))
        };
        Ok(Event {
            resource: at(path)?,
            parent: container(path).map(&mut at).transpose()?,
            types: Vec::new(),
            kinds: self.kinds(),
            kinds_at: self.kinds_at(),
            time: None,
            event_id: Some(self.event_id().map_or_else(|| self.derived_id(path), Ok)?),
            agents: Agents::Nobody,
            description: None,
            reading,
        })
    }

    /// Returns the time of the event, which is in milliseconds since 1970 (UTC).
    pub(super) fn time(self, reading: &mut Reading) -> Option<Timestamp> {
        let raw = self.text(TIMESTAMP)?;
        let time = raw.parse().ok().and_then(Timestamp::from_millis);
        reading.keep(DroppedPart::Time, time.ok_or(()))
    }

    /// Returns the repository's identifier of the event.
    pub(super) fn event_id(self) -> Option<EventId> {
        self.text(EVENT_ID).and_then(EventId::parse)
    }

    /// Returns the user.
    pub(super) fn user(self) -> Option<User> {
        // The same header contains a name in Fedora 4 and 5 and the user's URI otherwise.
        agent::user(self.text(USER), None)
    }

    /// Returns the type names of the event.
    pub(super) fn kinds(self) -> Vec<&'a str> {
        self.list(EVENT_TYPE)
    }

    /// Returns the location of [`Self::kinds`].
    pub(super) fn kinds_at(self) -> Location {
        Location::Header(EVENT_TYPE.to_owned())
    }

    /// Returns the type names of the resource (since Fedora 4.6).
    pub(super) fn resource_types(self) -> Vec<&'a str> {
        self.list(RESOURCE_TYPE)
    }

    /// Derives an identifier for an event without one. There is no body, so nothing else distinguishes a
    /// duplicate from the next event. It is a digest, because a path may be longer than an identifier.
    fn derived_id(self, path: &str) -> Result<EventId, Rejection> {
        let timestamp = self.text(TIMESTAMP).ok_or_else(|| {
            missing(
                TIMESTAMP,
                "and so is org.fcrepo.jms.eventID, and the body is empty: nothing distinguishes this event from others",
            )
        })?;
        let facts = format!("{path}\n{timestamp}\n{}", self.kinds().join(","));
        let id = EventId::parse(&format!("sha256:{}", hex::encode(Sha256::digest(facts))));
        id.ok_or_else(|| refused(EVENT_ID, "no identifier can be made for this event".to_owned()))
    }

    fn list(self, name: &str) -> Vec<&'a str> {
        let names = self.text(name).into_iter().flat_map(|list| list.split(','));
        names.map(str::trim).filter(|name| !name.is_empty()).collect()
    }

    fn text(self, name: &str) -> Option<&'a str> {
        self.0.get(name).map(str::trim).filter(|text| !text.is_empty())
    }
}

fn is_web_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

fn missing(name: &str, why: &str) -> Rejection {
    refused(name, format!("this header is missing, {why}"))
}

fn refused(name: &str, reason: String) -> Rejection {
    Rejection::unprocessable(Location::Header(name.to_owned()), reason)
}

#[cfg(test)]
mod tests {
    use super::{BASE_URL, EVENT_ID, EVENT_TYPE, Headers, IDENTIFIER, Jms, Reading, ResourceUris, TIMESTAMP};

    const URIS: ResourceUris<'_> = ResourceUris { base: None, others: &[] };

    const FULL: [(&str, &str); 5] = [
        (BASE_URL, "http://h/rest/"),
        (EVENT_ID, ""),
        (EVENT_TYPE, "http://fedora.info/definitions/v4/repository#NODE_ADDED"),
        (IDENTIFIER, "/a/b"),
        (TIMESTAMP, "1428360320168"),
    ];

    fn complaint(headers: impl IntoIterator<Item = (&'static str, &'static str)>) -> String {
        Jms::new(&headers.into_iter().collect()).event(URIS).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn error_names_the_missing_header() {
        for name in [BASE_URL, EVENT_TYPE, IDENTIFIER, TIMESTAMP] {
            let error = complaint(FULL.into_iter().filter(|(header, _)| *header != name));
            assert!(error.starts_with(&format!("header {name}: this header is missing")), "{error}");
        }
    }

    fn event_id(changed: Option<(&'static str, &'static str)>) -> String {
        let headers: Headers =
            FULL.into_iter().map(|header| changed.filter(|new| new.0 == header.0).unwrap_or(header)).collect();
        Jms::new(&headers).event(URIS).unwrap().event_id.unwrap().as_str().to_owned()
    }

    #[test]
    fn event_without_identifier_gets_a_derived_one() {
        assert_eq!(event_id(None), event_id(Some((BASE_URL, "http://other/rest"))));
        for changed in [(IDENTIFIER, "/a/c"), (TIMESTAMP, "1428360320169"), (EVENT_TYPE, "PROPERTY_CHANGED")] {
            assert_ne!(event_id(None), event_id(Some(changed)), "{changed:?}");
        }
        assert_eq!(event_id(Some((EVENT_ID, "urn:uuid:1"))), "urn:uuid:1");
    }

    #[test]
    fn timestamp_is_in_milliseconds() {
        for raw in ["2016-05-19T17:17:39Z", "1e3", "99999999999999999"] {
            let headers: Headers = [(TIMESTAMP, raw)].into_iter().collect();
            let mut reading = Reading::default();
            assert!(Jms::new(&headers).time(&mut reading).is_none() && reading.dropped.len() == 1, "{raw}");
        }
        let headers: Headers = [(TIMESTAMP, "1428360320168")].into_iter().collect();
        assert_eq!(Jms::new(&headers).time(&mut Reading::default()).unwrap().to_string(), "2015-04-06T22:45:20.168Z");
    }

    #[test]
    fn base_url_without_scheme_is_refused_and_placeholder_is_none() {
        let with_base =
            |base| FULL.into_iter().map(move |header| if header.0 == BASE_URL { (BASE_URL, base) } else { header });
        let error = complaint(with_base("repo.example.org:8080/rest"));
        assert!(error.contains("does not begin with http:// or https://"), "{error}");
        for placeholder in ["null", "info:fedora", "info:fedora/"] {
            assert!(complaint(with_base(placeholder)).contains("no base_url"), "{placeholder}");
        }
    }
}
