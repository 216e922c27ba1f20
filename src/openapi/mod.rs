//! `GET /openapi.json`: machine-readable description of the HTTP interface (OpenAPI 3.1), which the page at `/docs` shows.
//!
//! Parameters and responses of an operation are declared at its handler. The router collects the operations; this
//! module adds the parts that all operations share.

use std::sync::{Arc, LazyLock};

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
    web::{CachePolicy, Problem, Representation, problems},
};

/// Parts of the description that all operations share.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tidings",
        description = "A content change notification gateway: repositories post events to a hook, each in its own \
                       dialect, and readers get the changes in one order, for example as an Atom feed or as JSON. Every \
                       error is a problem document (RFC 9457). Every response has an `X-Request-Id`: the value sent by \
                       the client, or else a new identifier, which the log contains, too.",
    ),
    tags(
        (name = "in", description = "Sending events to the gateway."),
        (name = "out", description = "Reading changes."),
        (name = "administration", description = "Monitoring and administration."),
    ),
    // Schemas that only parameters use.
    components(schemas(Problem, ItemChangeKind, MediaRange, SubscriptionName, UriPrefix)),
    modifiers(&Credentials),
)]
struct Interface;

/// Security schemes.
struct Credentials;

impl Modify for Credentials {
    fn modify(&self, interface: &mut utoipa::openapi::OpenApi) {
        let http_scheme = |scheme, description: &str| {
            SecurityScheme::Http(HttpBuilder::new().scheme(scheme).description(Some(description)).build())
        };
        let header = "X-Hub-Signature-256";
        let about = "For hooks: sha256= and the HMAC-SHA256 of the body with the key of the source, in hexadecimal. A \
                     source with messages of Alma has it in X-Exl-Signature, in Base64.";
        let components = interface.components.get_or_insert_default();
        components
            .add_security_scheme("token", http_scheme(HttpAuthScheme::Bearer, "A token with the required scope."));
        components.add_security_scheme(
            "password",
            http_scheme(HttpAuthScheme::Basic, "The token as the password, with any user name."),
        );
        let signature = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::with_description(header, about)));
        components.add_security_scheme("signature", signature);
    }
}

/// Paths whose page size is limited by the configuration.
const PAGED_PATHS: [&str; 2] = [changes::PATH, snapshot::PATH];

/// Description of a gateway's HTTP interface. It is written when somebody asks for it, because most processes end before, and
/// it would take a third of their start.
#[derive(Clone)]
pub struct Documentation(Arc<LazyLock<Representation, Write>>);

type Write = Box<dyn FnOnce() -> Representation + Send>;

impl Documentation {
    /// Creates the description of a gateway with these routes. `schemas` replace those that a handler cannot know, because
    /// the configuration declares them. `public_url` is the URL of the gateway; its pages have at most `max_page` changes
    /// or objects.
    #[must_use]
    pub fn new(
        routes: fn() -> utoipa::openapi::OpenApi,
        schemas: impl IntoIterator<Item = (&'static str, Schema)> + Send + 'static,
        public_url: &str,
        max_page: usize,
    ) -> Self {
        let public_url = public_url.to_owned();
        Self(Arc::new(LazyLock::new(Box::new(move || write(routes(), schemas, public_url, max_page)))))
    }
}

/// Writes the description.
fn write(
    routes: utoipa::openapi::OpenApi,
    schemas: impl IntoIterator<Item = (&'static str, Schema)>,
    public_url: String,
    max_page: usize,
) -> Representation {
    let mut interface = Interface::openapi().merge_from(routes);
    let components = interface.components.get_or_insert_default();
    components.schemas.extend(schemas.into_iter().map(|(name, schema)| (name.to_owned(), schema.into())));
    interface.servers = Some(vec![ServerBuilder::new().url(public_url).build()]);
    for path in interface.paths.paths.values_mut() {
        for operation in [&mut path.get, &mut path.put, &mut path.post, &mut path.delete].into_iter().flatten() {
            operation.summary = operation.summary.as_deref().map(in_one_line);
            operation.description = operation.description.as_deref().and_then(without_errors);
        }
    }
    for (name, path) in &mut interface.paths.paths {
        if PAGED_PATHS.contains(&name.as_str()) {
            set_maximum(path, "limit", max_page);
        }
    }
    let document = interface.to_json().unwrap_or_default();
    Representation::new("application/json", document, CachePolicy::Revalidate)
}

/// Joins the lines of a doc comment.
fn in_one_line(comment: &str) -> String {
    comment.lines().collect::<Vec<_>>().join(" ")
}

/// Returns a handler's doc comment without its errors, which are listed with the responses.
fn without_errors(comment: &str) -> Option<String> {
    let text = comment.split("# Errors").next().unwrap_or_default().trim();
    (!text.is_empty()).then(|| in_one_line(text))
}

/// Sets the maximum of a parameter of a GET.
fn set_maximum(path: &mut PathItem, name: &str, maximum: usize) {
    let parameters = path.get.iter_mut().flat_map(|get| get.parameters.iter_mut().flatten());
    for parameter in parameters {
        let RefOr::T(Parameter { name: parameter_name, schema: Some(RefOr::T(Schema::Object(schema))), .. }) =
            parameter
        else {
            continue;
        };
        if parameter_name == name {
            schema.maximum = Some(maximum.into());
        }
    }
}

problems!(Problems:);

/// Returns the OpenAPI description of the HTTP interface.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "getInterface",
    tag = "administration",
    responses(
        (status = 200, description = "The document.", body = serde_json::Map<String, serde_json::Value>),
        (status = 304, description = "Not modified."),
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
