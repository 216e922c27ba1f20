//! A call as the table of methods asks about it: what it was about, as URIs, and what its
//! parameters and its return value say. A wrong value is refused at its place in the message.

use super::{
    PID_HEADER,
    entry::{Entry, Field},
    header,
    method::Method,
    rest::{self, BaseUrl, DatastreamId, Pid},
    shown,
};
use crate::{
    format::{Headers, Place, Rejection},
    model::{InvalidUri, State, Timestamp, Uri},
};

/// A call of a method.
pub(super) struct Call<'c> {
    /// What was called.
    pub(super) method: Method,
    /// What the message says.
    pub(super) entry: &'c Entry<'c>,
    /// What its transport says.
    pub(super) headers: &'c Headers,
    /// The base URL of the source's settings.
    pub(super) base_url: Option<&'c BaseUrl>,
}

/// What a call was about.
struct Subject {
    pid: Pid,
    /// Whether it was one of the object's datastreams; told of relationship methods by 3.0 only.
    is_datastream: bool,
}

impl Call<'_> {
    /// The object.
    pub(super) fn object(&self) -> Result<Uri, Rejection> {
        self.checked(self.base_url()?.object(&self.subject()?.pid))
    }

    /// The datastream that `dsID` names.
    pub(super) fn datastream(&self) -> Result<Uri, Rejection> {
        self.datastream_of(self.entry.parameter("dsID"))
    }

    /// The datastream that was added: where no `dsID` is given Fedora makes one up. It returns the
    /// identifier in either case.
    pub(super) fn new_datastream(&self) -> Result<Uri, Rejection> {
        self.datastream_of(self.entry.parameter("dsID").or(self.entry.content.as_ref()))
    }

    /// The datastream that holds the relationships of the subject. After 3.0 the message does not
    /// say whether that is the object or one of its datastreams; the object's are taken, by far the
    /// commoner.
    pub(super) fn relationships(&self) -> Result<Uri, Rejection> {
        let subject = self.subject()?;
        let id = if subject.is_datastream { DatastreamId::RELS_INT } else { DatastreamId::RELS_EXT };
        self.checked(self.base_url()?.datastream(&subject.pid, &id))
    }

    /// The content of a datastream in the version made at that time.
    pub(super) fn version(&self, datastream: &Uri, created: Timestamp) -> Result<Uri, Rejection> {
        self.checked(rest::version(datastream, created))
    }

    /// The state that the parameter of that name sets, if it was given.
    pub(super) fn state(&self, name: &str) -> Result<Option<State>, Rejection> {
        let Some(field) = self.entry.parameter(name) else { return Ok(None) };
        match field.value() {
            "A" => Ok(Some(State::ACTIVE)),
            "I" => Ok(Some(State::INACTIVE)),
            "D" => Ok(Some(State::DELETED)),
            other => {
                let other = shown(other);
                Err(field.refused(format!("{other} is no state of Fedora's: A, I or D was expected as {name}")))
            }
        }
    }

    /// The date in the parameter of that name, if it was given.
    pub(super) fn date(&self, name: &str) -> Result<Option<Timestamp>, Rejection> {
        self.entry.parameter(name).map(Field::date).transpose()
    }

    /// The date that the method returned, if there is one.
    pub(super) fn returned_date(&self) -> Result<Option<Timestamp>, Rejection> {
        self.entry.content.as_ref().map(Field::date).transpose()
    }

    /// Whether the method returned true rather than false.
    pub(super) fn returned_true(&self) -> Result<bool, Rejection> {
        let Some(returned) = &self.entry.content else {
            return Err(self.lacks("content", "what the method returned, true or false"));
        };
        match returned.value() {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(returned.refused(format!("the method returns true or false, not {}", shown(other)))),
        }
    }

    /// A refusal because something is not there that every such call has.
    pub(super) fn lacks(&self, name: &str, meaning: &str) -> Rejection {
        self.entry.refused(format!("there is no {name}, {meaning}"))
    }

    /// The repository: as the source's settings have it, or as it calls itself.
    fn base_url(&self) -> Result<BaseUrl, Rejection> {
        const ADVICE: &str = "set settings.base_url of this source, as in http://localhost:8080/fedora";
        match (self.base_url, &self.entry.author_uri) {
            (Some(base_url), _) => Ok(base_url.clone()),
            (None, None) => {
                Err(self.entry.refused(format!("the author has no uri, where Fedora tells its base URL; {ADVICE}")))
            }
            (None, Some(uri)) => BaseUrl::parse(uri.value()).map_err(|invalid| {
                uri.refused(format!("the author's uri is not Fedora's base URL: {invalid}; {ADVICE}"))
            }),
        }
    }

    /// What an ingest returned names the object, and the `pid` of other methods; the summary repeats
    /// it, and is all there is for relationship methods after 3.0.
    fn subject(&self) -> Result<Subject, Rejection> {
        let told = match self.method {
            Method::Ingest => self.entry.content.as_ref(),
            _ => self.entry.parameter("pid"),
        };
        let (raw, place) = match (told.or(self.entry.summary.as_ref()), header(self.headers, PID_HEADER)) {
            (Some(field), _) => (field.value(), field.place()),
            (None, Some(pid)) => (pid, Place::Header(PID_HEADER.to_owned())),
            (None, None) => return Err(self.lacks("pid and no summary", "the object that the call was about")),
        };
        let (pid, datastream) = match self.method {
            method if method.is_of_relationships() => rest::split_subject(raw),
            _ => (raw, ""),
        };
        match Pid::parse(pid) {
            Ok(pid) => Ok(Subject { pid, is_datastream: !datastream.is_empty() }),
            Err(invalid) => Err(Rejection::unprocessable(place, invalid.to_string())),
        }
    }

    fn datastream_of(&self, id: Option<&Field<'_>>) -> Result<Uri, Rejection> {
        let field = id.ok_or_else(|| self.lacks("dsID", "the datastream that the call was about"))?;
        let id = DatastreamId::parse(field.value()).map_err(|invalid| field.refused(invalid.to_string()))?;
        self.checked(self.base_url()?.datastream(&self.subject()?.pid, &id))
    }

    /// The base URL may be so long that what it begins is too long.
    fn checked(&self, uri: Result<Uri, InvalidUri>) -> Result<Uri, Rejection> {
        uri.map_err(|invalid| self.entry.refused(format!("the URI of what the call was about: {invalid}")))
    }
}
