//! Pull views: changes, objects, snapshots, long polls and streams.

mod cached_pages;
mod changes_and_objects;
mod cursors;
mod digests;
mod durable_streams;
mod filtered_changes;
mod former_positions;
mod long_poll;
mod machine_door;
mod memory;
mod newest_first;
mod pages;
mod snapshot;
mod stream;
mod stream_browser;
mod stream_limits;
mod stream_python_clients;
mod stream_restarts;
