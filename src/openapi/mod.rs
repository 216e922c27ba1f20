//! `GET /openapi.json`: the HTTP interface described for programs, by OpenAPI 3.1; `GET /docs`: the
//! same for people.
//!
//! What each operation takes and answers stands beside its handler. The router puts the operations together, and here
//! is what all of them have in common.

use std::sync::LazyLock;

use axum::{
    extract::State,
    http::{HeaderMap, Method},
    response::Response,
};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        PathItem, RefOr, Schema, ServerBuilder,
        path::Parameter,
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use crate::{
    model::{ItemChangeKind, MediaRange, SubscriptionName, UriPrefix},
    view::{changes, snapshot},
    web::{CachePolicy, Page, Problem, Representation, problems},
};

/// What all operations have in common.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tidings",
        description = "A content change notification gateway: repositories post what happened to a hook, each in its \
                       own dialect, and readers get the changes, in one order, as an Atom feed and as JSON. Every error \
                       is a problem document (RFC 9457). Every answer has an `X-Request-Id`: the client's own, or one \
                       by which the log knows the request.",
    ),
    tags(
        (name = "in", description = "How events reach the gateway."),
        (name = "out", description = "What readers ask for."),
        (name = "administration", description = "What the administrator looks at and acts on."),
    ),
    // Those that no answer names, but parameters do.
    components(schemas(Problem, ItemChangeKind, MediaRange, SubscriptionName, UriPrefix)),
    // The first is for a gateway without access control.
    security((), ("token" = []), ("password" = []), ("signature" = [])),
    modifiers(&Credentials),
)]
struct Interface;

/// How a request says who sends it.
struct Credentials;

impl Modify for Credentials {
    fn modify(&self, interface: &mut utoipa::openapi::OpenApi) {
        let by_http = |scheme, about: &str| {
            SecurityScheme::Http(HttpBuilder::new().scheme(scheme).description(Some(about)).build())
        };
        let header = "X-Hub-Signature-256";
        let about = "For hooks: sha256= and the HMAC-SHA256 of the body by the key of the source, in hexadecimal.";
        let components = interface.components.get_or_insert_default();
        components.add_security_scheme("token", by_http(HttpAuthScheme::Bearer, "A token that has the scope."));
        components.add_security_scheme("password", by_http(HttpAuthScheme::Basic, "The same as a password."));
        let signature = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::with_description(header, about)));
        components.add_security_scheme("signature", signature);
    }
}

/// What is read in pages as large as the configuration allows.
const PAGED: [&str; 2] = [changes::PATH, snapshot::PATH];

/// The description of a gateway's HTTP interface.
#[derive(Clone)]
pub struct Documentation(Representation);

impl Documentation {
    /// The description of the gateway that has these routes, is reached under `public_url`, and whose pages
    /// have at most `largest_page` changes or objects.
    #[must_use]
    pub fn new(routes: utoipa::openapi::OpenApi, public_url: &str, largest_page: usize) -> Self {
        let mut interface = Interface::openapi().merge_from(routes);
        interface.servers = Some(vec![ServerBuilder::new().url(public_url).build()]);
        for path in interface.paths.paths.values_mut() {
            for operation in [&mut path.get, &mut path.put, &mut path.post, &mut path.delete].into_iter().flatten() {
                operation.summary = operation.summary.as_deref().map(in_one_line);
                operation.description = operation.description.as_deref().and_then(without_errors);
            }
        }
        for (name, path) in &mut interface.paths.paths {
            if PAGED.contains(&name.as_str()) {
                bound(path, "limit", largest_page);
            }
        }
        let document = interface.to_json().unwrap_or_default();
        Self(Representation::new("application/json", document, CachePolicy::Revalidate))
    }
}

/// Comments are broken where a line of code ends.
fn in_one_line(comment: &str) -> String {
    comment.lines().collect::<Vec<_>>().join(" ")
}

/// What a handler's comment says beside its errors, which stand with the answers.
fn without_errors(comment: &str) -> Option<String> {
    let told = comment.split("# Errors").next().unwrap_or_default().trim();
    (!told.is_empty()).then(|| in_one_line(told))
}

/// Says how large a parameter of a GET may be where the configuration says it.
fn bound(path: &mut PathItem, name: &str, largest: usize) {
    let parameters = path.get.iter_mut().flat_map(|get| get.parameters.iter_mut().flatten());
    for parameter in parameters {
        let RefOr::T(Parameter { name: found, schema: Some(RefOr::T(Schema::Object(schema))), .. }) = parameter else {
            continue;
        };
        if found == name {
            schema.maximum = Some(largest.into());
        }
    }
}

problems!(Problems:);

/// This document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "getInterface",
    tag = "administration",
    responses(
        (status = 200, description = "The document.", body = serde_json::Map<String, serde_json::Value>),
        (status = 304, description = "The client has it."),
        Problems,
    ),
)]
pub async fn document(
    State(Documentation(document)): State<Documentation>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    document.respond(&method, &headers)
}

/// This document for people. The page needs no network but the gateway.
#[utoipa::path(
    get,
    path = "/docs",
    operation_id = "getDocumentation",
    tag = "administration",
    responses(
        (status = 200, description = "The page.", body = String, content_type = "text/html"),
        (status = 304, description = "The client has it."),
        Problems,
    ),
)]
pub async fn page(method: Method, headers: HeaderMap) -> Response {
    PAGE.respond(&method, &headers)
}

/// The page: it fetches `openapi.json` and shows it.
static PAGE: LazyLock<Page> = LazyLock::new(|| Page::new(include_str!("docs.html")));
