//! One object of what has gathered of the registry: what is held of it, over what the tables hold.

use std::sync::Arc;

use super::objects;
use crate::{
    journal::{
        registry::ObjectState,
        store::{ItemsAsked, KnownObject, Packed, StoreError},
    },
    model::Uri,
};

/// What an object takes in memory beside its texts, in bytes, about, …
const OVERHEAD: usize = 256;

/// … and an item.
const OVERHEAD_OF_ITEM: usize = 128;

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

impl Held {
    /// What is held of an item.
    pub(super) fn item(&self, uri: &Uri) -> Option<&Packed> {
        let at = self.items.binary_search_by(|(held, _)| held.cmp(uri)).ok()?;
        Some(&self.items[at].1)
    }

    /// Puts an item in its place; gives what was held of it.
    pub(super) fn put(&mut self, uri: Uri, packed: Packed) -> Option<(Uri, Packed)> {
        match self.items.binary_search_by(|(held, _)| held.cmp(&uri)) {
            Ok(at) => Some(std::mem::replace(&mut self.items[at], (uri, packed))),
            Err(at) => {
                self.items.insert(at, (uri, packed));
                None
            }
        }
    }

    /// The same with what was touched later.
    pub(super) fn followed_by(mut self, later: Self) -> Self {
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
                for item in wanted.as_slice().iter().filter(|item| self.item(item).is_none()) {
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
pub(super) fn size(uri: &Uri, held: &Held) -> usize {
    let items: usize = held.items.iter().map(|(uri, packed)| size_of_item(uri, packed)).sum();
    OVERHEAD + uri.as_str().len() + held.object.len() + items
}

pub(super) fn size_of_item(uri: &Uri, packed: &Packed) -> usize {
    OVERHEAD_OF_ITEM + uri.as_str().len() + packed.len()
}
