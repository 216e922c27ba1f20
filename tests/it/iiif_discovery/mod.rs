//! The IIIF Change Discovery API at `/iiif`: a reader that knows only the API gets the objects of the registry, and pages
//! never change.

mod damaged;
mod pages;
mod public;
mod resources;
mod restore;
mod walk;
