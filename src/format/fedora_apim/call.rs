//! A call of API-M: its subject as URIs, its parameters and its return value. Invalid values are rejected with
//! their location.

use super::{
    PID_HEADER,
    entry::{Entry, Field},
    header,
    method::Method,
    quoted,
    rest::{self, BaseUrl, DatastreamId, Pid},
};
use crate::{
    format::{Headers, Location, Rejection},
    model::{InvalidUri, State, Timestamp, Uri},
};

/// A call of a method.
pub(super) struct Call<'c> {
    /// Method.
    pub(super) method: Method,
    /// Message.
    pub(super) entry: &'c Entry<'c>,
    /// Headers of the transport.
    pub(super) headers: &'c Headers,
    /// Base URL from the source's settings.
    pub(super) base_url: Option<&'c BaseUrl>,
}

/// Subject of a call.
struct Subject {
    pid: Pid,
    /// Whether the subject is a datastream of the object. Only Fedora 3.0 reports this, for relationship
    /// methods.
    is_datastream: bool,
}

impl Call<'_> {
    /// Returns the URI of the object.
    pub(super) fn object(&self) -> Result<Uri, Rejection> {
        self.checked(self.base_url()?.object(&self.subject()?.pid))
    }

    /// Returns the URI of the datastream in `dsID`.
    pub(super) fn datastream(&self) -> Result<Uri, Rejection> {
        self.datastream_of(self.entry.parameter("dsID"))
    }

    /// Returns the URI of the added datastream. Without a `dsID`, Fedora generates one; the return value always
    /// contains it.
    pub(super) fn new_datastream(&self) -> Result<Uri, Rejection> {
        self.datastream_of(self.entry.parameter("dsID").or(self.entry.content.as_ref()))
    }

    /// Returns the URI of the datastream with the relationships of the subject. After 3.0 the message does not
    /// say whether the subject is the object or a datastream; the object is assumed, because it is far more
    /// common.
    pub(super) fn relationships(&self) -> Result<Uri, Rejection> {
        let subject = self.subject()?;
        let id = if subject.is_datastream { DatastreamId::RELS_INT } else { DatastreamId::RELS_EXT };
        self.checked(self.base_url()?.datastream(&subject.pid, &id))
    }

    /// Returns the URI of a datastream's version with this creation time.
    pub(super) fn version(&self, datastream: &Uri, created: Timestamp) -> Result<Uri, Rejection> {
        self.checked(rest::version(datastream, created))
    }

    /// Returns the state that a parameter sets, if it is given.
    pub(super) fn state(&self, name: &str) -> Result<Option<State>, Rejection> {
        let Some(field) = self.entry.parameter(name) else { return Ok(None) };
        match field.value() {
            "A" => Ok(Some(State::ACTIVE)),
            "I" => Ok(Some(State::INACTIVE)),
            "D" => Ok(Some(State::DELETED)),
            other => {
                let other = quoted(other);
                Err(field.rejection(format!("{other} is not a state of Fedora: A, I or D was expected as {name}")))
            }
        }
    }

    /// Returns the date in a parameter, if it is given.
    pub(super) fn date(&self, name: &str) -> Result<Option<Timestamp>, Rejection> {
        self.entry.parameter(name).map(Field::date).transpose()
    }

    /// Returns the date that the method returned, if there is one.
    pub(super) fn returned_date(&self) -> Result<Option<Timestamp>, Rejection> {
        self.entry.content.as_ref().map(Field::date).transpose()
    }

    /// Returns the boolean that the method returned.
    pub(super) fn returned_true(&self) -> Result<bool, Rejection> {
        let Some(returned) = &self.entry.content else {
            return Err(self.lacks("content", "what the method returned, true or false"));
        };
        match returned.value() {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(returned.rejection(format!("the method returns true or false, not {}", quoted(other)))),
        }
    }

    /// Creates a rejection for a missing part that every such call has.
    pub(super) fn lacks(&self, name: &str, meaning: &str) -> Rejection {
        self.entry.rejection(format!("there is no {name}, {meaning}"))
    }

    /// Returns the base URL of the repository from the settings, or else from the message.
    fn base_url(&self) -> Result<BaseUrl, Rejection> {
        const ADVICE: &str = "set settings.base_url of this source, as in http://localhost:8080/fedora";
        match (self.base_url, &self.entry.author_uri) {
            (Some(base_url), _) => Ok(base_url.clone()),
            (None, None) => Err(self
                .entry
                .rejection(format!("the author has no uri, in which Fedora writes its base URL; {ADVICE}"))),
            (None, Some(uri)) => BaseUrl::parse(uri.value()).map_err(|invalid| {
                uri.rejection(format!("the author's uri is not Fedora's base URL: {invalid}; {ADVICE}"))
            }),
        }
    }

    /// Determines the subject: from the return value of an ingest, or from the parameter `pid` of other
    /// methods. The summary repeats it, and is the only place for relationship methods after 3.0.
    fn subject(&self) -> Result<Subject, Rejection> {
        let field = match self.method {
            Method::Ingest => self.entry.content.as_ref(),
            _ => self.entry.parameter("pid"),
        };
        let (raw, location) = match (field.or(self.entry.summary.as_ref()), header(self.headers, PID_HEADER)) {
            (Some(field), _) => (field.value(), field.location()),
            (None, Some(pid)) => (pid, Location::Header(PID_HEADER.to_owned())),
            (None, None) => return Err(self.lacks("pid and no summary", "the object that the call was about")),
        };
        let (pid, datastream) = match self.method {
            method if method.is_of_relationships() => rest::split_subject(raw),
            _ => (raw, ""),
        };
        match Pid::parse(pid) {
            Ok(pid) => Ok(Subject { pid, is_datastream: !datastream.is_empty() }),
            Err(invalid) => Err(Rejection::unprocessable(location, invalid.to_string())),
        }
    }

    fn datastream_of(&self, id: Option<&Field<'_>>) -> Result<Uri, Rejection> {
        let field = id.ok_or_else(|| self.lacks("dsID", "the datastream that the call was about"))?;
        let id = DatastreamId::parse(field.value()).map_err(|invalid| field.rejection(invalid.to_string()))?;
        self.checked(self.base_url()?.datastream(&self.subject()?.pid, &id))
    }

    /// Converts an invalid URI to a rejection. A long base URL can make a URI too long.
    fn checked(&self, uri: Result<Uri, InvalidUri>) -> Result<Uri, Rejection> {
        uri.map_err(|invalid| self.entry.rejection(format!("the URI of the subject of the call: {invalid}")))
    }
}
