//! Audits: compare the repository of a source with the registry, and report and correct the differences.
//!
//! A difference is what the write path would record if the present state of the repository were a message. So an audit
//! makes drafts of the repository's objects, settles them without writing ([`Source::preview`]), and reports the items of
//! the change. A correction appends the same draft.
//!
//! * `report` is what an audit has found, and its position; `audits` starts and shows audits, and [`AuditRunner`] runs them
//!   on the node that has the duty;
//! * `walk` compares a repository, object by object, `harvested` what a harvest lists, and `datasets` what platforms list;
//!   `compare` makes the drafts, and `progress` writes the report;
//! * `listed` is what a list of a harvest has shown, and `seen` are the objects that a walk has listed;
//! * `sample` chooses the objects of a sample, and `bound` is its statistics.
//!
//! An audit first reads the list of the repository: an object or item that the registry lacks is missing, one with other
//! facts is different. Then it reads the registry, and requests each object that the list did not have: one that the
//! repository does not have is extra. Each difference is looked at a second time before it counts, because the repository
//! may have changed meanwhile and its message may be on its way.

mod audits;
mod bound;
mod compare;
mod datasets;
mod deletions;
mod harvested;
mod listed;
pub mod metrics;
mod progress;
mod report;
mod runner;
mod sample;
mod seen;
mod walk;

pub use self::{
    audits::{AuditError, AuditOptions, AuditedSource, Audits},
    report::{AuditReport, AuditResult, AuditState, Difference, DifferenceKind, Phase},
    runner::AuditRunner,
};
#[cfg(doc)]
use crate::intake::Source;
