//! Incoming wire formats.

mod bus_quarantine;
mod deletions;
mod fedora3_object_life;
mod filesets;
mod fixtures;
mod gateway;
mod hoarder;
mod identity;
mod mapped;
mod sfm;
pub(crate) mod sfm_credentials;
mod sfm_to_indexer;
