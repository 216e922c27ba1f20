//! Entries that were copied from a change into a feed: the change that they belong to, and what its gateway knows of it.
//!
//! The feed of a gateway has each item of a change as an entry, with the change in `atom:source` (RFC 4287 section 4.2.11)
//! and in `tidings:change`.

use super::{
    super::{Rejection, xml::Element},
    read::{Entry, Feed, is_true, located},
};
use crate::model::{AspectSet, ItemNotes, Settlement, State, Timestamp};

impl<'a> Feed<'a> {
    /// Returns the message that the entries were copied from, if they say so; otherwise the feed itself.
    ///
    /// # Errors
    /// Rejects entries of different messages.
    pub(super) fn with_source(mut self) -> Result<Self, Rejection> {
        let Some(first) = self.entries.first_mut() else { return Ok(self) };
        let (Some(mut source), change) = (first.source.take(), first.change.take()) else { return Ok(self) };
        let id = |feed: &Self| feed.id.as_ref().map(|(_, id)| id.to_string());
        let is_other = |entry: &&Entry<'a>| entry.source.as_deref().and_then(id) != id(&source);
        if let Some(other) = self.entries.iter().skip(1).find(is_other) {
            return Err(other.start.unprocessable("the entry belongs to another change than the first one"));
        }
        // Only the journal of a gateway numbers changes.
        source.is_settled = change.as_ref().is_some_and(|change| change.attribute("seq").is_some());
        (source.root, source.entries, source.change) = (self.root, self.entries, change);
        Ok(*source)
    }

    /// Returns the notes of the gateway that has settled the change, as they are in the attributes of `tidings:change` and
    /// in the entries.
    ///
    /// # Errors
    /// Rejects an invalid time or state.
    pub(super) fn settlement(&self) -> Result<Settlement, Rejection> {
        let change = self.change.as_ref();
        let aspects = |name| change.and_then(|change| change.attribute(name)).map(|names| AspectSet::of_names(&names));
        let as_of = change.and_then(|change| Some((change, change.attribute("as-of")?)));
        let as_of = as_of.map(|(change, time)| located(Timestamp::parse(time.trim()), change, "as-of"));
        Ok(Settlement {
            filled: aspects("filled").unwrap_or_default(),
            late: aspects("late").unwrap_or_default(),
            purge: self.is_purge(),
            as_of: as_of.transpose()?,
            lookup: self.mark(),
            due: change.and_then(|change| change.attribute("due")).is_some_and(|said| is_true(&said)),
            items: self.entries.iter().map(Entry::item_notes).collect::<Result<_, _>>()?,
        })
    }
}

impl Entry<'_> {
    fn item_notes(&self) -> Result<ItemNotes, Rejection> {
        let attribute =
            |name| self.notes.as_ref().and_then(|notes: &Element<'_>| Some((notes, notes.attribute(name)?)));
        let initial_state = attribute("begins-in");
        let initial_state = initial_state.map(|(notes, state)| located(State::parse(state.trim()), notes, "begins-in"));
        Ok(ItemNotes {
            late: self.late.as_ref().map(|(_, names)| AspectSet::of_names(names)).unwrap_or_default(),
            inferred: attribute("inferred").is_some_and(|(_, said)| is_true(&said)),
            initial_state: initial_state.transpose()?,
            ..ItemNotes::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        super::{Limits, Rejection},
        read::draft,
    };
    use crate::model::{Aspect, Draft, DraftItems, ItemNotes, LookupMark, Settlement, State, Timestamp};

    const ID: &str = "urn:uuid:11111111-2222-4333-8444-555555555555";

    /// Returns the draft of a feed with entries that were copied from messages with these ids. Each has these additions.
    fn copied(ids: &[&str], additions: &str) -> Result<Draft, Rejection> {
        let entries: String = ids
            .iter()
            .enumerate()
            .map(|(number, id)| {
                format!(
                    r#"<entry><title>an entry</title><id>urn:uuid:66666666-7777-4888-8999-00000000000{number}</id>
                    <category term="ADD" scheme="changes:ITEM:CHANGE:TYPE"/><link href="urn:item:{number}" rel="via"/>
                    <source><title>ingest</title><id>{id}</id><updated>2024-05-06T07:08:09Z</updated>
                    <author><name>curator</name></author><category
                    term="http://www.acuityunlimited.net/fedora/messaging#content-change-message-0.1"
                    scheme="http://www.fedora.info/definitions/1/0/types/formatURI"/>
                    <link href="urn:object" rel="via"/><link href="urn:parent" rel="related"/>
                    <entry><link href="urn:other" rel="via"/></entry></source>
                    {additions}</entry>"#
                )
            })
            .collect();
        let feed = format!(
            r#"<feed xmlns="http://www.w3.org/2005/Atom" xmlns:tidings="urn:tidings:change:1">{entries}</feed>"#
        );
        draft(feed.as_bytes(), Limits::default())
    }

    #[test]
    fn copied_entries_of_a_message_are_the_message() {
        let draft = copied(&[ID, ID], r#"<tidings:change event="event-1"/>"#).unwrap();
        assert_eq!(draft.id.unwrap().to_string(), ID);
        assert_eq!((draft.object.as_str(), draft.parent.unwrap().as_str()), ("urn:object", "urn:parent"));
        assert_eq!((draft.description.as_str(), draft.user.name()), ("ingest", "curator"));
        assert_eq!(draft.event_id.unwrap().as_str(), "event-1");
        let DraftItems::Listed(items) = draft.items else { panic!("no gateway has settled it") };
        let items: Vec<_> = items.iter().map(|item| item.uri.as_str()).collect();
        assert_eq!(items, ["urn:item:0", "urn:item:1"]);
    }

    #[test]
    fn copied_entries_of_a_settled_change_have_its_notes() {
        let notes = r#"<tidings:change seq="42" purge="true" filled="types" late="parent" as-of="2024-05-06T07:08:10Z"
            lookup="gone"/><tidings:item inferred="true" begins-in="ACTIVE"/><tidings:late>content state</tidings:late>"#;
        let DraftItems::Relayed { items, settlement } = copied(&[ID, ID], notes).unwrap().items else {
            panic!("the gateway has settled it")
        };
        let item = ItemNotes {
            late: [Aspect::Content, Aspect::State].into_iter().collect(),
            inferred: true,
            initial_state: Some(State::ACTIVE),
            ..ItemNotes::default()
        };
        let expected = Settlement {
            filled: [Aspect::Types].into_iter().collect(),
            late: [Aspect::Parent].into_iter().collect(),
            purge: true,
            as_of: Some(Timestamp::parse("2024-05-06T07:08:10Z").unwrap()),
            lookup: Some(LookupMark::Gone),
            due: false,
            items: vec![item.clone(), item],
        };
        assert_eq!((items.len(), *settlement), (2, expected));
        let without = copied(&[ID], r#"<tidings:change seq="42"/>"#).unwrap().items;
        assert!(
            matches!(without, DraftItems::Relayed { settlement, .. } if settlement.items == [ItemNotes::default()])
        );
    }

    #[test]
    fn notes_that_are_not_valid_are_refused() {
        for (notes, complaint) in [
            (r#"<tidings:change seq="42" as-of="yesterday"/>"#, "as-of: "),
            (r#"<tidings:change seq="42"/><tidings:item begins-in=""/>"#, "begins-in: "),
        ] {
            let error = copied(&[ID], notes).unwrap_err().to_string();
            assert!(error.contains(complaint), "{error}");
        }
    }

    #[test]
    fn copied_entries_of_two_messages_are_refused() {
        let error = copied(&[ID, "urn:x:2"], r#"<tidings:change seq="42"/>"#).unwrap_err();
        assert!(error.to_string().contains("the entry belongs to another change than the first one"), "{error}");
    }
}
