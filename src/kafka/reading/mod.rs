//! Reader of topics, over its own requests.
//!
//! `rskafka` reads too, but it inflates a whole batch before its caller sees the first record, without a bound: a batch of
//! one megabyte takes gigabytes. `krafka` has a bound, but also keeps each inflated batch whole, and is as large as this
//! program. Therefore this reader requests batches as they are stored, and decodes them in pieces ([`Batches`]). It needs
//! five requests of the protocol. `rskafka` publishes ([`super::Cluster`]).

mod aborted;
mod batches;
mod codec;
mod connection;
mod records;
mod requests;
mod topics;
mod wire;

pub use batches::{Batches, Entry, Piece};
pub use codec::MAX_INFLATED_BYTES;
pub(super) use connection::Access;
pub use records::MAX_KEY_AND_HEADER_BYTES;
pub use topics::{Fetched, OffsetAt, PartitionReader, TopicReader};
