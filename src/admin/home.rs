//! `GET /`: the page for people who open the gateway's URL in a browser, and the status as JSON for programs.

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, Method, header::VARY},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    health::{Health, Readiness},
    page::HOME,
    status::ProblemView,
};
use crate::{
    model::Seq,
    web::{MayRead, Problem, negotiated_media_type, problems},
};

/// State of `/`.
#[derive(Clone)]
pub struct Home {
    /// Readiness checks.
    pub readiness: Readiness,
    /// Whether browsers get the page. Otherwise they get the response for programs.
    pub has_page: bool,
}

const JSON: &str = "application/json";
const HTML: &str = "text/html";

/// Description of the program.
const ABOUT: &str = "A content change notification gateway: repositories report changes of their content, and readers and \
                     subscribers receive the changes in one order.";

/// Resources of the gateway, relative to the URL of `/`.
const LINKS: [(&str, &str); 5] = [
    ("feed", "the changes as an Atom feed"),
    ("live", "the changes as they are recorded"),
    ("docs", "the description of the HTTP interface"),
    ("metrics", "metrics for Prometheus"),
    ("service", "the AtomPub service document"),
];

/// Status of the gateway and links.
#[derive(Serialize, ToSchema)]
#[schema(as = Home)]
struct HomeView {
    /// Name of the program.
    name: &'static str,
    /// Description of the program.
    about: &'static str,
    /// Version of the program, for clients that may read.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    /// `ready`, `degraded` (there is a problem of the level `error`) or `unavailable`.
    status: &'static str,
    /// Reason why the status is not `ready`: all problems of the level `error`, for clients that may read.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Number of the newest change, for clients that may read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Seq, required = false)]
    head: Option<Seq>,
    /// Links to other resources, relative to this URL.
    links: Vec<Link>,
}

/// Link to a resource.
#[derive(Serialize, ToSchema)]
struct Link {
    /// URL of the resource.
    href: &'static str,
    /// Description of the resource.
    title: &'static str,
}

impl HomeView {
    fn new(health: Result<Health, Problem>, may_read: bool) -> Self {
        let (status, head, reason) = match health {
            Ok(health) => (health.status, health.head, degradation(&health)),
            Err(problem) => ("unavailable", None, Some(problem.detail().to_owned())),
        };
        let links = LINKS.into_iter().map(|(href, title)| Link { href, title }).collect();
        let view = Self { name: "Tidings", about: ABOUT, version: None, status, reason: None, head: None, links };
        if may_read { Self { version: Some(env!("CARGO_PKG_VERSION")), reason, head, ..view } } else { view }
    }
}

/// Returns the problems because of which the gateway is degraded; `None` if there are none.
fn degradation(health: &Health) -> Option<String> {
    let errors: Vec<_> = health.problems.iter().filter(|problem| problem.is_error()).map(ProblemView::text).collect();
    (!errors.is_empty()).then(|| errors.join("; "))
}

problems!(Problems: NotAcceptable);

/// The status of the gateway and links, as JSON. With access control, the response contains details only for tokens with the
/// scope `read`. A browser gets the page for people, which contains no data, unless `page.enabled` is `false`.
///
/// # Errors
/// `not-acceptable`.
#[utoipa::path(
    get,
    path = "/",
    operation_id = "getHome",
    tag = "administration",
    responses(
        (status = 200, description = "Status of the gateway and links.", content(
            (HomeView = "application/json"), (String = "text/html"),
        )),
        (status = 304, description = "Not modified."),
        Problems,
    ),
)]
pub async fn page(
    State(home): State<Home>,
    MayRead(may_read): MayRead,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let offered = if home.has_page { &[JSON, HTML][..] } else { &[JSON] };
    if negotiated_media_type(&headers, offered)? == HTML {
        return Ok(HOME.respond(&method, &headers));
    }
    let view = HomeView::new(home.readiness.check().await, may_read);
    Ok(([(VARY, "Accept")], Json(view)).into_response())
}

#[cfg(test)]
mod tests {
    use super::{Health, HomeView, Problem};
    use crate::{
        admin::status::problem::{ProblemKind, StatusProblem, Thing},
        model::Timestamp,
        web::ProblemCode,
    };

    #[test]
    fn reason_has_all_errors_and_is_only_for_readers() {
        let unavailable = |may_read| HomeView::new(Err(Problem::new(ProblemCode::Unavailable, "full")), may_read);
        let (reader, anybody) = (unavailable(true), unavailable(false));
        assert_eq!((reader.status, reader.reason.as_deref()), ("unavailable", Some("full")));
        assert_eq!((anybody.status, anybody.reason), ("unavailable", None));
        let problem = |kind, thing| StatusProblem { kind, thing, facts: "refused".to_owned(), since: Timestamp::EPOCH };
        let problems = vec![
            problem(ProblemKind::SourceNotRead, Thing::Source("secret".to_owned())).into(),
            problem(ProblemKind::SubscriptionFails, Thing::Subscription("index".to_owned())).into(),
            problem(ProblemKind::Quarantine, Thing::Source("secret".to_owned())).into(),
        ];
        let health =
            Health { status: "degraded", head: None, sources: Vec::new(), subscriptions: Vec::new(), problems };
        let degraded = HomeView::new(Ok(health), true);
        assert_eq!(
            degraded.reason.unwrap(),
            "the source secret is not read: refused; the subscription index does not deliver: refused"
        );
    }
}
