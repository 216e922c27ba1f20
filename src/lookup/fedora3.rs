//! Lookups through the REST API of Fedora 3: the version that an event created, the datastreams that an ingest
//! created, the versions that a purge left, and from RELS-EXT the content models and the parent of an object.
//!
//! A version is attributed to an event only if one of these holds: it was created at the time that the event
//! names; or the event is about a new datastream and it is the first version; or the event names no version
//! time and it was created before the message. Fedora takes both times from its clock when a call begins, the
//! time of the version first.

use futures_util::future::join_all;

use super::{cached_requests::CachedRequests, error::LookupError, note_unreadable, restrict};
use crate::{
    format::{
        fedora_relations::{Relations, relations},
        fedora_rest::{DatastreamVersion, ListedDatastream, datastream_history, datastream_profile, datastreams},
        stated_dates::DateStatements,
    },
    model::{
        ContentLocation, Draft, DraftChange, DraftItem, DraftItems, ItemChange, LookupMark, MissingFacts, NonEmpty,
        Timestamp, Uri,
    },
};

const XML: &str = "text/xml, application/xml";

/// Accepted media type of RELS-EXT, whose declared type depends on the repository's users.
const ANY: &str = "*/*";

/// Identifier of the datastream with the relationships and dates of its object.
const RELS_EXT: &str = "RELS-EXT";

/// Prefix of Fedora's own URIs for objects.
const FEDORA_URI: &str = "info:fedora/";

/// Facts about the items of a draft.
#[derive(Default)]
struct ItemFacts {
    items: Option<NonEmpty<DraftItem>>,
    mark: Option<LookupMark>,
}

impl ItemFacts {
    fn with_mark(mark: LookupMark) -> Self {
        Self { items: None, mark: Some(mark) }
    }
}

/// Completes a draft from the repository, as far as it responds. `object` is the path of the object below the
/// repository's URL.
///
/// # Errors
/// Returns the error of the first request that failed. The draft contains the facts of the other requests.
pub(super) async fn complete(
    requests: &CachedRequests<'_>,
    object: &str,
    draft: &mut Draft,
) -> Result<(), LookupError> {
    let base = draft.object.as_str().strip_suffix(object).unwrap_or(requests.repository.settings().url.as_str());
    let repository = Object { requests, path: object, base: base.to_owned() };
    let (items, relations) = tokio::join!(repository.items(draft), repository.relations());
    if let Ok(Some(relations)) = &relations {
        draft.parent =
            draft.parent.take().or_else(|| relations.parent.as_ref().map(|parent| repository.public_uri(parent)));
        if draft.types.is_empty() {
            draft.types.clone_from(&relations.models);
        }
    }
    // The dates count even if a request for the items failed: nothing may show an item that a known date hides.
    let failed = match items {
        Ok(ItemFacts { items, mark }) => {
            draft.lookup.mark = mark;
            if let Some(items) = items {
                draft.items = DraftItems::Listed(items);
            }
            None
        }
        Err(error) => Some(error),
    };
    let with_dates = match relations {
        Ok(relations) => repository.add_dates(draft, relations, failed.is_some()).await,
        Err(error) => Err(error),
    };
    failed.map_or(with_dates, Err)
}

/// Returns whether an entry of the list of datastreams may be RELS-EXT. A profile can lack its identifier.
fn may_be_relations(listed: &ListedDatastream) -> bool {
    matches!(listed.id(), "" | RELS_EXT)
}

/// An object of the repository.
struct Object<'a> {
    requests: &'a CachedRequests<'a>,
    /// Path below the repository's URL, such as `/objects/demo:5`.
    path: &'a str,
    /// Base URL of the URIs in the repository's messages.
    base: String,
}

impl Object<'_> {
    /// Requests and parses RELS-EXT; `None` if the repository has no content of it.
    async fn relations(&self) -> Result<Option<Relations>, LookupError> {
        let path = format!("{}/datastreams/{RELS_EXT}/content", self.path);
        let predicates = self.requests.repository.settings().dates.clone();
        let read = move |body: &[u8], limits| relations(body, &predicates, limits);
        self.requests.read(&path, ANY, read).await
    }

    /// Adds the dates of RELS-EXT to the items of a draft. `relations` is `None` if the repository has no content of it.
    /// `is_repeated` says that another lookup follows, which counts the dates that cannot be read.
    async fn add_dates(
        &self,
        draft: &mut Draft,
        relations: Option<Relations>,
        is_repeated: bool,
    ) -> Result<(), LookupError> {
        if self.requests.repository.settings().dates.is_empty() {
            return Ok(());
        }
        let is_about_relations = self.is_about_relations(draft);
        let listed = match relations.is_none() || is_about_relations {
            true => self.datastreams().await,
            false => Ok(Some(Vec::new())),
        };
        let listed = listed.inspect_err(|_| {
            if let Some(relations) = &relations {
                restrict(draft, &relations.dates);
            }
        })?;
        let Some(listed) = listed else {
            draft.lookup.mark.get_or_insert(LookupMark::Gone);
            return Ok(());
        };
        let dates = match relations {
            Some(relations) => relations.dates,
            // The response says that there is no content, and not why. Only the list says that there is no RELS-EXT.
            None if listed.iter().any(may_be_relations) => DateStatements::unreadable(),
            None => DateStatements::default(),
        };
        if is_about_relations {
            self.add_other_items(draft, &listed);
        }
        restrict(draft, &dates);
        if !is_repeated {
            note_unreadable(draft, &dates);
        }
        Ok(())
    }

    /// Requests the list of datastreams; `None` if the repository has no such object.
    async fn datastreams(&self) -> Result<Option<Vec<ListedDatastream>>, LookupError> {
        self.requests.read(&format!("{}/datastreams?format=xml&profiles=true", self.path), XML, datastreams).await
    }

    async fn items(&self, draft: &Draft) -> Result<ItemFacts, LookupError> {
        let DraftItems::Listed(items) = &draft.items else { return Ok(ItemFacts::default()) };
        match draft.lookup.missing {
            MissingFacts::Nothing | MissingFacts::Object => Ok(ItemFacts::default()),
            MissingFacts::Items => self.ingested(items, draft.time.reported()).await,
            MissingFacts::Content | MissingFacts::RemainingVersions => {
                let mut all = ItemFacts::default();
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

    /// Returns whether a draft is about RELS-EXT. That of an ingest has all datastreams already.
    fn is_about_relations(&self, draft: &Draft) -> bool {
        let relations = format!("{}{}/datastreams/{RELS_EXT}/content", self.base, self.path);
        draft.lookup.missing != MissingFacts::Items
            && draft.items.listed().iter().any(|item| item.uri.as_str() == relations)
    }

    /// Adds the other items of the object to a draft about RELS-EXT, because its dates concern them all. The draft says
    /// nothing else about them, so settling ignores those that the registry does not have.
    fn add_other_items(&self, draft: &mut Draft, listed: &[ListedDatastream]) {
        let DraftItems::Listed(items) = &draft.items else { return };
        let datastreams = listed.iter().map(|listed| format!("/datastreams/{}/content", listed.id()));
        let uris = std::iter::once(String::new()).chain(datastreams);
        let others = uris
            .filter_map(|below| Uri::parse(&format!("{}{}{below}", self.base, self.path)).ok())
            .filter(|uri| !items.iter().any(|item| item.uri == *uri))
            .map(|uri| DraftItem::new(uri, DraftChange::Present { content: None, state: None }));
        if let Ok(all) = NonEmpty::try_from(items.iter().cloned().chain(others).collect::<Vec<_>>()) {
            draft.items = DraftItems::Listed(all);
        }
    }

    /// Completes one item, which is a datastream.
    async fn item(
        &self,
        item: &mut DraftItem,
        missing: MissingFacts,
        time: Option<Timestamp>,
    ) -> Result<Option<LookupMark>, LookupError> {
        let Some(path) = self.requests.repository.settings().path_of(item.uri.as_str()) else {
            return Ok(Some(LookupMark::Foreign));
        };
        let Some(path) = path.strip_suffix("/content") else { return Ok(None) };
        let newest = self.profile(path, None).await?;
        if missing == MissingFacts::RemainingVersions {
            return Ok(complete_after_purge(item, newest.as_ref(), time));
        }
        let Some(newest) = newest else { return Ok(Some(LookupMark::Gone)) };
        let Some(content) = item.change.content_mut() else { return Ok(None) };
        let event_version = EventVersion::of(content, &item.uri, time);
        let is_new = matches!(item.change, DraftChange::Reported(ItemChange::Add { .. }));
        let (version, mark) = self.event_version(path, event_version, is_new, newest).await?;
        if let (Some(version), Some(content)) = (version, item.change.content_mut()) {
            fill(content, &item.uri, version);
        }
        Ok(mark)
    }

    /// Returns the version that an event is about, if it still exists. `newest` is the newest version.
    async fn event_version(
        &self,
        path: &str,
        event_version: EventVersion,
        is_new: bool,
        newest: DatastreamVersion,
    ) -> Result<(Option<DatastreamVersion>, Option<LookupMark>), LookupError> {
        match event_version {
            EventVersion::Made(time) if newest.created == time => Ok((Some(newest), None)),
            // The current version predates the event, so the event's version has been purged.
            EventVersion::Made(time) if newest.created < time => Ok((None, Some(LookupMark::Gone))),
            EventVersion::Made(time) => {
                let then = self.profile(path, Some(time)).await?.filter(|version| version.created == time);
                Ok((then, Some(LookupMark::Newer)))
            }
            EventVersion::Until(time) if is_new => {
                let is_in_time = |version: &DatastreamVersion| time.is_none_or(|time| version.created <= time);
                if newest.is_first() && is_in_time(&newest) {
                    return Ok((Some(newest), None));
                }
                let history = self.history(path).await?;
                let first = history.into_iter().find(|version| version.is_first() && is_in_time(version));
                Ok((first, Some(LookupMark::Newer)))
            }
            EventVersion::Until(time) if time.is_none_or(|time| newest.created <= time) => Ok((Some(newest), None)),
            EventVersion::Until(_) => Ok((None, Some(LookupMark::Newer))),
        }
    }

    /// Returns the items that an ingest created: the object itself and the datastreams as they were then.
    async fn ingested(&self, items: &[DraftItem], time: Option<Timestamp>) -> Result<ItemFacts, LookupError> {
        let Some(listed) = self.datastreams().await? else {
            return Ok(ItemFacts::with_mark(LookupMark::Gone));
        };
        let each = listed.into_iter().map(|listed| self.created_by_ingest(listed, time));
        let mut all = items.to_vec();
        all.retain(|item| item.uri.as_str() == format!("{}{}", self.base, self.path));
        let mut mark = None;
        for result in join_all(each).await {
            let (item, item_mark) = result?;
            mark = mark.or(item_mark);
            all.extend(item);
        }
        Ok(ItemFacts { items: NonEmpty::try_from(all).ok(), mark })
    }

    /// Returns a datastream if the ingest at `time` created it. A datastream that was added later has a
    /// message of its own.
    async fn created_by_ingest(
        &self,
        listed: ListedDatastream,
        time: Option<Timestamp>,
    ) -> Result<(Option<DraftItem>, Option<LookupMark>), LookupError> {
        let id = listed.id().to_owned();
        let path = format!("{}/datastreams/{id}", self.path);
        let newest = match listed {
            ListedDatastream::WithProfile(version) => Some(version),
            ListedDatastream::IdOnly(_) => self.profile(&path, None).await?,
        };
        // A datastream that disappeared after the list was read has a message of its own about its deletion.
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
        let uri = uri.map_err(|invalid| LookupError::InvalidResponse(format!("the datastream {id:?}: {invalid}")))?;
        let mut content = ContentLocation::at(uri.clone());
        fill(&mut content, &uri, version);
        let add = ItemChange::Add { content: Some(content), after: state };
        Ok((Some(DraftItem::new(uri, DraftChange::Reported(add))), mark))
    }

    /// Requests the profile of a datastream, in its newest version or in the version at `time`.
    async fn profile(&self, path: &str, time: Option<Timestamp>) -> Result<Option<DatastreamVersion>, LookupError> {
        let as_of = time.map(|time| format!("&asOfDateTime={time}")).unwrap_or_default();
        self.requests.read(&format!("{path}?format=xml{as_of}"), XML, datastream_profile).await
    }

    async fn history(&self, path: &str) -> Result<Vec<DatastreamVersion>, LookupError> {
        let history = self.requests.read(&format!("{path}/history?format=xml"), XML, datastream_history).await?;
        Ok(history.unwrap_or_default())
    }

    /// Converts the URI of an object in RELS-EXT to the URI that messages use.
    fn public_uri(&self, internal: &Uri) -> Uri {
        let pid = internal.as_str().strip_prefix(FEDORA_URI);
        let uri = pid.and_then(|pid| Uri::parse(&format!("{}/objects/{pid}", self.base)).ok());
        uri.unwrap_or_else(|| internal.clone())
    }
}

/// The version that an event is about.
#[derive(Clone, Copy)]
enum EventVersion {
    /// The version that was created at this time.
    Made(Timestamp),
    /// The newest version at this time, or the first version if the datastream is new.
    Until(Option<Timestamp>),
}

impl EventVersion {
    fn of(content: &ContentLocation, datastream: &Uri, time: Option<Timestamp>) -> Self {
        let suffix = content.url.as_str().strip_prefix(datastream.as_str());
        let date = suffix.and_then(|suffix| suffix.strip_prefix("?asOfDateTime="));
        date.and_then(|date| Timestamp::parse(date).ok()).map_or(Self::Until(time), Self::Made)
    }
}

/// Completes an item after the purge of some versions: a DELETE if none is left, else an UPDATE to the newest
/// version.
fn complete_after_purge(
    item: &mut DraftItem,
    newest: Option<&DatastreamVersion>,
    time: Option<Timestamp>,
) -> Option<LookupMark> {
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

/// Copies the facts of a version to a content location. A version that the next change replaces has no lasting
/// URL, so its URL is not dated.
fn fill(content: &mut ContentLocation, datastream: &Uri, version: DatastreamVersion) {
    if version.is_versioned
        && content.url == *datastream
        && let Ok(dated_url) = Uri::parse(&format!("{datastream}?asOfDateTime={}", version.created))
    {
        content.url = dated_url;
    }
    content.media_type = version.media_type.or_else(|| content.media_type.take());
    content.size = version.size.or(content.size);
    content.digest = version.digest.or_else(|| content.digest.take());
}
