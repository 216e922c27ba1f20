//! `GET /`: status page for people who open the gateway's URL in a browser, and the same as JSON for programs.

use std::sync::LazyLock;

use axum::{
    Json,
    extract::State,
    http::{
        HeaderMap, HeaderValue,
        header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY},
    },
    response::{IntoResponse, Response},
};
use quick_xml::escape::escape;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    health::{Health, Readiness},
    status::ProblemView,
};
use crate::{
    model::Seq,
    web::{MayRead, Problem, negotiated_media_type, page_policy, problems},
};

const JSON: &str = "application/json";
const HTML: &str = "text/html";

/// Description of the program.
const ABOUT: &str = "A content change notification gateway: repositories report changes of their content, and readers and \
                     subscribers receive the changes in one order.";

/// Resources that the page links to, relative to its own URL.
const LINKS: [(&str, &str); 5] = [
    ("feed", "the changes as an Atom feed"),
    ("live", "the changes as they are recorded"),
    ("docs", "the description of the HTTP interface"),
    ("metrics", "metrics for Prometheus"),
    ("service", "the AtomPub service document"),
];

const STYLE: &str = "body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 2rem auto; padding: 0 1rem } \
                     :root { color-scheme: light dark }";

/// Content Security Policy of the page. It is computed from the style only, so nothing in the page can widen it.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| page_policy(&format!("<style>{STYLE}</style>")));

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

    fn html(&self) -> String {
        let Self { name, about, version, status, reason, head, links } = self;
        let version = version.map(|version| format!(" {version}")).unwrap_or_default();
        let reason = reason.as_deref().map(|reason| format!(": {}", escape(reason))).unwrap_or_default();
        let head = head.map(|head| format!("\n<p>Newest change: {head}</p>")).unwrap_or_default();
        let link = |Link { href, title }: &Link| format!("<li><a href=\"{href}\">{href}</a>: {title}</li>\n");
        let links: String = links.iter().map(link).collect();
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{name}</title>\n<style>{STYLE}</style>\n\
             <h1>{name}{version}</h1>\n<p>{about}</p>\n<p>Status: <strong>{status}</strong>{reason}</p>{head}\n\
             <ul>\n{links}</ul>\n</html>\n"
        )
    }
}

/// Returns the problems because of which the gateway is degraded; `None` if there are none.
fn degradation(health: &Health) -> Option<String> {
    let errors: Vec<_> = health.problems.iter().filter(|problem| problem.is_error()).map(ProblemView::text).collect();
    (!errors.is_empty()).then(|| errors.join("; "))
}

problems!(Problems: NotAcceptable);

/// The status of the gateway and links, as JSON or as an HTML page for browsers. With access control, the response
/// contains details only for tokens with the scope `read`.
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
        Problems,
    ),
)]
pub async fn page(
    State(readiness): State<Readiness>,
    MayRead(may_read): MayRead,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let offered = [JSON, HTML];
    let chosen = negotiated_media_type(&headers, &offered)?;
    let home = HomeView::new(readiness.check().await, may_read);
    if chosen == JSON {
        return Ok(([(VARY, "Accept")], Json(home)).into_response());
    }
    let html = home.html();
    let headers = [(CONTENT_SECURITY_POLICY, POLICY.clone())];
    Ok((headers, [(VARY, "Accept"), (CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response())
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
    fn reason_is_escaped_and_only_for_readers() {
        let unavailable = || Err(Problem::new(ProblemCode::Unavailable, "<b>full</b>"));
        let page = HomeView::new(unavailable(), true).html();
        assert!(page.contains("<strong>unavailable</strong>: &lt;b&gt;full&lt;/b&gt;"), "{page}");
        let page = HomeView::new(unavailable(), false).html();
        assert!(page.contains("<strong>unavailable</strong></p>") && !page.contains("full"), "{page}");
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
