//! The Linked Data Event Stream at `/ldes`: the reference client reads all members in order, and what is new alone when it
//! comes again.

mod client;
mod documents;
mod order;
mod public;
mod retention;
mod transactions;
mod versions;
