//! What every HTTP surface has in common: errors as problem documents, requests that are checked
//! before a handler sees them, and documents that caches can keep.
//!
//! It knows HTTP and nothing of what is served: it imports nothing of this crate. The hooks, the
//! views and the administration are built on it.

mod accept;
mod access;
mod answers;
mod around;
mod batched_body;
mod charset;
mod client;
mod content;
mod crowd;
mod extract;
mod fallback;
mod inflate;
mod limits;
mod observe;
mod page;
mod problem;
mod query;
mod refusal;
mod representation;
mod routes;
mod secret;
mod security_headers;
pub mod server;
mod site;
mod spool;
mod tls;

pub use accept::{accepts_gzip, best_media_type};
pub use access::{Access, Rule, Scope, Token};
pub use answers::problem_answers;
pub(crate) use answers::problems;
pub use around::{Around, around};
pub use client::{Client, MayRead, SignedBody};
pub use content::{Content, SpooledFile};
pub use extract::{Body, BodyLimit, Path};
pub use fallback::{method_not_allowed, not_found, panicked};
pub use inflate::{HeldBytes, Inflated, inflate};
pub use limits::{LIMITS_HIT, Limit, limit_hit};
pub use observe::{REQUEST_SECONDS, REQUESTS};
pub use page::{Page, page_policy};
pub use problem::{Problem, ProblemCode};
pub use query::{InvalidQuery, Query};
pub use representation::{CachePolicy, DocumentWriter, Representation, header_date};
pub use routes::{Route, Routes};
pub use secret::{Secret, SecretDigest};
pub use server::StreamingResponse;
pub use site::{HostName, OwnSite};
pub use spool::{IN_MEMORY, Spool, SpoolWriter, Turn, spool_problem};
pub use tls::{Tls, TlsError};
