//! What is known of an object or of an item, in one piece of memory.
//!
//! A record of the registry is some ten pieces, and one that has been settled goes from the thread that settled it to the
//! one that writes it, may stay in memory for a while, and leaves from there for its row. To follow all the pieces each
//! time took longer than to write the row. So a store gets records packed: as the values of their columns, one after the other.

use std::{fmt::Display, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};

use super::StoreError;
use crate::{
    journal::{
        KeptContent,
        registry::{Beginning, Clock, ItemRecord, ObjectState, Register},
        write_json,
    },
    model::{State, Timestamp, Uri},
};

/// A record that is packed. Clones share it. Of one of which nothing is known there is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed(Option<Arc<[u8]>>);

/// Where records are packed, one after the other.
#[derive(Default)]
pub(super) struct Packing(Vec<u8>);

/// The columns of a clock: times in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// The column `<fact>_at`.
    pub(super) at: Option<i64>,
    /// The column `<fact>_confirmed`.
    pub(super) confirmed: Option<i64>,
}

/// The columns of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObjectColumns<'a> {
    pub(super) parent: Option<&'a str>,
    pub(super) parent_times: Times,
    /// JSON.
    pub(super) types: &'a str,
    pub(super) types_times: Times,
    pub(super) purged: Times,
}

/// The columns of an item, without its URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ItemColumns<'a> {
    pub(super) existence: bool,
    pub(super) existence_times: Times,
    /// JSON.
    pub(super) content: Option<&'a str>,
    pub(super) content_times: Times,
    pub(super) state: Option<&'a str>,
    pub(super) state_times: Times,
    pub(super) beginning: BeginningColumns<'a>,
    pub(super) unheard: bool,
}

/// The columns of what an item begins in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BeginningColumns<'a> {
    pub(super) state: Option<&'a str>,
    pub(super) at: Option<i64>,
    pub(super) confirmed: Option<i64>,
}

/// The JSON of no types, as for most objects.
const NO_TYPES: &str = "[]";

impl Packed {
    /// How many bytes it takes.
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |packed| packed.len())
    }

    /// Packs what is known of an object itself.
    pub(super) fn object(state: &ObjectState, packing: &mut Packing) -> Self {
        let ObjectState { parent, types, purged, items: _ } = state;
        let is_unknown = parent.value.is_none() && types.value.is_empty();
        if is_unknown && [parent.clock, types.clock, *purged].iter().all(|clock| *clock == Clock::default()) {
            return Self(None);
        }
        packing.text(state.parent.value.as_ref().map(Uri::as_str)).times(state.parent.clock.into());
        packing.json(Some(&state.types.value)).times(state.types.clock.into());
        packing.times(state.purged.into());
        packing.done()
    }

    /// Packs what is known of an item.
    pub(super) fn item(record: &ItemRecord, packing: &mut Packing) -> Self {
        let beginning = record.begins_in.as_ref();
        packing.flag(record.existence.value).times(record.existence.clock.into());
        packing.text(record.content.value.as_ref().map(KeptContent::json)).times(record.content.clock.into());
        packing.text(record.state.value.as_ref().map(State::as_str)).times(record.state.clock.into());
        packing.text(beginning.map(|beginning| beginning.state.as_str()));
        packing.time(beginning.map(|beginning| beginning.at.millis()));
        packing.time(beginning.and_then(|beginning| beginning.confirmed).map(Timestamp::millis));
        packing.flag(record.unheard);
        packing.done()
    }

    /// The columns of an object that was packed.
    pub(super) fn object_columns(&self) -> Result<ObjectColumns<'_>, StoreError> {
        let Some(packed) = &self.0 else { return Ok(ObjectColumns::UNKNOWN) };
        let mut packed = Unpacking(packed);
        Ok(ObjectColumns {
            parent: packed.text()?,
            parent_times: packed.times()?,
            types: packed.text()?.unwrap_or(NO_TYPES),
            types_times: packed.times()?,
            purged: packed.times()?,
        })
    }

    /// The columns of an item that was packed.
    pub(super) fn item_columns(&self) -> Result<ItemColumns<'_>, StoreError> {
        let mut packed = Unpacking(self.0.as_deref().unwrap_or_default());
        Ok(ItemColumns {
            existence: packed.flag()?,
            existence_times: packed.times()?,
            content: packed.text()?,
            content_times: packed.times()?,
            state: packed.text()?,
            state_times: packed.times()?,
            beginning: BeginningColumns { state: packed.text()?, at: packed.time()?, confirmed: packed.time()? },
            unheard: packed.flag()?,
        })
    }
}

impl ObjectColumns<'_> {
    /// Of an object of which nothing is known.
    const UNKNOWN: Self = Self {
        parent: None,
        parent_times: Times::NEVER,
        types: NO_TYPES,
        types_times: Times::NEVER,
        purged: Times::NEVER,
    };

    /// The object, without items.
    pub(super) fn state(&self) -> Result<ObjectState, StoreError> {
        let parent = self.parent.map(uri).transpose()?;
        let types = if self.types == NO_TYPES { Vec::new() } else { json(self.types)? };
        Ok(ObjectState {
            parent: Register { value: parent, clock: self.parent_times.clock()? },
            types: Register { value: types, clock: self.types_times.clock()? },
            purged: self.purged.clock()?,
            items: std::collections::BTreeMap::new(),
        })
    }
}

impl ItemColumns<'_> {
    /// The item.
    pub(super) fn record(&self) -> Result<Box<ItemRecord>, StoreError> {
        Ok(Box::new(ItemRecord {
            existence: Register { value: self.existence, clock: self.existence_times.clock()? },
            content: Register { value: self.content.map(KeptContent::from_json), clock: self.content_times.clock()? },
            state: Register { value: self.state.map(state).transpose()?, clock: self.state_times.clock()? },
            begins_in: self.beginning.beginning()?,
            unheard: self.unheard,
        }))
    }
}

impl BeginningColumns<'_> {
    /// What the item begins in, if anything.
    pub(super) fn beginning(&self) -> Result<Option<Beginning>, StoreError> {
        let (Some(told), Some(at)) = (self.state, self.at) else { return Ok(None) };
        Ok(Some(Beginning { state: state(told)?, at: time(at)?, confirmed: self.confirmed.map(time).transpose()? }))
    }
}

impl From<Clock> for Times {
    fn from(clock: Clock) -> Self {
        Self { at: clock.at.map(Timestamp::millis), confirmed: clock.confirmed.map(Timestamp::millis) }
    }
}

impl Times {
    const NEVER: Self = Self { at: None, confirmed: None };

    fn clock(self) -> Result<Clock, StoreError> {
        Ok(Clock { at: self.at.map(time).transpose()?, confirmed: self.confirmed.map(time).transpose()? })
    }
}

/// Writes values one after the other, each after an octet that says whether it is there.
impl Packing {
    fn flag(&mut self, flag: bool) -> &mut Self {
        self.0.push(u8::from(flag));
        self
    }

    fn time(&mut self, time: Option<i64>) -> &mut Self {
        self.flag(time.is_some());
        if let Some(time) = time {
            self.0.extend_from_slice(&time.to_le_bytes());
        }
        self
    }

    fn times(&mut self, times: Times) -> &mut Self {
        self.time(times.at).time(times.confirmed)
    }

    fn text(&mut self, text: Option<&str>) -> &mut Self {
        self.flag(text.is_some());
        if let Some(text) = text {
            self.0.extend_from_slice(&(text.len() as u64).to_le_bytes());
            self.0.extend_from_slice(text.as_bytes());
        }
        self
    }

    /// A value as JSON, in the place of a text.
    fn json(&mut self, value: Option<&impl Serialize>) -> &mut Self {
        self.flag(value.is_some());
        if let Some(value) = value {
            let at = self.0.len();
            self.0.extend_from_slice(&[0; 8]);
            write_json(&mut self.0, value);
            let length = (self.0.len() - at - 8) as u64;
            self.0[at..at + 8].copy_from_slice(&length.to_le_bytes());
        }
        self
    }

    fn done(&mut self) -> Packed {
        let packed = Packed(Some(self.0.as_slice().into()));
        self.0.clear();
        packed
    }
}

/// Reads them again.
struct Unpacking<'a>(&'a [u8]);

impl<'a> Unpacking<'a> {
    fn flag(&mut self) -> Result<bool, StoreError> {
        let (flag, rest) = self.0.split_first().ok_or_else(cut_short)?;
        self.0 = rest;
        Ok(*flag != 0)
    }

    fn number(&mut self) -> Result<[u8; 8], StoreError> {
        let (number, rest) = self.0.split_first_chunk().ok_or_else(cut_short)?;
        self.0 = rest;
        Ok(*number)
    }

    fn time(&mut self) -> Result<Option<i64>, StoreError> {
        if self.flag()? { Ok(Some(i64::from_le_bytes(self.number()?))) } else { Ok(None) }
    }

    fn times(&mut self) -> Result<Times, StoreError> {
        Ok(Times { at: self.time()?, confirmed: self.time()? })
    }

    fn text(&mut self) -> Result<Option<&'a str>, StoreError> {
        if !self.flag()? {
            return Ok(None);
        }
        let length = usize::try_from(u64::from_le_bytes(self.number()?)).map_err(damaged)?;
        let (text, rest) = self.0.split_at_checked(length).ok_or_else(cut_short)?;
        self.0 = rest;
        std::str::from_utf8(text).map(Some).map_err(damaged)
    }
}

fn cut_short() -> StoreError {
    damaged("a record in memory is cut short")
}

/// What was not written by us.
pub(super) fn damaged(what: impl Display) -> StoreError {
    StoreError::Damaged(what.to_string())
}

pub(super) fn time(millis: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_millis(millis).ok_or_else(|| damaged(format!("{millis} is not a time")))
}

pub(super) fn uri(text: &str) -> Result<Uri, StoreError> {
    Uri::parse(text).map_err(damaged)
}

fn state(text: &str) -> Result<State, StoreError> {
    State::parse(text).map_err(damaged)
}

pub(super) fn json<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(damaged)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{KeptContent, Packed, Packing, StoreError};
    use crate::{
        journal::registry::{Beginning, Clock, ItemRecord, ObjectState, Register},
        model::{ContentLocation, State, Timestamp, Uri},
    };

    fn clock() -> impl Strategy<Value = Clock> {
        let time = || {
            proptest::option::of((-1_000_000..4_000_000_000_000_i64).prop_filter_map("a time", Timestamp::from_millis))
        };
        (time(), time()).prop_map(|(at, confirmed)| Clock { at, confirmed })
    }

    fn uri() -> impl Strategy<Value = Uri> {
        "http://h/[a-zé:/?=]{0,40}".prop_map(|text| Uri::parse(&text).unwrap())
    }

    fn state() -> impl Strategy<Value = State> {
        "[A-Z][A-Z_]{0,20}".prop_filter_map("a state", |text| State::parse(&text).ok())
    }

    fn record() -> impl Strategy<Value = ItemRecord> {
        let beginning = (state(), 0..4_000_000_000_000_i64, clock()).prop_map(|(state, at, clock)| Beginning {
            state,
            at: Timestamp::from_millis(at).unwrap(),
            confirmed: clock.confirmed,
        });
        let content = (uri(), proptest::option::of(any::<u64>()), proptest::option::of(uri())).prop_map(
            |(url, size, generated_by)| {
                KeptContent::from(&ContentLocation { size, generated_by, ..ContentLocation::at(url) })
            },
        );
        let told = (any::<bool>(), proptest::option::of(content), proptest::option::of(state()));
        let rest = (proptest::option::of(beginning), any::<bool>());
        (told, clock(), clock(), clock(), rest).prop_map(|((existence, content, state), one, two, three, rest)| {
            ItemRecord {
                existence: Register { value: existence, clock: one },
                content: Register { value: content, clock: two },
                state: Register { value: state, clock: three },
                begins_in: rest.0,
                unheard: rest.1,
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            record in record(),
            parent in proptest::option::of(uri()),
            types in proptest::collection::vec(uri(), 0..3),
            clocks in (clock(), clock(), clock()),
        ) {
            let packed = Packed::item(&record, &mut Packing::default());
            prop_assert_eq!(*packed.item_columns().unwrap().record().unwrap(), record);
            let object = ObjectState {
                parent: Register { value: parent, clock: clocks.0 },
                types: Register { value: types, clock: clocks.1 },
                purged: clocks.2,
                ..ObjectState::default()
            };
            prop_assert_eq!(Packed::object(&object, &mut Packing::default()).object_columns().unwrap().state().unwrap(), object);
        }

        #[test]
        fn what_is_cut_short_is_refused(record in record(), at in any::<prop::sample::Index>()) {
            let packed = Packed::item(&record, &mut Packing::default());
            let length = packed.len();
            let cut = Packed(Some(packed.0.unwrap()[..at.index(length)].into()));
            prop_assert!(matches!(cut.item_columns(), Err(StoreError::Damaged(_))));
        }
    }
}
