//! Harvests of repositories.

mod announcements;
mod buckets;
mod downloads;
mod example;
mod feed_documents;
mod feed_hub;
mod feeds;
mod fileset_at_platforms;
mod fileset_bundles;
mod fileset_ingest;
mod fileset_items;
mod fileset_jobs;
mod fileset_other_places;
mod fileset_platforms;
mod fileset_statuses;
mod fileset_wayback;
mod folder_archives;
mod folders;
mod gateways;
mod independent_repository;
mod made_over_http;
mod many_feeds;
mod misbehaviour;
mod missing_records;
mod oai_pmh;
mod program;
