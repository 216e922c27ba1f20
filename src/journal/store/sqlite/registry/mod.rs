//! The registry's tables: `objects` has one row per object, `items` one row per item.
//!
//! Every batch writes the rows that it changes in its own transaction, so the registry always includes the newest
//! change.

mod accepted;
mod columns;
mod counts;
mod page;
mod read;
mod write;

pub(super) use accepted::{newest_acceptance, object_times, page_by_acceptance};
pub(super) use counts::ItemCounts;
pub(super) use page::{object, objects, page};
pub(super) use read::RegistryReader;
pub(super) use write::RegistryWriter;
