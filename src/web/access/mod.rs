//! Access control: who may use which route. A route has a [`Rule`]; a request is let through by a
//! token with the scope that the rule asks for, or, on a hook, by a signature of its body.
//!
//! Where neither a token nor a signature is configured everything is open; whether that may be is
//! for the configuration to decide.

mod signature;
mod token;

use std::{collections::BTreeMap, fmt, net::SocketAddr, sync::Arc};

use axum::{
    extract::{ConnectInfo, RawPathParams, Request, State, rejection::RawPathParamsRejection},
    http::{HeaderMap, HeaderValue, header::CACHE_CONTROL},
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use chrono::Utc;

use self::{signature::Signature, token::Credentials};
use super::{
    MayRead, Problem, ProblemCode, Secret, SignedBody,
    client::TokenName,
    crowd::{OnTrial, Trial},
    extract::hear_out,
};

pub use token::{Scope, Token};

/// How much of a path stands in the log, in characters.
const LONGEST_LOGGED_PATH: usize = 200;

/// What a route asks of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Nothing: whoever reaches it may use it.
    Open,
    /// A token that may read.
    Read,
    /// A token that may administer.
    Admin,
    /// A token that may publish to the source which the path calls `{source}`, or a signature by the
    /// key of that source.
    Publish,
}

/// Who is let in.
#[derive(Clone, Debug, Default)]
pub struct Access {
    tokens: Vec<Token>,
    signatures: BTreeMap<String, Secret>,
}

/// Why a request is not let through.
#[derive(Debug)]
enum Refusal {
    Nothing,
    Unreadable,
    Unknown,
    Expired { token: String },
    WrongScope { token: String, needed: Scope },
    WrongSignature,
    NothingSigned,
}

impl Access {
    /// Lets in who has one of these tokens, or signs by the key of the source to whose hook it posts.
    #[must_use]
    pub fn new(tokens: Vec<Token>, signatures: BTreeMap<String, Secret>) -> Self {
        Self { tokens, signatures }
    }

    /// Whether everybody is let in: nothing is configured by which anybody could be known.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.tokens.is_empty() && self.signatures.is_empty()
    }

    /// The names of the tokens.
    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().map(|token| token.name.as_str())
    }

    /// The names of the tokens that have expired.
    pub fn expired(&self) -> impl Iterator<Item = &str> {
        let now = Utc::now();
        let is_over = move |token: &&Token| token.expires.is_some_and(|expires| expires <= now);
        self.tokens.iter().filter(is_over).map(|token| token.name.as_str())
    }

    /// Whether a token that has not expired has this scope.
    #[must_use]
    pub fn grants(&self, scope: &Scope) -> bool {
        let now = Utc::now();
        let holds = |token: &Token| token.scopes.iter().any(|held| held.covers(scope));
        self.tokens.iter().any(|token| holds(token) && token.expires.is_none_or(|expires| now < expires))
    }

    /// Returns the token of that scope which the credentials hold.
    ///
    /// Every token is compared, so that the time tells neither whether one fitted nor which.
    fn admits(&self, credentials: &Credentials, needed: Scope) -> Result<&Token, Refusal> {
        let presented = match credentials {
            Credentials::Token(token) => token.digest(),
            Credentials::None => return Err(Refusal::Nothing),
            Credentials::Unreadable => return Err(Refusal::Unreadable),
        };
        let known =
            self.tokens.iter().fold(None, |known, token| if token.digest == presented { Some(token) } else { known });
        let token = known.ok_or(Refusal::Unknown)?;
        if token.expires.is_some_and(|expires| expires <= Utc::now()) {
            return Err(Refusal::Expired { token: token.name.clone() });
        }
        if token.scopes.iter().any(|held| held.covers(&needed)) {
            Ok(token)
        } else {
            Err(Refusal::WrongScope { token: token.name.clone(), needed })
        }
    }

    /// What becomes of a request with these headers. A signature counts where no token fits.
    fn decide(&self, headers: &HeaderMap, rule: Rule, source: Option<&str>) -> Verdict<'_> {
        let needed = match (rule, source) {
            (Rule::Open | Rule::Read, _) => Scope::Read,
            (Rule::Admin, _) => Scope::Admin,
            (Rule::Publish, Some(source)) => Scope::PublishTo(source.to_owned()),
            (Rule::Publish, None) => Scope::Publish,
        };
        let refusal = match self.admits(&Credentials::of(headers), needed) {
            Ok(token) => return Verdict::Admitted(token),
            Err(refusal) => refusal,
        };
        let Some(signature) = Signature::of(headers).filter(|_| rule == Rule::Publish) else {
            return Verdict::Refused(refusal);
        };
        match (source.and_then(|source| self.signatures.get(source)), signature) {
            (Some(key), Some(signature)) => Verdict::IfSigned(key, signature),
            // One answer for a source that has no key and for one that has another.
            _ => Verdict::Refused(Refusal::WrongSignature),
        }
    }
}

enum Verdict<'a> {
    /// By this token.
    Admitted(&'a Token),
    /// If the body is signed by this key.
    IfSigned(&'a Secret, Signature),
    Refused(Refusal),
}

/// What the guard of one route knows.
#[derive(Clone)]
pub(super) struct OutboundPolicy {
    pub(super) access: Arc<Access>,
    pub(super) rule: Rule,
}

/// For `middleware::from_fn_with_state`, on a route: lets those requests through that its rule allows.
pub(super) async fn guard(
    State(OutboundPolicy { access, rule }): State<OutboundPolicy>,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    mut request: Request,
    next: Next,
) -> Response {
    let source = parameters.as_ref().ok().and_then(|all| all.iter().find(|(name, _)| *name == "source"));
    let verdict = access.decide(request.headers(), rule, source.map(|(_, source)| source));
    let request = match verdict {
        verdict if rule == Rule::Open => {
            let may_read = access.is_open() || matches!(verdict, Verdict::Admitted(_));
            request.extensions_mut().insert(MayRead(may_read));
            request
        }
        Verdict::Admitted(token) => {
            if rule == Rule::Read {
                request.extensions_mut().insert(TokenName(token.name.as_str().into()));
            }
            request
        }
        Verdict::IfSigned(key, signature) => match read(request).await {
            Ok((request, body)) if !signature.is_of(&body, key) => {
                return refuse(&Refusal::WrongSignature, request).await;
            }
            Ok((request, body)) if body.is_empty() => return refuse(&Refusal::NothingSigned, request).await,
            Ok((mut request, _)) => {
                request.extensions_mut().insert(SignedBody);
                request
            }
            Err(problem) => return problem.into_response(),
        },
        Verdict::Refused(refusal) => return refuse(&refusal, request).await,
    };
    for_this_client_alone(next.run(request).await)
}

/// The request with its body read as it was sent, within [`super::BodyLimit`]: a sender signs what it
/// sends, and nothing is inflated for somebody who is not known.
async fn read(request: Request) -> Result<(Request, Bytes), Problem> {
    on_trial(&request, Trial::begin);
    let (parts, body) = request.into_parts();
    let super::Body(body) = super::Body::as_sent(Request::from_parts(parts.clone(), body)).await?;
    let request = Request::from_parts(parts, body.clone().into());
    on_trial(&request, Trial::end);
    Ok((request, body))
}

/// Tells the connection of a request whether it may be closed to make room for others.
pub(super) fn on_trial(request: &Request, change: fn(&Trial)) {
    if let Some(OnTrial(trial)) = request.extensions().get() {
        change(trial);
    }
}

/// A cache that several clients share must not give one what only the other may read, which `public`
/// would allow it in spite of `Authorization` (RFC 9111 section 3.5).
fn for_this_client_alone(mut response: Response) -> Response {
    if let Some(field) = response.headers_mut().get_mut(CACHE_CONTROL)
        && let Some(rest) = field.to_str().ok().and_then(|field| field.strip_prefix("public"))
        && let Ok(private) = HeaderValue::try_from(format!("private{rest}"))
    {
        *field = private;
    }
    response
}

async fn refuse(refusal: &Refusal, request: Request) -> Response {
    let peer = request.extensions().get().map(|ConnectInfo::<SocketAddr>(peer)| tracing::field::display(*peer));
    let path: String = request.uri().path().chars().take(LONGEST_LOGGED_PATH).collect();
    tracing::warn!(peer, method = %request.method(), path, reason = %refusal, "access refused");
    on_trial(&request, Trial::begin);
    hear_out(request).await;
    refusal.problem().into_response()
}

/// For the log: the name of the token is told, the token is not.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("no token"),
            Self::Unreadable => f.write_str("an Authorization header that holds no token"),
            Self::Unknown => f.write_str("an unknown token"),
            Self::Expired { token } => write!(f, "the token {token} has expired"),
            Self::WrongScope { token, needed } => write!(f, "the token {token} has not the scope {needed}"),
            Self::WrongSignature => f.write_str("a wrong signature"),
            Self::NothingSigned => f.write_str("a signature of an empty body"),
        }
    }
}

impl Refusal {
    /// What the client is told: the same of every hook, so that nobody without a token learns which
    /// sources there are.
    fn problem(&self) -> Problem {
        let detail = match self {
            Self::Nothing => {
                "This needs a token: send it as Authorization: Bearer TOKEN, or as the password of Basic with any user \
                 name. A hook whose source has a key takes a signature in X-Hub-Signature-256 as well."
            }
            Self::Unreadable => {
                "The Authorization header holds no token: send Bearer TOKEN, or Basic with the token as the password \
                 of any user name, and only one of them."
            }
            Self::Unknown => "The token is not one of this gateway's. Look whether it was copied whole.",
            Self::Expired { .. } => "The token has expired. Have a new one made: tidings token.",
            Self::WrongSignature => {
                "The signature in X-Hub-Signature-256 is not that of this body by this source's key: send sha256= and \
                 the HMAC-SHA256 of the body, as it is sent, in hexadecimal digits."
            }
            Self::NothingSigned => {
                "The body is empty. A signature covers the body alone, so this one says nothing about the headers: send a \
                 token with messages that have their content in headers."
            }
            Self::WrongScope { needed, .. } => {
                let detail = format!("This needs the scope {needed}, which the token does not have.");
                return Problem::new(ProblemCode::Forbidden, detail).with("scope", needed.to_string());
            }
        };
        Problem::new(ProblemCode::Unauthorized, detail)
    }
}
