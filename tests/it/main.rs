//! Integration tests by subject, in one binary so that it links once. Each file is one behaviour of the gateway.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod access;
mod audit;
mod cluster;
mod command;
mod config;
mod crawl;
mod delivery;
mod dialects;
mod documents;
mod due;
mod feed;
mod formats;
mod harvest;
mod iiif_discovery;
mod intake;
mod journal;
mod kafka;
mod ldes;
mod lookups;
mod monitoring;
mod oai_pmh;
mod page;
mod project;
mod publish;
mod resourcesync;
mod segments;
mod shutdown;
mod sources;
mod status;
mod support;
mod telemetry;
mod views;
mod web;
mod worlds;
mod xesam;
