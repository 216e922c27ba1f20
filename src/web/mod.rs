//! What every HTTP surface has in common: errors as problem documents, requests that are checked
//! before a handler sees them, and documents that caches can keep.
//!
//! It knows HTTP and nothing of what is served: it imports nothing of this crate. The hooks, the
//! views and the administration are built on it.

mod accept;
mod access;
mod answers;
mod extract;
mod fallback;
mod observe;
mod problem;
mod query;
mod representation;
mod routes;
mod secret;
mod server;
mod tls;

pub use accept::{accepts_gzip, best_media_type};
pub use access::{Access, Rule, Scope, Token};
pub use answers::problem_answers;
pub(crate) use answers::problems;
pub use extract::{Body, BodyLimit, Path};
pub use fallback::{every_error_is_a_problem, method_not_allowed, not_found, panicked, time_limit};
pub use observe::{LIMITS_HIT, REQUEST_SECONDS, REQUESTS, limit_hit, observe};
pub use problem::{Problem, ProblemCode};
pub use query::{InvalidQuery, Query};
pub use representation::{Cache, Representation};
pub use routes::{Route, Routes};
pub use secret::{Secret, SecretDigest};
pub use server::{Connections, serve};
pub use tls::{Tls, TlsError};
