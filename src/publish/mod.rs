//! The published copy: documents of the gateway's faces as files in a folder or a bucket, from which a web server or a CDN
//! serves them to harvesters.
//!
//! A face has closed documents, which never change again, fixed ones, which leave the copy one day, and open ones, which change
//! with the journal. A run writes new files before it replaces others, so no reader finds a link to a file that is not there.
//! The index `publication.json` never promises more than there is; the next run continues after the documents that it lists.
//!
//! * `edition` is what the documents of a copy depend on, and its digest;
//! * `face` says what a face must offer, and `planned_face` calls it;
//! * `index` is the index of the copy;
//! * `run` plans one run, and `edition_run` writes and removes its files; `runner` repeats it on the node that has the duty;
//! * `target` is the folder or the bucket; `folder` writes the files of a folder.

mod edition;
mod edition_run;
mod face;
mod folder;
mod index;
mod planned_face;
mod run;
mod runner;
mod target;
#[cfg(test)]
pub(crate) mod test_copy;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use self::face::FACES;
pub use self::{
    edition::Edition,
    face::{DocumentName, Face, LISTED},
    runner::{Publication, PublicationRunner, PublicationState, Run},
    target::TargetError,
};
use crate::{files::FileStoreLocation, model::ReaderView};

use std::{sync::Arc, time::Duration};

/// Settings of the published copy.
#[derive(Clone, Debug)]
pub struct PublicationSettings {
    /// Folder or bucket of the copy.
    pub location: FileStoreLocation,
    /// URL under which the copy is served, without a trailing slash.
    pub url: String,
    /// Part of the journal that the readers of the copy may see; `None` for everything.
    pub view: Option<Arc<ReaderView>>,
    /// Time between two runs.
    pub interval: Duration,
}
