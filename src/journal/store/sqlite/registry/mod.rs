//! The registry's tables: `objects` has a row for each object, `items` one for each item.
//!
//! Every batch writes the rows that it touched in its own transaction, so that a reader finds in the registry what the
//! newest change did to it.

mod columns;
mod counts;
mod page;
mod read;
mod write;

pub(super) use columns::initial_state;
pub(super) use counts::ItemCounts;
pub(super) use page::{object, page};
pub(super) use read::Reader;
pub(super) use write::Writer;
