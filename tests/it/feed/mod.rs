//! The Atom feed and its archive.

mod archive_pages;
mod archive_reader;
mod caching;
mod filters;
mod for_people;
mod retention_and_restore;
