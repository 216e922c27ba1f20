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
    collections::{BTreeMap, btree_map, hash_map::Entry},
    sync::Arc,
};

use foldhash::HashMap;
use rusqlite::{Connection, OptionalExtension, params};

use super::{Bounds, objects, rows};
use crate::{
    journal::{
        registry::ObjectState,
        store::{ItemsAsked, KnownObject, Packed, StoreError, Touched},
    },
    model::{Seq, Uri},
};

/// How many rows move for each one that is touched: more than one, so that all have moved before as many
/// have gathered again.
const MOVED_FOR_EACH: usize = 2;

/// What an object takes in memory beside its texts, in bytes, about, …
const OVERHEAD: usize = 256;

/// … and an item.
const OVERHEAD_OF_ITEM: usize = 128;

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

/// What was touched in a run of changes.
#[derive(Default)]
struct Generation {
    objects: HashMap<Uri, Held>,
    bytes: usize,
    /// How many changes and confirmations touched it.
    told: usize,
}

/// An object as it is now, with those of its items that were touched.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// Its number in the tables, where it is known.
    pub(super) number: Option<i64>,
    /// Whether the object itself was touched.
    pub(super) itself: bool,
    /// What is known of it, …
    pub(super) object: Packed,
    /// … and of the items that were touched, in order of their URIs.
    pub(super) items: Vec<(Uri, Packed)>,
}

/// Objects on their way into the tables.
struct Walk {
    coming: HashMap<Uri, Held>,
    /// First those that have rows already, in the order of their rows, then the new ones in that of their URIs.
    order: Vec<(i64, Uri)>,
    done: usize,
    /// When all have moved the tables hold everything up to here.
    upto: Mark,
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
    pub(super) fn told_again(moved: Mark, newest: Mark, objects: HashMap<Uri, Held>, told: usize) -> Self {
        let bytes = objects.iter().map(|(uri, held)| size(uri, held)).sum();
        let recent = Generation { objects, bytes, told };
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

    fn generations(&self) -> impl Iterator<Item = &HashMap<Uri, Held>> {
        self.walk.iter().map(|walk| &walk.coming).chain([&self.recent.objects])
    }

    /// What is held of an object; `None` where the tables hold all of it.
    pub(super) fn held(&self, uri: &Uri) -> Option<Held> {
        self.generations().filter_map(|objects| objects.get(uri).cloned()).reduce(Held::followed_by)
    }

    /// What is held of the objects after `after`, `limit` of them at the most.
    pub(super) fn after(&self, after: Option<&Uri>, limit: usize) -> BTreeMap<Uri, Held> {
        let mut page: BTreeMap<Uri, Held> = BTreeMap::new();
        for objects in self.generations() {
            let mut following: Vec<_> = objects.iter().filter(|(uri, _)| Some(*uri) > after).collect();
            if limit < following.len() {
                following.select_nth_unstable_by_key(limit, |(uri, _)| *uri);
                following.truncate(limit);
            }
            for (uri, held) in following {
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
        let held = || self.generations().filter_map(|objects| objects.get(uri));
        let newest = held().last()?;
        let packed = |item| held().filter_map(|held| held.item(item)).last();
        let items = wanted.iter().filter_map(|item| Some((item.clone(), packed(item)?.clone()))).collect();
        let number = held().find_map(|held| held.number);
        Some(Held { number, itself: newest.itself, object: newest.object.clone(), items })
    }

    /// Moves some of what has gathered: as much as is due when this many rows are touched.
    pub(super) fn step(&self, connection: &Connection, touched: usize) -> Result<Moved, StoreError> {
        let mut moved = Moved::default();
        if let Some(walk) = &self.walk {
            let mut writing = objects::Writing::new(connection)?;
            let (mut rows, due) = (0, touched.saturating_mul(MOVED_FOR_EACH));
            for (_, uri) in &walk.order[walk.done..] {
                if rows >= due {
                    break;
                }
                if let Some(held) = walk.coming.get(uri) {
                    writing.object(uri, held)?;
                    rows += 1 + held.items.len();
                }
                moved.objects += 1;
            }
            moved.is_done = walk.done + moved.objects == walk.order.len();
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
        for (_, uri) in &walk.order[walk.done..walk.done + objects] {
            walk.coming.remove(uri);
        }
        walk.done += objects;
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
            let coming = std::mem::take(&mut self.recent).objects;
            let place = |(uri, held): (&Uri, &Held)| (held.number.unwrap_or(i64::MAX), uri.clone());
            let mut order: Vec<_> = coming.iter().map(place).collect();
            order.sort_unstable();
            self.walk = Some(Walk { coming, order, done: 0, upto: self.newest });
        }
    }
}

impl Generation {
    fn take(&mut self, Touched { uri, number, itself, object, items, .. }: Touched) {
        match self.objects.entry(uri) {
            Entry::Vacant(free) => {
                let held = Held { number, itself, object, items };
                self.bytes += size(free.key(), &held);
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

impl Held {
    /// What is held of an item.
    fn item(&self, uri: &Uri) -> Option<&Packed> {
        let at = self.items.binary_search_by(|(held, _)| held.cmp(uri)).ok()?;
        Some(&self.items[at].1)
    }

    /// Puts an item in its place; gives what was held of it.
    fn put(&mut self, uri: Uri, packed: Packed) -> Option<(Uri, Packed)> {
        match self.items.binary_search_by(|(held, _)| held.cmp(&uri)) {
            Ok(at) => Some(std::mem::replace(&mut self.items[at], (uri, packed))),
            Err(at) => {
                self.items.insert(at, (uri, packed));
                None
            }
        }
    }

    /// The same with what was touched later.
    fn followed_by(mut self, later: Self) -> Self {
        let Self { number, itself, object, items } = later;
        for (uri, packed) in items {
            self.put(uri, packed);
        }
        Self { number: self.number.or(number), itself: self.itself || itself, object, items: self.items }
    }

    /// All of the object: what is held, over what the tables hold of it.
    pub(super) fn over(self, in_tables: Option<KnownObject>) -> Result<ObjectState, StoreError> {
        let in_tables = in_tables.map(|known| Arc::unwrap_or_clone(known.state)).unwrap_or_default();
        let mut state = ObjectState { items: in_tables.items, ..self.object.object_columns()?.state()? };
        self.unpack_items(&mut state)?;
        Ok(state)
    }

    /// What is known of the object and of the items asked for, with what the tables hold.
    pub(super) fn complete(
        self,
        uri: &Uri,
        asked: &ItemsAsked,
        reading: &mut objects::Reading<'_>,
    ) -> Result<KnownObject, StoreError> {
        let mut number = self.number;
        let mut state = self.object.object_columns()?.state()?;
        match asked {
            ItemsAsked::All => {
                number = reading.number_or(number, uri)?;
                if let Some(number) = number {
                    reading.items(number, &mut state.items)?;
                }
            }
            ItemsAsked::Some(wanted) => {
                for item in wanted.iter().filter(|item| self.item(item).is_none()) {
                    number = reading.number_or(number, uri)?;
                    let record = number.map(|number| reading.item(number, item)).transpose()?.flatten();
                    state.items.extend(record.map(|record| (item.clone(), record)));
                }
            }
        }
        self.unpack_items(&mut state)?;
        Ok(KnownObject { number, state: Arc::new(state) })
    }

    fn unpack_items(self, state: &mut ObjectState) -> Result<(), StoreError> {
        for (uri, packed) in self.items {
            state.items.insert(uri, packed.item_columns()?.record()?);
        }
        Ok(())
    }
}

/// What an object takes in memory, in bytes, about.
fn size(uri: &Uri, held: &Held) -> usize {
    let items: usize = held.items.iter().map(|(uri, packed)| size_of_item(uri, packed)).sum();
    OVERHEAD + uri.as_str().len() + held.object.len() + items
}

fn size_of_item(uri: &Uri, packed: &Packed) -> usize {
    OVERHEAD_OF_ITEM + uri.as_str().len() + packed.len()
}
