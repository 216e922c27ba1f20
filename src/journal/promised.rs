//! What the store will know when all that is settled has been written, for the batches that are settled until then.
//!
//! From the writer, which adds each batch when it has settled it and forgets it when it is written, to the next batch that is
//! settled. Many may be on their way, and most of what is asked stands in none of them: so each event and each object is
//! looked up once, and not once for each of them.

use std::{
    collections::{VecDeque, hash_map::Entry},
    mem,
    sync::Arc,
};

use foldhash::{HashMap, HashSet};

use super::store::{EventKey, ItemsAsked, Known, KnownObject, Questions};
use crate::model::{ChangeId, Seq, Timestamp, Uri};

/// What one batch will have the store know.
#[derive(Debug, Default)]
pub(super) struct Promised {
    /// The newest change.
    pub(super) newest: Option<(Seq, Timestamp)>,
    /// The events that it knew or has made known, …
    pub(super) seen: HashMap<EventKey, (Seq, Option<ChangeId>)>,
    /// … those that changed nothing, …
    pub(super) unchanged: HashSet<EventKey>,
    /// … and the identifiers that are taken.
    pub(super) taken: HashSet<ChangeId>,
    /// The objects that it touched, each once.
    pub(super) objects: Vec<(Uri, KnownObject)>,
    /// The numbers of items of those objects that it may have added items to.
    pub(super) item_counts: Vec<(Uri, usize)>,
}

/// What all batches on their way will have the store know.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// Of each batch what is seldom asked, by the number of its work, oldest first. Its events and objects are below.
    batches: VecDeque<(u64, Promised)>,
    seen: HashMap<EventKey, Event>,
    objects: HashMap<Uri, Object>,
}

/// An event, and the last work that knows it.
#[derive(Debug)]
struct Event {
    work: u64,
    first: (Seq, Option<ChangeId>),
}

/// An object as batches left it, each with those items that it was asked for.
#[derive(Debug)]
struct Object {
    newest: (u64, KnownObject),
    /// Those before, oldest first. Most objects are in one batch.
    older: Vec<(u64, KnownObject)>,
}

impl Promises {
    /// A batch is on its way, as the work of that number.
    pub(super) fn add(&mut self, work: u64, mut batch: Promised) {
        let (seen, objects) = (mem::take(&mut batch.seen), mem::take(&mut batch.objects));
        self.seen.extend(seen.into_iter().map(|(key, first)| (key, Event { work, first })));
        for (uri, object) in objects {
            let newest = (work, object);
            match self.objects.entry(uri) {
                Entry::Occupied(held) => {
                    let Object { newest: held, older } = held.into_mut();
                    older.push(mem::replace(held, newest));
                }
                Entry::Vacant(free) => {
                    free.insert(Object { newest, older: Vec::new() });
                }
            }
        }
        self.batches.push_back((work, batch));
    }

    /// Forgets what the store knows by now: all works up to the one of that number are done with.
    pub(super) fn forget(&mut self, done: u64) {
        if self.batches.front().is_none_or(|(work, _)| *work > done) {
            return;
        }
        self.batches.retain(|(work, _)| *work > done);
        self.seen.retain(|_, event| event.work > done);
        self.objects.retain(|_, object| {
            object.older.retain(|(work, _)| *work > done);
            object.newest.0 > done
        });
    }

    /// Forgets everything: none of it will be written.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Adds what will have been written to what the store answered, perhaps before it was.
    pub(super) fn tell(&self, questions: &Questions, known: &mut Known) {
        for (_, batch) in &self.batches {
            if let Some((head, received)) = batch.newest {
                known.head = head;
                known.received = Some(received);
            }
            known.unchanged.extend(questions.unchanged.iter().filter(|key| batch.unchanged.contains(key)));
            known.taken.extend(questions.ids.iter().filter(|id| batch.taken.contains(id)));
        }
        known.seen.extend(questions.keys.iter().filter_map(|key| Some((*key, self.seen.get(key)?.first))));
        for (uri, asked) in &questions.objects {
            let Some(Object { newest, older }) = self.objects.get(uri) else { continue };
            let known = known.objects.entry(uri.clone()).or_default();
            older.iter().chain([newest]).for_each(|(_, newer)| known.follow(newer, asked));
        }
    }
}

impl KnownObject {
    /// Takes over the same object as it is later, with those of its items that are asked for.
    fn follow(&mut self, newer: &Self, asked: &ItemsAsked) {
        self.number = self.number.or(newer.number);
        let state = Arc::make_mut(&mut self.state);
        state.parent = newer.state.parent.clone();
        state.types = newer.state.types.clone();
        state.purged = newer.state.purged;
        let items = newer.state.items.iter().filter(|(uri, _)| asked.asks(uri));
        state.items.extend(items.map(|(uri, record)| (uri.clone(), record.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ChangeId, EventKey, ItemsAsked, Known, KnownObject, Promised, Promises, Questions, Seq, Timestamp, Uri,
    };
    use crate::journal::{registry::ItemRecord, registry::ObjectState};

    const OBJECT: &str = "http://h/1";
    const KEY: EventKey = EventKey([7; 16]);

    fn uri(text: &str) -> Uri {
        Uri::parse(text).unwrap()
    }

    fn time(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    /// What change `number` will have the store know: the object as it is then, and these items of it.
    fn batch(number: u32, items: &[&str]) -> Promised {
        let at = Some(time(number.into()));
        let mut record = ItemRecord::default();
        record.state.clock.at = at;
        let mut state = ObjectState::default();
        state.purged.at = at;
        state.items = items.iter().map(|item| (uri(item), Box::new(record.clone()))).collect();
        let seq = Seq(number.into());
        Promised {
            newest: Some((seq, time(number.into()))),
            seen: [(KEY, (seq, None))].into_iter().collect(),
            unchanged: [EventKey([9; 16])].into_iter().collect(),
            taken: [id(number)].into_iter().collect(),
            objects: vec![(uri(OBJECT), KnownObject { number: None, state: state.into() })],
            item_counts: Vec::new(),
        }
    }

    fn id(number: u32) -> ChangeId {
        ChangeId::parse(&format!("urn:uuid:00000000-0000-4000-8000-{number:012}")).unwrap()
    }

    /// What is known of the head, of the object, and of its items, as their numbers, when these are asked for.
    fn known(promises: &Promises, asked: ItemsAsked) -> (Seq, Option<i64>, Vec<(String, i64)>) {
        let questions = Questions { objects: [(uri(OBJECT), asked)].into_iter().collect(), ..Questions::default() };
        let mut known = Known::default();
        promises.tell(&questions, &mut known);
        let Some(KnownObject { state, .. }) = known.objects.remove(&uri(OBJECT)) else {
            return (known.head, None, Vec::new());
        };
        let number = |time: Option<Timestamp>| time.unwrap().millis();
        let items = state.items.iter().map(|(uri, item)| (uri.as_str()[9..].to_owned(), number(item.state.clock.at)));
        (known.head, Some(number(state.purged.at)), items.collect())
    }

    #[test]
    fn of_an_object_in_several_batches_the_later_counts_and_no_item_is_missed() {
        let mut promises = Promises::default();
        promises.add(1, batch(1, &["http://h/a", "http://h/b"]));
        promises.add(2, batch(2, &["http://h/b", "http://h/c"]));
        let item = |name: &str, number| (name.to_owned(), number);
        let all = vec![item("a", 1), item("b", 2), item("c", 2)];
        assert_eq!(known(&promises, ItemsAsked::All), (Seq(2), Some(2), all));
        let some = ItemsAsked::these(["http://h/a", "http://h/b"].map(uri));
        assert_eq!(known(&promises, some), (Seq(2), Some(2), vec![item("a", 1), item("b", 2)]));
        // What the store has by now it tells itself.
        promises.forget(1);
        assert_eq!(known(&promises, ItemsAsked::All), (Seq(2), Some(2), vec![item("b", 2), item("c", 2)]));
        promises.forget(2);
        assert_eq!(known(&promises, ItemsAsked::All), (Seq::ZERO, None, Vec::new()));
    }

    #[test]
    fn events_and_identifiers_are_known_until_the_last_batch_that_knows_them_is_written() {
        let mut promises = Promises::default();
        promises.add(1, batch(1, &[]));
        promises.add(2, batch(2, &[]));
        let (ids, unchanged) = (vec![id(1), id(2), id(3)], vec![EventKey([9; 16]), EventKey([8; 16])]);
        let questions = Questions { keys: vec![KEY, EventKey([8; 16])], ids, unchanged, ..Questions::default() };
        let told = |promises: &Promises| {
            let mut known = Known::default();
            promises.tell(&questions, &mut known);
            let mut taken: Vec<_> = known.taken.into_iter().collect();
            taken.sort();
            (known.seen.into_iter().collect::<Vec<_>>(), known.unchanged.len(), taken)
        };
        assert_eq!(told(&promises), (vec![(KEY, (Seq(2), None))], 1, vec![id(1), id(2)]));
        promises.forget(1);
        assert_eq!(told(&promises), (vec![(KEY, (Seq(2), None))], 1, vec![id(2)]));
        promises.clear();
        assert_eq!(told(&promises), (Vec::new(), 0, Vec::new()));
    }
}
