//! Infrastructure that all HTTP surfaces share: problem documents, checks that run before a handler, and cacheable
//! documents.
//!
//! This module knows HTTP, and of the model only what a reader may see ([`crate::model::ReaderView`]). The hooks, the views and the administration
//! are built on it.

mod accept;
mod access;
mod batched_body;
mod charset;
mod client;
mod connection_state;
mod connections;
mod content;
mod decompress;
mod disk_reservation;
mod extract;
mod fallback;
mod hyper_errors;
mod limits;
mod middleware;
mod page;
mod problem;
mod problem_responses;
mod query;
mod representation;
mod routes;
mod secret;
mod security_headers;
pub mod server;
mod site;
mod spool;
mod telemetry;
mod tls;
mod tls_errors;

pub use accept::{accepts_gzip, best_media_type, negotiated_media_type};
pub use access::{Access, PublicAccess, ReadPermit, Rule, Scope, SignatureHeader, SignatureKey, Surface, Token};
pub use client::{Client, MayRead, SignedBody};
pub use connection_state::StreamingResponse;
pub use content::{Content, SpooledFile};
pub use decompress::{BodyBudget, Decompression, decompress};
pub use extract::{Body, BodyLimit, Path};
pub use fallback::{method_not_allowed, not_found, panic_response};
pub use limits::{LIMITS_HIT, Limit, limit_hit};
pub use middleware::{RequestPolicy, WaitingRoute, apply_request_policy, wait_parameter};
pub use page::{Page, page_policy};
pub use problem::{Problem, ProblemCode};
pub use problem_responses::problem_responses;
pub(crate) use problem_responses::problems;
pub use query::{InvalidQuery, Query};
pub use representation::{CachePolicy, DocumentWriter, Representation, header_date};
pub use routes::{Route, Routes};
pub use secret::{Secret, SecretDigest};
pub use site::{HostName, OwnSite};
pub use spool::{MAX_IN_MEMORY, RenderPermit, Spool, SpoolWriter, spool_problem};
pub use telemetry::{REQUEST_SECONDS, REQUESTS};
pub use tls::{EXPIRES_SOON, Tls, TlsError};
pub use tls_errors::plain_tls_error;
