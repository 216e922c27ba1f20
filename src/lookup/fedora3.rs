//! What the REST API of Fedora 3 knows of an event: the version that it made, what an ingest brought, what a purge of some
//! versions left, and from RELS-EXT the object's content models and what it belongs to.
//!
//! Nothing is made up. A version is taken for the event's if it was made at the moment that the event tells; else if it is
//! the first, where the event is of a new datastream; else if it was made before the message, where that tells no more:
//! Fedora takes the time of both from its clock when a call begins, that of the version first.

use futures_util::future::join_all;

use super::{asking::Asking, error::LookupError};
use crate::{
    format::fedora_rest::{
        DatastreamVersion, ListedDatastream, Relations, datastream_history, datastream_profile, datastreams, relations,
    },
    model::{
        ContentLocation, Draft, DraftChange, DraftItem, DraftItems, ItemChange, LookupMark, MissingFacts, NonEmpty,
        Timestamp, Uri,
    },
};

const XML: &str = "text/xml, application/xml";

/// What RELS-EXT is had as: whatever type somebody has given it.
const ANY: &str = "*/*";

/// Fedora's own URIs for objects.
const FEDORA_URI: &str = "info:fedora/";

/// What was found out of the items of a draft.
#[derive(Default)]
struct Found {
    items: Option<NonEmpty<DraftItem>>,
    mark: Option<LookupMark>,
}

impl Found {
    fn marked(mark: LookupMark) -> Self {
        Self { items: None, mark: Some(mark) }
    }
}

/// Completes a draft as far as the repository answers, at `object` below its address.
///
/// # Errors
/// When it does not answer everything. What it did answer is in the draft.
pub(super) async fn complete(asking: &Asking<'_>, object: &str, draft: &mut Draft) -> Result<(), LookupError> {
    let base = draft.object.as_str().strip_suffix(object).unwrap_or(asking.repository.settings().url.as_str());
    let repository = Object { asking, path: object, base: base.to_owned() };
    let (items, relations) = tokio::join!(repository.items(draft), repository.relations());
    if let Ok(relations) = &relations {
        draft.parent =
            draft.parent.take().or_else(|| relations.parent.as_ref().map(|parent| repository.public(parent)));
        if draft.types.is_empty() {
            draft.types.clone_from(&relations.models);
        }
    }
    if let Ok(found) = &items {
        draft.lookup.mark = found.mark;
    }
    items.map(|found| {
        if let Some(items) = found.items {
            draft.items = DraftItems::Listed(items);
        }
    })?;
    relations.map(|_| ())
}

/// An object of the repository.
struct Object<'a> {
    asking: &'a Asking<'a>,
    /// Below the repository's address: `/objects/demo:5`.
    path: &'a str,
    /// How the URIs of its messages begin.
    base: String,
}

impl Object<'_> {
    async fn relations(&self) -> Result<Relations, LookupError> {
        let path = format!("{}/datastreams/RELS-EXT/content", self.path);
        Ok(self.asking.read(&path, ANY, relations).await?.unwrap_or_default())
    }

    async fn items(&self, draft: &Draft) -> Result<Found, LookupError> {
        let DraftItems::Listed(items) = &draft.items else { return Ok(Found::default()) };
        match draft.lookup.missing {
            MissingFacts::Nothing | MissingFacts::Object => Ok(Found::default()),
            MissingFacts::Items => self.ingested(items, draft.time.reported()).await,
            MissingFacts::Content | MissingFacts::RemainingVersions => {
                let mut all = Found::default();
                let mut completed = items.to_vec();
                for item in &mut completed {
                    let mark = self.item(item, draft.lookup.missing, draft.time.reported()).await?;
                    all.mark = all.mark.or(mark);
                }
                all.items = NonEmpty::try_from(completed).ok();
                Ok(all)
            }
        }
    }

    /// Completes one item, a datastream.
    async fn item(
        &self,
        item: &mut DraftItem,
        untold: MissingFacts,
        time: Option<Timestamp>,
    ) -> Result<Option<LookupMark>, LookupError> {
        let Some(path) = self.asking.repository.settings().path_of(item.uri.as_str()) else {
            return Ok(Some(LookupMark::Foreign));
        };
        let Some(path) = path.strip_suffix("/content") else { return Ok(None) };
        let newest = self.profile(path, None).await?;
        if untold == MissingFacts::RemainingVersions {
            return Ok(rest(item, newest.as_ref(), time));
        }
        let Some(newest) = newest else { return Ok(Some(LookupMark::Gone)) };
        let Some(content) = item.change.content_mut() else { return Ok(None) };
        let wanted = Wanted::of(content, &item.uri, time);
        let is_new = matches!(item.change, DraftChange::Reported(ItemChange::Add { .. }));
        let (version, mark) = self.wanted(path, wanted, is_new, newest).await?;
        if let (Some(version), Some(content)) = (version, item.change.content_mut()) {
            fill(content, &item.uri, version);
        }
        Ok(mark)
    }

    /// The version that an event speaks of, if it is there, given the newest.
    async fn wanted(
        &self,
        path: &str,
        wanted: Wanted,
        is_new: bool,
        newest: DatastreamVersion,
    ) -> Result<(Option<DatastreamVersion>, Option<LookupMark>), LookupError> {
        match wanted {
            Wanted::Made(time) if newest.created == time => Ok((Some(newest), None)),
            // What is there now is older than what there was.
            Wanted::Made(time) if newest.created < time => Ok((None, Some(LookupMark::Gone))),
            Wanted::Made(time) => {
                let then = self.profile(path, Some(time)).await?.filter(|version| version.created == time);
                Ok((then, Some(LookupMark::Newer)))
            }
            Wanted::Until(time) if is_new => {
                let is_in_time = |version: &DatastreamVersion| time.is_none_or(|time| version.created <= time);
                if newest.is_first() && is_in_time(&newest) {
                    return Ok((Some(newest), None));
                }
                let history = self.history(path).await?;
                let first = history.into_iter().find(|version| version.is_first() && is_in_time(version));
                Ok((first, Some(LookupMark::Newer)))
            }
            Wanted::Until(time) if time.is_none_or(|time| newest.created <= time) => Ok((Some(newest), None)),
            Wanted::Until(_) => Ok((None, Some(LookupMark::Newer))),
        }
    }

    /// What an ingest brought: the datastreams as they were then, behind the object itself.
    async fn ingested(&self, items: &[DraftItem], time: Option<Timestamp>) -> Result<Found, LookupError> {
        let path = format!("{}/datastreams?format=xml&profiles=true", self.path);
        let Some(listed) = self.asking.read(&path, XML, datastreams).await? else {
            return Ok(Found::marked(LookupMark::Gone));
        };
        let each = listed.into_iter().map(|listed| self.brought(listed, time));
        let mut all = items.to_vec();
        all.retain(|item| item.uri.as_str() == format!("{}{}", self.base, self.path));
        let mut mark = None;
        for brought in join_all(each).await {
            let (item, of_item) = brought?;
            mark = mark.or(of_item);
            all.extend(item);
        }
        Ok(Found { items: NonEmpty::try_from(all).ok(), mark })
    }

    /// A datastream, if the ingest at `time` brought it: one that was added later is told by a message of its own.
    async fn brought(
        &self,
        listed: ListedDatastream,
        time: Option<Timestamp>,
    ) -> Result<(Option<DraftItem>, Option<LookupMark>), LookupError> {
        let id = match &listed {
            ListedDatastream::Whole(version) => version.datastream.clone(),
            ListedDatastream::Named(id) => id.clone(),
        };
        let path = format!("{}/datastreams/{id}", self.path);
        let newest = match listed {
            ListedDatastream::Whole(version) => Some(version),
            ListedDatastream::Named(_) => self.profile(&path, None).await?,
        };
        // One that has gone since the list was made is told to be gone by its own message.
        let Some(newest) = newest else { return Ok((None, Some(LookupMark::Newer))) };
        let state = newest.state.clone();
        let is_in_time = |version: &DatastreamVersion| time.is_none_or(|time| version.created <= time);
        let (version, mark) = if is_in_time(&newest) {
            (Some(newest), None)
        } else {
            let then = self.history(&path).await?.into_iter().filter(is_in_time).max_by_key(|version| version.created);
            let mark = then.as_ref().map(|_| LookupMark::Newer);
            (then, mark)
        };
        let Some(version) = version else { return Ok((None, None)) };
        let uri = Uri::parse(&format!("{}{path}/content", self.base));
        let uri = uri.map_err(|invalid| LookupError::Nonsense(format!("the datastream {id:?}: {invalid}")))?;
        let mut content = ContentLocation::at(uri.clone());
        fill(&mut content, &uri, version);
        let add = ItemChange::Add { content: Some(content), after: state };
        Ok((Some(DraftItem::new(uri, DraftChange::Reported(add))), mark))
    }

    /// A datastream in its newest version, or in that of a time.
    async fn profile(&self, path: &str, time: Option<Timestamp>) -> Result<Option<DatastreamVersion>, LookupError> {
        let as_of = time.map(|time| format!("&asOfDateTime={time}")).unwrap_or_default();
        self.asking.read(&format!("{path}?format=xml{as_of}"), XML, datastream_profile).await
    }

    async fn history(&self, path: &str) -> Result<Vec<DatastreamVersion>, LookupError> {
        let history = self.asking.read(&format!("{path}/history?format=xml"), XML, datastream_history).await?;
        Ok(history.unwrap_or_default())
    }

    /// An object that RELS-EXT names, as messages would name it.
    fn public(&self, named: &Uri) -> Uri {
        let pid = named.as_str().strip_prefix(FEDORA_URI);
        let uri = pid.and_then(|pid| Uri::parse(&format!("{}/objects/{pid}", self.base)).ok());
        uri.unwrap_or_else(|| named.clone())
    }
}

/// Which version an event speaks of.
#[derive(Clone, Copy)]
enum Wanted {
    /// The one that was made then.
    Made(Timestamp),
    /// The newest that there was then, or the first, where it is new.
    Until(Option<Timestamp>),
}

impl Wanted {
    fn of(content: &ContentLocation, datastream: &Uri, time: Option<Timestamp>) -> Self {
        let dated = content.url.as_str().strip_prefix(datastream.as_str());
        let dated = dated.and_then(|rest| rest.strip_prefix("?asOfDateTime="));
        dated.and_then(|date| Timestamp::parse(date).ok()).map_or(Self::Until(time), Self::Made)
    }
}

/// What the purge of some versions left.
fn rest(item: &mut DraftItem, newest: Option<&DatastreamVersion>, time: Option<Timestamp>) -> Option<LookupMark> {
    let change = match newest {
        None => ItemChange::Delete { before: None, after: None },
        Some(newest) if time.is_some_and(|time| newest.created > time) => return Some(LookupMark::Newer),
        Some(newest) => {
            let mut content = ContentLocation::at(item.uri.clone());
            fill(&mut content, &item.uri, newest.clone());
            ItemChange::Update { content: Some(content), before: None, after: None }
        }
    };
    item.change = DraftChange::FollowUp(change);
    None
}

/// A version that goes with the next has no lasting address of its own.
fn fill(content: &mut ContentLocation, datastream: &Uri, version: DatastreamVersion) {
    if version.is_kept
        && content.url == *datastream
        && let Ok(dated) = Uri::parse(&format!("{datastream}?asOfDateTime={}", version.created))
    {
        content.url = dated;
    }
    content.media_type = version.media_type.or_else(|| content.media_type.take());
    content.size = version.size.or(content.size);
    content.digest = version.digest.or_else(|| content.digest.take());
}
