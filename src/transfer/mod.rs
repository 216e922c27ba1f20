//! Transfers of files and documents from other servers, within a budget of memory and with politeness to each server.
//!
//! * `hosts` limits the requests to each host;
//! * `budget` bounds the memory of everything that is read from other servers, and `body` receives bodies within it;
//! * `transfers` stores files: `head` reads the headers of the responses, `decoder` their encoding, `rate` finds transfers
//!   that are too slow, and `error` has the failures;
//! * `archive` reads zip and tar archives.

pub(crate) mod archive;
pub(crate) mod body;
pub(crate) mod budget;
mod decoder;
mod error;
mod head;
mod hosts;
mod rate;
mod transfers;

pub use self::{
    budget::{BudgetShare, Cancelled, HarvestBudget, WorkFailed},
    hosts::{HostPermit, Hosts},
};
pub(crate) use self::{
    error::TransferError,
    head::{PartPlace, Redirection, ResponseHead, without_signature},
    transfers::{Receiver, TransferredFile, Transfers},
};
