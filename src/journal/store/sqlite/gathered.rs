//! What of the registry is in memory and not yet in its tables.
//!
//! An object that is touched again and again would have its rows, and so whole pages, written with each append; and
//! objects far apart a page or more each. So what changes touch is held in memory, and when enough has gathered
//! ([`Bounds::gathered_bytes`], [`Bounds::gathered_changes`]) it moves to the tables in their own order, some with each append,
//! so that many rows fall on one page and no append waits long.
//!
//! It is durable all the while, since it can be told again: by the changes after the last one of which the tables
//! certainly hold all ([`Mark`]), by the table `confirmations`, which has what events confirmed that are in no change,
//! and by the table `seeds`, which has what walks through repositories told.
//! While a walk is on its way the tables hold some objects as of its beginning and the others as of the walk before. That
//! does not matter: what is told again from the older mark ends in the same ([`ObjectState::take`]).
//!
//! Memory follows the file: it changes when a transaction has been committed, and not before. Who reads takes
//! what is gathered and a transaction of his own at one moment, or he would miss what moved in between.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map},
    ops::Bound,
};

use indexmap::{IndexMap, map::Entry};
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    Bounds,
    held::{Held, size, size_of_item},
    objects, rows,
};
use crate::{
    journal::store::{ItemsAsked, StoreError, Touched},
    model::{Seq, Uri},
};

/// How many rows move for each one that is touched: more than one, so that all have moved before as many
/// have gathered again.
const MOVED_FOR_EACH: usize = 2;

/// How many rows of `confirmations` that are no longer needed go with one append at the most.
const CLEARED_AT_ONCE: i64 = 1024;

/// Up to which change the tables hold the registry, in `meta`, …
const MOVED: &str = "registry_moved";

/// up to which row of `confirmations`, …
const CONFIRMED: &str = "confirmations_moved";

/// … and up to which row of `seeds`.
const SEEDED: &str = "seeds_moved";

/// A moment of the registry: after this change, after this row of `confirmations`, and after this row of `seeds`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) change: Seq,
    pub(super) confirmation: i64,
    pub(super) seed: i64,
}

/// What of the registry is not in its tables yet.
#[derive(Default)]
pub(super) struct Gathered {
    /// The newest moment: that of the newest transaction.
    newest: Mark,
    /// The moment up to which the tables hold everything.
    moved: Mark,
    /// Up to which row the table `confirmations` has been cleared.
    cleared: i64,
    recent: Generation,
    walk: Option<Walk>,
}

/// What is held of objects. They have places, so that they can be gone through without being looked up.
pub(super) type Objects = IndexMap<Uri, Held, foldhash::fast::RandomState>;

/// What was touched in a run of changes.
#[derive(Default)]
struct Generation {
    objects: Objects,
    /// The same objects in the order in which readers ask for them.
    uris: BTreeSet<Uri>,
    bytes: usize,
    /// How many changes and confirmations touched it.
    told: usize,
}

/// Objects on their way into the tables.
struct Walk {
    /// First those that have rows already, in the order of their rows, then the new ones in that of their URIs. Nothing is
    /// held any more of those that have moved.
    objects: Objects,
    /// URIs of those that have not moved.
    uris: BTreeSet<Uri>,
    /// How many have moved.
    done: usize,
    /// When all have moved the tables hold everything up to here.
    upto: Mark,
}

impl Walk {
    fn of(mut objects: Objects, uris: BTreeSet<Uri>, upto: Mark) -> Self {
        fn place<'a>(uri: &'a Uri, held: &Held) -> (i64, &'a Uri) {
            (held.number.unwrap_or(i64::MAX), uri)
        }
        objects.sort_unstable_by(|uri, held, other_uri, other| place(uri, held).cmp(&place(other_uri, other)));
        Self { objects, uris, done: 0, upto }
    }

    /// Those that have not moved yet.
    fn coming(&self) -> impl Iterator<Item = (&Uri, &Held)> {
        self.objects.get_range(self.done..).into_iter().flatten()
    }

    /// What is held of an object that has not moved yet.
    fn held(&self, uri: &Uri) -> Option<&Held> {
        let (place, _, held) = self.objects.get_full(uri)?;
        (place >= self.done).then_some(held)
    }

    /// So many more have moved.
    fn has_moved(&mut self, objects: usize) {
        for place in self.done..self.done + objects {
            if let Some((uri, held)) = self.objects.get_index_mut(place) {
                *held = Held::default();
                self.uris.remove(uri);
            }
        }
        self.done += objects;
    }
}

/// What a transaction has moved.
#[derive(Default)]
pub(super) struct Moved {
    objects: usize,
    is_done: bool,
    cleared: Option<i64>,
}

impl Mark {
    /// What the tables hold for certain.
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut statement = connection.prepare_cached("SELECT value FROM meta WHERE name = ?")?;
        let mut read = |name| statement.query_row([name], |row| row.get::<_, i64>(0)).optional();
        let change = Seq(read(MOVED)?.unwrap_or_default().unsigned_abs());
        let (confirmation, seed) = (read(CONFIRMED)?.unwrap_or_default(), read(SEEDED)?.unwrap_or_default());
        Ok(Self { change, confirmation, seed })
    }

    fn write(self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)")?;
        statement.execute(params![MOVED, rows::number(self.change.0)])?;
        statement.execute(params![CONFIRMED, self.confirmation])?;
        statement.execute(params![SEEDED, self.seed])?;
        Ok(())
    }
}

impl Gathered {
    /// What was told again after `moved`, up to `newest`.
    pub(super) fn told_again(moved: Mark, newest: Mark, objects: Objects, told: usize) -> Self {
        let bytes = objects.iter().map(|(uri, held)| size(uri, held)).sum();
        let uris = objects.keys().cloned().collect();
        let recent = Generation { objects, uris, bytes, told };
        Self { newest, moved, cleared: 0, recent, walk: None }
    }

    pub(super) fn newest(&self) -> Mark {
        self.newest
    }

    pub(super) fn moved(&self) -> Mark {
        self.moved
    }

    /// Whether the tables hold everything.
    pub(super) fn is_empty(&self) -> bool {
        self.walk.is_none() && self.recent.objects.is_empty()
    }

    /// What is held of an object, the older first.
    fn generations(&self, uri: &Uri) -> impl Iterator<Item = &Held> {
        self.walk.as_ref().and_then(|walk| walk.held(uri)).into_iter().chain(self.recent.objects.get(uri))
    }

    /// What is held of an object; `None` where the tables hold all of it.
    pub(super) fn held(&self, uri: &Uri) -> Option<Held> {
        self.generations(uri).cloned().reduce(Held::followed_by)
    }

    /// What is held of the objects after `after`, `limit` of them at the most.
    pub(super) fn after(&self, after: Option<&Uri>, limit: usize) -> BTreeMap<Uri, Held> {
        let range = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let mut page: BTreeMap<Uri, Held> = BTreeMap::new();
        let moving = self.walk.iter().map(|walk| (&walk.uris, &walk.objects));
        for (uris, objects) in moving.chain([(&self.recent.uris, &self.recent.objects)]) {
            let following = uris.range::<Uri, _>(range).take(limit);
            for (uri, held) in following.filter_map(|uri| Some((uri, objects.get(uri)?))) {
                match page.entry(uri.clone()) {
                    btree_map::Entry::Vacant(free) => drop(free.insert(held.clone())),
                    btree_map::Entry::Occupied(mut older) => {
                        let both = std::mem::take(older.get_mut()).followed_by(held.clone());
                        older.insert(both);
                    }
                }
            }
        }
        page
    }

    /// How many objects have no row yet.
    pub(super) fn without_rows(&self, reading: &mut objects::Reading<'_>) -> Result<u64, StoreError> {
        let mut count = 0;
        for (uri, held) in self.after(None, usize::MAX) {
            count += u64::from(held.number.is_none() && reading.number(&uri)?.is_none());
        }
        Ok(count)
    }

    /// What is held of an object and of the items asked for.
    pub(super) fn known(&self, uri: &Uri, asked: &ItemsAsked) -> Option<Held> {
        let ItemsAsked::Some(wanted) = asked else { return self.held(uri) };
        let held = || self.generations(uri);
        let newest = held().last()?;
        let packed = |item| held().filter_map(|held| held.item(item)).last();
        let items = wanted.as_slice().iter().filter_map(|item| Some((item.clone(), packed(item)?.clone()))).collect();
        let number = held().find_map(|held| held.number);
        Some(Held { number, itself: newest.itself, object: newest.object.clone(), items })
    }

    /// Moves some of what has gathered: as much as is due when this many rows are touched.
    pub(super) fn step(&self, connection: &Connection, touched: usize) -> Result<Moved, StoreError> {
        let mut moved = Moved::default();
        if let Some(walk) = &self.walk {
            let mut writing = objects::Writing::new(connection)?;
            let (mut rows, due) = (0, touched.saturating_mul(MOVED_FOR_EACH));
            for (uri, held) in walk.coming() {
                if rows >= due {
                    break;
                }
                writing.object(uri, held)?;
                rows += 1 + held.items.len();
                moved.objects += 1;
            }
            moved.is_done = walk.done + moved.objects == walk.objects.len();
            if moved.is_done {
                walk.upto.write(connection)?;
            }
        }
        if self.cleared < self.moved.confirmation {
            let upto = self.moved.confirmation.min(self.cleared + CLEARED_AT_ONCE);
            connection.prepare_cached("DELETE FROM confirmations WHERE number <= ?")?.execute([upto])?;
            moved.cleared = Some(upto);
        }
        Ok(moved)
    }

    /// What has moved is on disk.
    pub(super) fn has_moved(&mut self, Moved { objects, is_done, cleared }: Moved) {
        self.cleared = cleared.unwrap_or(self.cleared);
        let Some(walk) = &mut self.walk else { return };
        walk.has_moved(objects);
        if is_done {
            self.moved = walk.upto;
            self.walk = None;
        }
    }

    /// What was touched is on disk, in the changes and confirmations up to `newest`, of which `told` are new.
    pub(super) fn take(&mut self, bounds: Bounds, touched: Vec<Touched>, newest: Mark, told: usize) {
        for touched in touched {
            self.recent.take(touched);
        }
        self.newest = newest;
        self.recent.told += told;
        let enough = self.recent.bytes >= bounds.gathered_bytes || self.recent.told >= bounds.gathered_changes;
        if enough && self.walk.is_none() {
            self.set_out();
        }
    }

    /// Has all that has gathered begin to move, unless something is moving already.
    pub(super) fn set_out(&mut self) {
        if self.walk.is_none() {
            let Generation { objects, uris, .. } = std::mem::take(&mut self.recent);
            self.walk = Some(Walk::of(objects, uris, self.newest));
        }
    }
}

impl Generation {
    fn take(&mut self, Touched { uri, number, itself, object, items, .. }: Touched) {
        match self.objects.entry(uri) {
            Entry::Vacant(free) => {
                let held = Held { number, itself, object, items };
                self.bytes += size(free.key(), &held);
                self.uris.insert(free.key().clone());
                free.insert(held);
            }
            Entry::Occupied(mut held) => {
                let held = held.get_mut();
                held.number = held.number.or(number);
                held.itself |= itself;
                self.bytes = (self.bytes + object.len()).saturating_sub(held.object.len());
                held.object = object;
                for (uri, packed) in items {
                    self.bytes += size_of_item(&uri, &packed);
                    if let Some((uri, older)) = held.put(uri, packed) {
                        self.bytes = self.bytes.saturating_sub(size_of_item(&uri, &older));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Bounds, Gathered, Held, ItemsAsked, Mark, Moved, Touched, Uri};
    use crate::{
        journal::{
            registry::{ItemRecord, ObjectState},
            store::KnownObject,
        },
        model::Timestamp,
    };

    fn uri(text: &str) -> Uri {
        Uri::parse(text).unwrap()
    }

    /// The object at a moment, when these items of it were touched.
    fn touched(moment: i64, items: &[&str]) -> Touched {
        let time = Timestamp::from_millis(moment);
        let mut record = ItemRecord::default();
        record.state.clock.at = time;
        let mut state = ObjectState::default();
        state.purged.at = time;
        state.items = items.iter().map(|item| (uri(item), Box::new(record.clone()))).collect();
        let items = state.items.keys().cloned().collect();
        Touched::new(uri("http://h/1"), &KnownObject { number: None, state: Arc::new(state) }, true, items, None)
    }

    /// The moments of the object, and of items `a`, `b` and `c`.
    fn moments(held: Option<Held>) -> [Option<i64>; 4] {
        let held = held.unwrap();
        let of_item = |item: &str| held.item(&uri(item)).and_then(|item| item.item_columns().unwrap().state_times.at);
        [
            held.object.object_columns().unwrap().purged.at,
            of_item("http://h/a"),
            of_item("http://h/b"),
            of_item("http://h/c"),
        ]
    }

    #[test]
    fn what_was_touched_later_counts_while_the_older_is_on_its_way() {
        let mut gathered = Gathered::default();
        gathered.take(Bounds::default(), vec![touched(1, &["http://h/a", "http://h/b"])], Mark::default(), 1);
        gathered.set_out();
        gathered.take(Bounds::default(), vec![touched(2, &["http://h/b", "http://h/c"])], Mark::default(), 1);
        let (object, all) = (uri("http://h/1"), ["http://h/a", "http://h/b", "http://h/c"].map(uri));
        let asked = [ItemsAsked::All, ItemsAsked::these(all)];
        for asked in asked {
            let moments = moments(gathered.known(&object, &asked));
            assert_eq!(moments, [Some(2), Some(1), Some(2), Some(2)], "{asked:?}");
        }
        let asked = ItemsAsked::these([uri("http://h/b")]);
        assert_eq!(moments(gathered.known(&object, &asked)), [Some(2), None, Some(2), None]);
        assert!(gathered.known(&uri("http://h/2"), &ItemsAsked::All).is_none());
    }

    /// So many objects, half of them on their way into the tables.
    fn gathered(objects: i64) -> Gathered {
        let mut gathered = Gathered::default();
        let touched = |number| Touched { uri: uri(&format!("http://h/{number:06}")), ..touched(number, &[]) };
        gathered.take(Bounds::default(), (0..objects).step_by(2).map(touched).collect(), Mark::default(), 1);
        gathered.set_out();
        gathered.take(Bounds::default(), (1..objects).step_by(2).map(touched).collect(), Mark::default(), 1);
        gathered
    }

    #[test]
    fn page_has_the_next_objects_in_order_without_those_that_have_moved() {
        let mut gathered = gathered(10);
        gathered.has_moved(Moved { objects: 2, ..Moved::default() });
        let names = |page: std::collections::BTreeMap<Uri, Held>| {
            page.into_keys().map(|uri| uri.as_str().rsplit_once('0').unwrap().1.to_owned()).collect::<Vec<_>>().join("")
        };
        // The first two of 0, 2, 4, 6, 8 have moved. A page may have more than it must, from each side as many.
        assert!(names(gathered.after(None, 2)).starts_with("13"));
        assert_eq!(names(gathered.after(None, 99)), "13456789");
        assert_eq!(names(gathered.after(Some(&uri("http://h/000006")), 99)), "789");
        assert_eq!(names(gathered.after(Some(&uri("http://h/000009")), 99)), "");
    }

    #[test]
    fn page_takes_as_long_however_much_has_gathered() {
        let (few, many) = (gathered(20), gathered(20_000));
        let after = uri("http://h/000007");
        let time = |gathered: &Gathered| {
            let began = std::time::Instant::now();
            for _ in 0..100 {
                assert!(!gathered.after(Some(&after), 1).is_empty());
            }
            began.elapsed()
        };
        // The best of some, since the machine may be busy with something else. A search of everything takes 1000 times as long.
        let best = |gathered| (0..10).map(|_| time(gathered)).min().unwrap();
        let (few, many) = (best(&few), best(&many));
        assert!(many < few * 100, "{few:?} with 20 objects, {many:?} with 20000");
    }
}
