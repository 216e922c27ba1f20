//! Access control. A route has a [`Rule`]. A request is admitted by a token with the required scope or, on a hook, by
//! a signature of its body.
//!
//! If neither a token nor a signature is configured, access is open. The configuration decides whether that is
//! allowed.

mod permit;
mod signature;
mod token;

use std::{collections::BTreeMap, fmt, net::SocketAddr, sync::Arc};

use axum::{
    extract::{ConnectInfo, RawPathParams, Request, State, rejection::RawPathParamsRejection},
    http::{
        HeaderMap, HeaderValue,
        header::{CACHE_CONTROL, VARY},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use chrono::{DateTime, Utc};

use self::{permit::PermitSlot, signature::Signature, token::Credentials};
use super::{
    MayRead, Problem, ProblemCode, Secret, SignedBody,
    client::TokenName,
    connections::{Probation, ProbationHandle},
    extract::drain_body,
};

pub use permit::{PublicAccess, ReadPermit, Surface};
pub use signature::{SignatureHeader, SignatureKey};
pub use token::{Scope, Token};

/// Maximum length of a path in the log, in characters.
const MAX_LOGGED_PATH: usize = 200;

/// Requirement of a route for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// No requirement.
    Open,
    /// A token with the scope `read`.
    Read,
    /// A token with the scope `read`, which may be bound to a part of the journal, or no token if one of these surfaces is
    /// open to everybody. The handler takes the [`ReadPermit`].
    View(&'static [Surface]),
    /// A token with the scope `admin`.
    Admin,
    /// A token that may publish to the source named by the path parameter `{source}`, or a signature by the key of
    /// that source.
    Publish,
}

/// Configured tokens and signature keys.
#[derive(Clone, Debug, Default)]
pub struct Access {
    tokens: Vec<Token>,
    signatures: BTreeMap<String, SignatureKey>,
    public: Option<PublicAccess>,
}

/// Reason why a request is denied.
#[derive(Debug)]
enum Denial {
    NoToken,
    InvalidCredentials,
    UnknownToken,
    ExpiredToken { token: String },
    WrongScope { token: String, needed: Scope },
    OutsideView { token: String },
    WrongSignature,
    EmptySignedBody,
}

impl Access {
    /// Maximum time for which caches may keep responses to the public, in seconds. The configuration can change its view.
    pub const PUBLIC_SECONDS: u32 = 60;

    /// Admits requests with one of these tokens, and posts to a hook that are signed by the key of its source.
    #[must_use]
    pub fn new(tokens: Vec<Token>, signatures: BTreeMap<String, SignatureKey>) -> Self {
        Self { tokens, signatures, public: None }
    }

    /// Admits readers without a token to some surfaces.
    #[must_use]
    pub fn with_public(self, public: PublicAccess) -> Self {
        Self { public: Some(public), ..self }
    }

    /// Returns the access of readers without a token.
    #[must_use]
    pub fn public(&self) -> Option<&PublicAccess> {
        self.public.as_ref()
    }

    /// Returns `true` if no token and no signature is configured, so that access is open to everybody.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.tokens.is_empty() && self.signatures.is_empty()
    }

    /// Returns the names of all tokens.
    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().map(|token| token.name.as_str())
    }

    /// Returns the names of the expired tokens.
    pub fn expired(&self) -> impl Iterator<Item = &str> {
        let now = Utc::now();
        let is_expired = move |token: &&Token| token.expires.is_some_and(|expires| expires <= now);
        self.tokens.iter().filter(is_expired).map(|token| token.name.as_str())
    }

    /// Returns the tokens that expire, each with its end.
    pub fn expiries(&self) -> impl Iterator<Item = (&str, DateTime<Utc>)> {
        self.tokens.iter().filter_map(|token| Some((token.name.as_str(), token.expires?)))
    }

    /// Returns `true` if a token that has not expired grants this scope.
    #[must_use]
    pub fn grants(&self, scope: &Scope) -> bool {
        let now = Utc::now();
        let grants = |token: &Token| token.scopes.iter().any(|granted| granted.covers(scope));
        self.tokens.iter().any(|token| grants(token) && token.expires.is_none_or(|expires| now < expires))
    }

    /// Returns the token in the credentials if it has the required scope.
    ///
    /// All tokens are compared, so that the duration reveals neither a match nor its position.
    fn authenticate(&self, credentials: &Credentials, needed: Scope) -> Result<&Token, Denial> {
        let presented = match credentials {
            Credentials::Token(token) => token.digest(),
            Credentials::None => return Err(Denial::NoToken),
            Credentials::Invalid => return Err(Denial::InvalidCredentials),
        };
        let matching =
            self.tokens.iter().fold(None, |found, token| if token.digest == presented { Some(token) } else { found });
        let token = matching.ok_or(Denial::UnknownToken)?;
        if token.expires.is_some_and(|expires| expires <= Utc::now()) {
            return Err(Denial::ExpiredToken { token: token.name.clone() });
        }
        if token.scopes.iter().any(|granted| granted.covers(&needed)) {
            Ok(token)
        } else {
            Err(Denial::WrongScope { token: token.name.clone(), needed })
        }
    }

    /// Decides about a request with these headers. A signature counts only if no token matches.
    fn decide(&self, headers: &HeaderMap, rule: Rule, source: Option<&str>) -> Decision<'_> {
        let needed = match (rule, source) {
            (Rule::Open | Rule::Read | Rule::View(_), _) => Scope::Read,
            (Rule::Admin, _) => Scope::Admin,
            (Rule::Publish, Some(source)) => Scope::PublishTo(source.to_owned()),
            (Rule::Publish, None) => Scope::Publish,
        };
        let denial = match self.authenticate(&Credentials::of(headers), needed) {
            Ok(Token { name, view: Some(_), .. }) if rule == Rule::Read => {
                return Decision::Denied(Denial::OutsideView { token: name.clone() });
            }
            Ok(token) => return Decision::Admitted(token),
            // Credentials that are wrong are refused, because their sender expects more than the public sees.
            Err(denial @ Denial::NoToken) => match self.public_on(rule) {
                Some(public) => return Decision::Public(public),
                None => denial,
            },
            Err(denial) => denial,
        };
        if rule != Rule::Publish || !SignatureHeader::is_in(headers) {
            return Decision::Denied(denial);
        }
        let key = source.and_then(|source| self.signatures.get(source));
        match key.and_then(|key| Some((&key.secret, key.header.read(headers)?))) {
            Some((key, signature)) => Decision::IfSigned(key, signature),
            // The response is the same for a source without a key and for one with another key.
            None => Decision::Denied(Denial::WrongSignature),
        }
    }

    /// Returns the access of readers without a token, if they may use routes with this rule.
    fn public_on(&self, rule: Rule) -> Option<&PublicAccess> {
        let Rule::View(surfaces) = rule else { return None };
        self.public.as_ref().filter(|public| surfaces.iter().any(|surface| public.surfaces.contains(surface)))
    }
}

enum Decision<'a> {
    /// Admitted by this token.
    Admitted(&'a Token),
    /// Admitted without a token, to what the public sees.
    Public(&'a PublicAccess),
    /// Admitted if the body has this signature by this key.
    IfSigned(&'a Secret, Signature),
    Denied(Denial),
}

/// State of a route's guard.
#[derive(Clone)]
pub(super) struct RouteGuard {
    pub(super) access: Arc<Access>,
    pub(super) rule: Rule,
}

/// Middleware of a route that admits requests according to its rule. Use it with `middleware::from_fn_with_state`.
pub(super) async fn guard(
    State(RouteGuard { access, rule }): State<RouteGuard>,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    mut request: Request,
    next: Next,
) -> Response {
    let source = parameters.as_ref().ok().and_then(|all| all.iter().find(|(name, _)| *name == "source"));
    let decision = access.decide(request.headers(), rule, source.map(|(_, source)| source));
    let mut slot = None;
    let mut request = match decision {
        decision if rule == Rule::Open => {
            let may_read = access.is_open() || matches!(decision, Decision::Admitted(token) if token.view.is_none());
            request.extensions_mut().insert(MayRead(may_read));
            request
        }
        Decision::Admitted(token) => {
            // The name of a publisher would only cost time.
            if rule != Rule::Publish {
                request.extensions_mut().insert(TokenName(token.name.as_str().into()));
            }
            slot = token.view.clone().map(|view| PermitSlot::new(ReadPermit::of_view(Some(view))));
            request
        }
        Decision::Public(public) => {
            slot = Some(PermitSlot::new(ReadPermit::of_public(public)));
            request
        }
        Decision::IfSigned(key, signature) => match read_body(request).await {
            Ok((request, body)) if !signature.matches(&body, key) => {
                return deny(&Denial::WrongSignature, request).await;
            }
            Ok((request, body)) if body.is_empty() => return deny(&Denial::EmptySignedBody, request).await,
            Ok((mut request, _)) => {
                request.extensions_mut().insert(SignedBody);
                request
            }
            Err(problem) => return problem.into_response(),
        },
        Decision::Denied(denial) => return deny(&denial, request).await,
    };
    let varies = access.public_on(rule).is_some();
    let Some(slot) = slot else { return make_private(next.run(request).await, None, varies) };
    request.extensions_mut().insert(slot.clone());
    let response = next.run(request).await;
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() && !slot.is_taken() {
        return Problem::internal("a route for readers of a part of the journal takes no permit").into_response();
    }
    make_private(response, Some(slot.permit()), varies)
}

/// Reads the body of a request without decoding it, within [`super::BodyLimit`]: the signature covers the encoded
/// body, and nothing is decompressed for unauthenticated senders.
async fn read_body(request: Request) -> Result<(Request, Bytes), Problem> {
    with_probation(&request, Probation::begin);
    let (parts, body) = request.into_parts();
    let super::Body(body) = super::Body::as_sent(Request::from_parts(parts.clone(), body)).await?;
    let request = Request::from_parts(parts, body.clone().into());
    with_probation(&request, Probation::end);
    Ok((request, body))
}

/// Changes the probation of a request's connection, if it has one.
pub(super) fn with_probation(request: &Request, change: fn(&Probation)) {
    if let Some(ProbationHandle(probation)) = request.extensions().get() {
        change(probation);
    }
}

/// Changes `public` to `private` in `Cache-Control`. Otherwise a shared cache could give the response to clients
/// without access, because `public` allows that in spite of `Authorization` (RFC 9111 section 3.5). With a permit, the
/// response is valid only as long as the reader has it, so caches revalidate each time; those of readers without a token may
/// keep it for a minute if it says so. `varies` says that the response depends on `Authorization`, because readers without a
/// token get another one.
fn make_private(mut response: Response, permit: Option<&ReadPermit>, varies: bool) -> Response {
    if varies {
        response.headers_mut().append(VARY, HeaderValue::from_static("Authorization"));
    }
    if let Some(field) = response.headers_mut().get_mut(CACHE_CONTROL)
        && let Some(rest) = field.to_str().ok().and_then(|field| field.strip_prefix("public"))
        && let Ok(private) = match permit {
            Some(permit) if permit.is_public() && is_short(rest) => return response,
            Some(permit) if permit.is_public() => Ok(HeaderValue::from_static("no-cache")),
            Some(_) => Ok(HeaderValue::from_static("private, no-cache")),
            None => HeaderValue::try_from(format!("private{rest}")),
        }
    {
        *field = private;
    }
    response
}

/// Returns whether the rest of a field `Cache-Control` allows no longer time than that of the public.
fn is_short(rest: &str) -> bool {
    let seconds = rest.split(',').find_map(|directive| directive.trim().strip_prefix("max-age="));
    seconds.and_then(|seconds| seconds.parse().ok()).is_some_and(|seconds: u32| seconds <= Access::PUBLIC_SECONDS)
}

async fn deny(denial: &Denial, request: Request) -> Response {
    let peer = request.extensions().get().map(|ConnectInfo::<SocketAddr>(peer)| tracing::field::display(*peer));
    let path: String = request.uri().path().chars().take(MAX_LOGGED_PATH).collect();
    tracing::warn!(peer, method = %request.method(), path, reason = %denial, "access denied");
    with_probation(&request, Probation::begin);
    drain_body(request).await;
    denial.problem().into_response()
}

/// Text for the log: it names the token and never contains the token itself.
impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoToken => f.write_str("no token"),
            Self::InvalidCredentials => f.write_str("an Authorization header without a token"),
            Self::UnknownToken => f.write_str("an unknown token"),
            Self::ExpiredToken { token } => write!(f, "the token {token} has expired"),
            Self::WrongScope { token, needed } => write!(f, "the token {token} lacks the scope {needed}"),
            Self::OutsideView { token } => write!(f, "the token {token} has a view, which has no such URL"),
            Self::WrongSignature => f.write_str("a wrong signature"),
            Self::EmptySignedBody => f.write_str("a signature of an empty body"),
        }
    }
}

impl Denial {
    /// Returns the problem for the client. It is the same for every hook, so that clients without a token cannot find
    /// out which sources exist.
    fn problem(&self) -> Problem {
        let detail = match self {
            Self::NoToken => {
                "A token is required: send it as Authorization: Bearer TOKEN, or as the password of Basic with any user \
                 name. A hook whose source has a key also accepts a signature of the body."
            }
            Self::InvalidCredentials => {
                "The Authorization header contains no token: send Bearer TOKEN, or Basic with the token as the password \
                 with any user name. Send only one Authorization header."
            }
            Self::UnknownToken => "The gateway does not know the token. Check that it was copied completely.",
            Self::ExpiredToken { .. } => "The token has expired. Create a new one with: tidings token.",
            Self::WrongSignature => {
                "The signature does not match the body, the header and the key of this source: send the HMAC-SHA256 of \
                 the body as sent, in X-Hub-Signature-256 as sha256= with hexadecimal digits, or in X-Exl-Signature in \
                 Base64."
            }
            Self::EmptySignedBody => {
                "The body is empty. A signature covers only the body and not the headers: send a token with messages that \
                 have their content in headers."
            }
            Self::OutsideView { .. } => {
                let surfaces = Surface::ALL.map(|surface| format!("/{}", surface.name())).join(", ");
                let detail = format!(
                    "The token may see only a part of the journal, and this URL shows more. Use {surfaces} or /hub."
                );
                return Problem::new(ProblemCode::Forbidden, detail);
            }
            Self::WrongScope { needed, .. } => {
                let detail = format!("The scope {needed} is required, which the token does not have.");
                return Problem::new(ProblemCode::Forbidden, detail).with("scope", needed.to_string());
            }
        };
        Problem::new(ProblemCode::Unauthorized, detail)
    }
}
