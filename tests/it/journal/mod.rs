//! The journal and the registry: durability, order, retention, backup and verification.

mod backup_and_restore;
mod clock;
mod file_permissions;
mod full_disk;
mod full_disk_batches;
mod kill_9;
mod maintenance_kills;
mod migration;
mod open_errors;
mod outside_reader_kills;
mod outside_readers;
mod postgres;
mod postgres_errors;
mod postgres_failover;
mod postgres_full_disk;
mod postgres_nodes;
pub(crate) mod registry_crashes;
pub(crate) mod registry_order;
mod retention;
pub(crate) mod store;
mod store_duplicates;
mod store_harvests;
mod store_ingests;
mod store_migration;
mod verify;
mod verify_postgres;
