//! Through a Fedora 3: the list of its objects (findObjects), and of each its datastreams.
//!
//! The list has no order (the server's is disabled), cannot be asked for from a PID on (its operators `>` and `>=` are for
//! dates alone), and its tokens expire, after 500 seconds as Fedora is delivered. So the walk goes in the order of the PIDs
//! by itself: it reads the whole list at one go, keeps the PIDs that come next, looks at their objects, and reads the list
//! again when these are done. Its place is a PID, and does not depend on any token.

use std::collections::VecDeque;

use futures_util::future::join_all;

use super::{AT_ONCE, Part, Place, WalkError, asking::Asking, smallest::Smallest};
use crate::{
    format::{
        Limits, Rejection, RestNames,
        fedora_objects::{ListedObject, object_page},
        fedora_rest::{DatastreamVersion, ListedDatastream, Relations, datastream_profile, datastreams, relations},
    },
    lookup::{LookupError, There},
    model::{ContentLocation, CrawledItem, CrawledObject, NonEmpty, State, Timestamp, Uri},
};

/// How often the list is read again when it breaks off: an object that is purged while it is read may do that.
const LISTINGS: u32 = 5;

/// How many objects are asked for at once; a Fedora gives a hundred, unless it is set otherwise.
const PAGE: &str = "1000";

const XML: &str = "text/xml, application/xml;q=0.9";

/// Where Fedora's own URIs begin.
const FEDORA_URI: &str = "info:fedora/";

pub(super) struct Way {
    asking: Asking,
    names: RestNames,
    after: Option<String>,
    coming: VecDeque<(String, Listed)>,
    /// Whether the list has more than what is coming.
    has_more: bool,
}

/// What the list says of an object.
#[derive(Clone, Debug, Default)]
struct Listed {
    state: Option<State>,
    created: Option<Timestamp>,
}

impl Way {
    pub(super) fn new(asking: Asking, base_url: &str, after: Option<String>) -> Result<Self, WalkError> {
        let names = RestNames::of(base_url).map_err(|error| WalkError::BaseUrl(error.to_string()))?;
        Ok(Self { asking, names, after, coming: VecDeque::new(), has_more: true })
    }

    pub(super) async fn next(&mut self) -> Result<Part, WalkError> {
        if self.coming.is_empty() && self.has_more {
            self.list().await?;
        }
        let now: Vec<_> = self.coming.iter().take(AT_ONCE).cloned().collect();
        let looked_at = join_all(now.iter().map(|(pid, listed)| self.object(pid, listed))).await;
        let mut part = Part::default();
        for ((pid, _), found) in now.iter().zip(looked_at) {
            match found {
                Ok(found) => part.found.extend(found),
                Err(error) => part.left_out.push(self.asking.left_out(pid, error)?),
            }
        }
        self.coming.drain(..now.len());
        self.after = now.into_iter().next_back().map(|(pid, _)| pid).or(self.after.take());
        part.place = Place::After(self.after.clone().unwrap_or_default()).written();
        part.done = self.coming.is_empty() && !self.has_more;
        Ok(part)
    }

    /// Reads the list for those objects that come next.
    async fn list(&mut self) -> Result<(), WalkError> {
        let mut trouble = String::new();
        for _ in 0..LISTINGS {
            match self.listing().await? {
                Ok(smallest) => {
                    let (coming, has_more) = smallest.into_sorted();
                    self.coming = coming.into_iter().collect();
                    self.has_more = has_more;
                    return Ok(());
                }
                Err(why) => trouble = why,
            }
        }
        Err(WalkError::List(trouble))
    }

    /// One reading of the list, from its beginning; an inner error says why it broke off.
    async fn listing(&self) -> Result<Result<Smallest<Listed>, String>, WalkError> {
        let mut smallest = Smallest::new(self.after.clone(), self.asking.manner.names);
        let fields = format!("resultFormat=xml&maxResults={PAGE}&pid=true&state=true&cDate=true");
        let first = format!("/objects?terms=*&{fields}");
        let Some(answer) = self.asking.get(&first, XML).await? else {
            return Err(WalkError::NoRepository(self.asking.repository.settings().url.to_string()));
        };
        let mut page = read(&first, &answer, object_page)?;
        loop {
            for ListedObject { pid, state, created } in page.objects {
                smallest.take(pid, Listed { state, created });
            }
            let Some(token) = page.token else { return Ok(Ok(smallest)) };
            let next = format!("/objects?sessionToken={}&{fields}", escaped(&token));
            page = match self.asking.get(&next, XML).await {
                Ok(Some(answer)) => read(&next, &answer, object_page)?,
                Ok(None) => return Ok(Err("the next page is not there".to_owned())),
                Err(WalkError::Asked { error: error @ LookupError::Status(_), .. }) => {
                    return Ok(Err(error.to_string()));
                }
                Err(error) => return Err(error),
            };
        }
    }

    /// An object with its datastreams; `None` where it is gone.
    async fn object(&self, pid: &str, listed: &Listed) -> Result<Option<CrawledObject>, WalkError> {
        let object = self.names.object(pid).map_err(|error| nonsense(pid, error.to_string()))?;
        let below = format!("/objects/{pid}/datastreams");
        let path = format!("{below}?format=xml&profiles=true");
        let Some(answer) = self.asking.get(&path, XML).await? else { return Ok(None) };
        let mut versions = Vec::new();
        for datastream in read(&path, &answer, datastreams)? {
            versions.extend(match datastream {
                ListedDatastream::Whole(version) => Some(version),
                ListedDatastream::Named(id) => self.datastream(&below, &id).await?,
            });
        }
        let Relations { models, parent } = self.relations(&below, &versions).await?;
        let oldest = versions.iter().map(|version| version.created).min();
        let at = listed.created.or(oldest).unwrap_or(Timestamp::EPOCH);
        let items = versions.into_iter().map(|version| self.item(pid, version)).collect::<Result<Vec<_>, _>>()?;
        let itself = CrawledItem { uri: object.clone(), at, content: None, state: listed.state.clone() };
        let parent = parent.map(|parent| self.named(parent)).filter(|parent| *parent != object);
        Ok(Some(CrawledObject { object, at, parent, types: models, items: NonEmpty::one_and(itself, items) }))
    }

    /// A datastream of which a Fedora before 3.6 lists the name alone; `None` where it is gone.
    async fn datastream(&self, below: &str, id: &str) -> Result<Option<DatastreamVersion>, WalkError> {
        let path = format!("{below}/{}?format=xml", escaped(id));
        let Some(answer) = self.asking.get(&path, XML).await? else { return Ok(None) };
        let mut version = read(&path, &answer, datastream_profile)?;
        id.clone_into(&mut version.datastream);
        Ok(Some(version))
    }

    /// What RELS-EXT says, where there is one that can be read.
    async fn relations(&self, below: &str, versions: &[DatastreamVersion]) -> Result<Relations, WalkError> {
        if !versions.iter().any(|version| version.datastream == "RELS-EXT") {
            return Ok(Relations::default());
        }
        let path = format!("{below}/RELS-EXT/content");
        let answer = self.asking.get(&path, "application/rdf+xml, text/xml;q=0.9, */*;q=0.1").await?;
        Ok(answer.and_then(|answer| relations(&answer.body, limits()).ok()).unwrap_or_default())
    }

    fn item(&self, pid: &str, version: DatastreamVersion) -> Result<CrawledItem, WalkError> {
        let DatastreamVersion { datastream, created, state, media_type, size, digest, is_kept, .. } = version;
        let refused = |error: &dyn std::fmt::Display| nonsense(pid, error.to_string());
        let uri = self.names.datastream(pid, &datastream).map_err(|error| refused(&error))?;
        // A version that goes with the next has no lasting address of its own.
        let dated = is_kept.then(|| RestNames::version(&uri, created)).transpose();
        let url = dated.map_err(|error| refused(&error))?.unwrap_or_else(|| uri.clone());
        let content = ContentLocation { media_type, size, digest, ..ContentLocation::at(url) };
        Ok(CrawledItem { uri, at: created, content: Some(content), state })
    }

    /// An object of this repository by its address, as messages name it.
    fn named(&self, uri: Uri) -> Uri {
        let pid = uri.as_str().strip_prefix(FEDORA_URI);
        pid.and_then(|pid| self.names.object(pid).ok()).unwrap_or(uri)
    }
}

fn read<T>(path: &str, answer: &There, reading: fn(&[u8], Limits) -> Result<T, Rejection>) -> Result<T, WalkError> {
    reading(&answer.body, limits()).map_err(|rejection| nonsense(path, rejection.to_string()))
}

fn nonsense(path: &str, why: String) -> WalkError {
    WalkError::Asked { path: path.to_owned(), error: LookupError::Nonsense(why) }
}

fn limits() -> Limits {
    Limits::default()
}

/// A text for a path or a query.
fn escaped(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
