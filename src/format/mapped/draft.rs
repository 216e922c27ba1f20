//! One element of a message as a draft.

use std::{cell::RefCell, fmt};

use super::{
    kinds::Kind,
    map::{Content, Settings},
    value::{Element, Value, VariableValue},
};
use crate::{
    format::{ExplainedElement, ExplainedMember, Rejection},
    model::{
        ContentLocation, Digest, DigestAlgorithm, Draft, DraftItem, DraftItems, DraftLookup, DraftTime, DroppedPart,
        EventId, MediaType, NonEmpty, Reading, State, Text, Timestamp, Uri, User, VisibilityDates,
    },
};

/// Reader of one element.
pub(super) struct Reader<'a> {
    pub(super) settings: &'a Settings,
    pub(super) element: Element<'a>,
    /// Where the origin of each member is noted, if somebody asks for it.
    pub(super) explained: Option<&'a RefCell<Vec<ExplainedElement>>>,
}

impl Reader<'_> {
    /// Reads the draft; `None` if the element changes nothing.
    ///
    /// # Errors
    /// Fails if a required member is missing or cannot be read.
    pub(super) fn draft(&self) -> Result<Option<Draft>, Rejection> {
        if let Some(explained) = self.explained {
            let place = self.element.location().to_string();
            explained.borrow_mut().push(ExplainedElement { place, members: Vec::new() });
        }
        let map = &self.settings.map;
        let (kind, word) = self.kind()?;
        if kind == Kind::Ignore {
            return Ok(None);
        }
        let mut reading = Reading::default();
        let object = self.required_uri("object", &map.object.0)?;
        let item = map.item.as_ref().map(|item| self.required_uri("item", &item.0)).transpose()?;
        let item = item.unwrap_or_else(|| object.clone());
        let parent = self.uri("parent", map.parent.as_ref().map(|parent| &parent.0), &mut reading)?;
        let types = self.types(&mut reading)?;
        let time = self.time(&mut reading)?;
        let event_id = self.event_id()?;
        let user = self.text("user", map.user.as_ref().map(|user| &user.0))?;
        let user_uri = self.uri("user_uri", map.user_uri.as_ref().map(|uri| &uri.0), &mut reading)?;
        let described = self.text("description", map.description.as_ref().map(|description| &description.0))?;
        let content = map.content.as_ref().filter(|_| kind.has_content());
        let content = content.map(|content| self.content(content, &item, &mut reading)).transpose()?.flatten();
        let state = self.state()?;
        let items = if kind == Kind::Purge {
            DraftItems::Purge
        } else {
            let change = kind.change(content, state).ok_or_else(|| match &map.state {
                Some(state) => {
                    self.element.unprocessable("state", &state.0, "it is missing, and the kind is a change of state")
                }
                None => self.refuse("state: the kind is a change of state, so the map needs `state`"),
            })?;
            DraftItems::Listed(NonEmpty::one(self.dated(DraftItem::new(item, change), kind)?))
        };
        Ok(Some(Draft {
            id: None,
            event_id,
            software_version: None,
            user: User::new(user.as_deref().unwrap_or_default(), user_uri),
            time,
            object,
            parent,
            types,
            description: Text::new(described.as_deref().or(word.as_deref()).unwrap_or_default()),
            report: None,
            items,
            lookup: DraftLookup::default(),
            reading,
        }))
    }

    /// Returns the kind of the event, and the sender's word for it.
    fn kind(&self) -> Result<(Kind, Option<String>), Rejection> {
        let map = &self.settings.map;
        let Some(value) = map.kind.as_ref().map(|kind| &kind.0) else { return Ok((Kind::Content, None)) };
        let Some(word) = self.text("kind", Some(value))? else {
            return Err(self.element.unprocessable("kind", value, "it is missing"));
        };
        let word = word.trim();
        let (kind, known) = if map.kinds.is_empty() {
            (Kind::parse(word), Kind::ALL.map(Kind::name).join(", "))
        } else {
            (map.kinds.find(word).copied(), map.kinds.list())
        };
        let kind = kind.ok_or_else(|| {
            let reason =
                format!("there is no kind for {word:?}; add it to kinds, perhaps as \"ignore\". There are {known}");
            self.element.unprocessable("kind", value, &reason)
        })?;
        Ok((kind, Some(word.to_owned())))
    }

    fn types(&self, reading: &mut Reading) -> Result<Vec<Uri>, Rejection> {
        let mut types = Vec::new();
        for value in &self.settings.map.types {
            let texts = self.element.texts("types", &value.0)?;
            self.explain("types", &value.0, || Some(texts.join(", ")).filter(|texts| !texts.is_empty()));
            types.extend(texts.iter().filter_map(|text| reading.keep(DroppedPart::Uri, Uri::parse(text))));
        }
        Ok(types)
    }

    fn time(&self, reading: &mut Reading) -> Result<DraftTime, Rejection> {
        let map = &self.settings.map;
        let time = match &map.time {
            Some(time) => self.text("time", Some(&time.0))?,
            None if map.cloudevents => self.attribute("time"),
            None => None,
        };
        let read = |text: String| {
            let number = || text.trim().parse().ok().and_then(Timestamp::from_number);
            Timestamp::parse_or_day(&text).or_else(|error| number().ok_or(error))
        };
        Ok(time.and_then(|time| reading.keep(DroppedPart::Time, read(time))).into())
    }

    fn event_id(&self) -> Result<Option<EventId>, Rejection> {
        let map = &self.settings.map;
        let id = match &map.id {
            Some(id) => self.text("id", Some(&id.0))?,
            // Source and identifier together identify an event (CloudEvents, section "id").
            None if map.cloudevents => {
                self.attribute("source").zip(self.attribute("id")).map(|(source, id)| format!("{source} {id}"))
            }
            None => None,
        };
        Ok(id.and_then(|id| EventId::parse(&id)))
    }

    /// Returns an attribute of a CloudEvent.
    fn attribute(&self, name: &str) -> Option<String> {
        let text = self.element.facts.member(name)?.text();
        self.note(name, text.clone(), format!("attribute {name} of the CloudEvent"));
        text
    }

    fn content(&self, map: &Content, item: &Uri, reading: &mut Reading) -> Result<Option<ContentLocation>, Rejection> {
        let url = match &map.url {
            Some(url) => self.uri("content.url", Some(&url.0), reading)?,
            None => Some(item.clone()),
        };
        let media_type = self.text("content.media_type", map.media_type.as_ref().map(|value| &value.0))?;
        let size = self.text("content.size", map.size.as_ref().map(|value| &value.0))?;
        let digest = self.text("content.digest", map.digest.as_ref().map(|value| &value.0))?;
        Ok(url.map(|url| ContentLocation {
            media_type: media_type.and_then(|text| MediaType::parse(&text).ok()),
            size: size.and_then(|text| text.trim().parse().ok()),
            digest: digest.and_then(|text| parse_digest(&text)),
            ..ContentLocation::at(url)
        }))
    }

    fn state(&self) -> Result<Option<State>, Rejection> {
        let map = &self.settings.map;
        let Some(value) = map.state.as_ref().map(|state| &state.0) else { return Ok(None) };
        let Some(word) = self.text("state", Some(value))? else { return Ok(None) };
        let word = word.trim();
        if map.states.is_empty() {
            return State::parse(word)
                .map(Some)
                .map_err(|error| self.element.unprocessable("state", value, &error.to_string()));
        }
        let unknown = || {
            let reason = format!("there is no state for {word:?}; add it to states. There are {}", map.states.list());
            self.element.unprocessable("state", value, &reason)
        };
        map.states.find(word).cloned().map(Some).ok_or_else(unknown)
    }

    /// Adds the announced dates of visibility to an item.
    ///
    /// # Errors
    /// Fails if a date cannot be read, because the item would be public without it.
    fn dated(&self, item: DraftItem, kind: Kind) -> Result<DraftItem, Rejection> {
        let map = &self.settings.map;
        if !kind.has_dates() {
            return Ok(item);
        }
        let from = self.date("visible_from", map.visible_from.as_ref())?;
        let until = self.date("visible_until", map.visible_until.as_ref())?;
        let dates =
            VisibilityDates::new(from, until).map_err(|_| self.refuse("visible_from is not before visible_until"))?;
        // A record has all dates of its item, and an event may be about something else.
        let has_all = kind == Kind::Present && (map.visible_from.is_some() || map.visible_until.is_some());
        Ok(if has_all { item.with_all_dates(dates) } else { item.dated(dates) })
    }

    /// Returns a date of visibility. Numbers are none: 20300203 would be a day of 1970.
    fn date(&self, member: &str, value: Option<&VariableValue>) -> Result<Option<Timestamp>, Rejection> {
        let Some(value) = value.map(|value| &value.0) else { return Ok(None) };
        let Some(text) = self.text(member, Some(value))? else { return Ok(None) };
        let date = Timestamp::parse_or_day(&text);
        date.map(Some).map_err(|error| self.element.unprocessable(member, value, &error.to_string()))
    }

    fn required_uri(&self, member: &str, value: &Value) -> Result<Uri, Rejection> {
        let Some(text) = self.text(member, Some(value))? else {
            return Err(self.element.unprocessable(member, value, "it is missing, or a part of it is"));
        };
        Uri::parse(&text).map_err(|error| self.element.unprocessable(member, value, &refusal(&text, &error)))
    }

    fn uri(&self, member: &str, value: Option<&Value>, reading: &mut Reading) -> Result<Option<Uri>, Rejection> {
        let text = self.text(member, value)?;
        Ok(text.and_then(|text| reading.keep(DroppedPart::Uri, Uri::parse(&text))))
    }

    fn text(&self, member: &str, value: Option<&Value>) -> Result<Option<String>, Rejection> {
        let Some(value) = value else { return Ok(None) };
        let text = self.element.text(member, value)?;
        self.explain(member, value, || text.clone());
        Ok(text)
    }

    /// Notes the origin of a member.
    fn explain(&self, member: &str, value: &Value, text: impl FnOnce() -> Option<String>) {
        if self.explained.is_none() {
            return;
        }
        let preset = self.settings.preset_of(member).map(|name| format!("preset {name}, ")).unwrap_or_default();
        self.note(member, text(), format!("{preset}{} {}", value.what(), value.written()));
    }

    fn note(&self, member: &str, value: Option<String>, origin: String) {
        let Some(explained) = self.explained else { return };
        if let Some(element) = explained.borrow_mut().last_mut() {
            element.members.push(ExplainedMember { member: member.to_owned(), value, origin });
        }
    }

    fn refuse(&self, reason: &str) -> Rejection {
        Rejection::unprocessable(self.element.location(), reason)
    }
}

fn refusal(text: &str, error: &impl fmt::Display) -> String {
    let shown: String = text.chars().take(120).collect();
    format!("{shown:?}: {error}")
}

/// Parses a digest with its algorithm, as in `md5:…`.
fn parse_digest(text: &str) -> Option<Digest> {
    let (algorithm, hex) = text.split_once(':')?;
    Digest::parse(DigestAlgorithm::parse(algorithm.trim())?, hex).ok()
}
