//! The registry's tables: `objects` has one row per object, `items` one row per item.
//!
//! Every batch writes the rows that it changes in its own transaction, so the registry always includes the newest
//! change. One statement reads or writes the rows of a whole batch.

mod accepted;
mod columns;
mod page;
mod read;
mod write;

pub(super) use accepted::{newest_acceptance, object_times, page_by_acceptance, token_key};
pub(super) use page::{object, objects, page};
pub(super) use read::{ALL_ITEMS, OBJECTS, SELECTED_ITEMS, prefetch};
pub(super) use write::{PUT_ITEMS, PUT_OBJECTS, write};
