//! Requests to the HTTP API of a gateway, for the commands that manage one.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use reqwest::{
    Client, Method, StatusCode,
    header::{AUTHORIZATION, HeaderMap},
};
use serde_json::Value;
use tidings::{
    config::{ConfigParts, Flags},
    http_client::{describe_error, is_transient},
    web::Secret,
};
use url::Url;
use uuid::Uuid;

use super::{
    ConfigFile, Failure,
    http::{Trust, client_for, describe_denial, describe_response, http_url, token, with_token},
    output::cell,
    say,
};

/// Maximum time until the response. It is long because pausing a subscription waits for the messages in flight.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum size of a response body, in bytes. The list of a thousand subscriptions has a few megabytes.
const MAX_BODY_BYTES: usize = 64 << 20;

/// Failure of a request to a gateway.
#[derive(Debug)]
pub(super) struct GatewayError {
    /// Cause, in the words of the gateway where it responded.
    pub(super) reason: String,
    /// Whether the same request may succeed later.
    pub(super) is_transient: bool,
    /// Status of the response, if there was one.
    pub(super) status: Option<StatusCode>,
    /// The problem document of the response (RFC 9457), or null.
    pub(super) problem: Value,
}

impl GatewayError {
    fn permanent(reason: String) -> Self {
        Self { reason, is_transient: false, status: None, problem: Value::Null }
    }

    /// The response is not the JSON of a Tidings gateway.
    pub(super) fn unexpected_body(error: &serde_json::Error) -> Self {
        Self::permanent(cell(&format!("the response is not from a Tidings gateway: {error}")))
    }

    /// The journal of the gateway has another identity than before.
    pub(super) fn other_journal(present: Uuid) -> Self {
        let reason = format!("the journal of the gateway has the identity {present} now");
        let problem = serde_json::json!({ "journal": present });
        Self { reason, is_transient: false, status: Some(StatusCode::GONE), problem }
    }

    fn connection(error: &reqwest::Error) -> Self {
        Self { reason: describe_error(error), is_transient: true, status: None, problem: Value::Null }
    }
}

/// Returns the URL at which this machine reaches the gateway of the configuration.
///
/// # Errors
/// Fails if the socket address does not make a URL.
fn configured_gateway(config: &ConfigParts) -> Result<Url, Failure> {
    let url = config.server().url_on_this_machine();
    Url::parse(&url)
        .map_err(|_| Failure::Usage(format!("{url} is not a URL; give the URL of the gateway with --gateway")))
}

/// Options of every command that talks to a gateway: its URL, the token, and the check of its certificate.
#[derive(Args)]
pub(super) struct GatewayArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// URL of the gateway. Default: the gateway of the configuration, on this machine.
    #[arg(long, global = true, env = "TIDINGS_GATEWAY", value_name = "URL", value_parser = http_url)]
    gateway: Option<Url>,
    /// Token to send. Prefer the environment variable, because other users of this machine can see command-line
    /// arguments.
    #[arg(long, global = true, env = "TIDINGS_TOKEN", hide_env_values = true, value_parser = token)]
    token: Option<Secret>,
    /// PEM file of the CA certificates to check the certificate of the gateway with. Default: those of the operating
    /// system.
    #[arg(long, global = true, env = "TIDINGS_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// URL of a gateway, with its origin.
pub(super) struct GatewayUrl {
    /// The URL.
    pub(super) url: Url,
    /// Whether it is the gateway of the configuration, on this machine, because no URL is given.
    pub(super) is_configured: bool,
}

impl GatewayArgs {
    /// Merges the layers of the configuration.
    ///
    /// # Errors
    /// Fails if a table without secrets is invalid.
    pub(super) fn config(&self) -> Result<ConfigParts, Failure> {
        self.config.load(&Flags::default())
    }

    /// Returns the URL of the gateway. The configuration is loaded only if no URL is given.
    ///
    /// # Errors
    /// Fails if the configuration is invalid.
    pub(super) fn url(&self) -> Result<GatewayUrl, Failure> {
        Ok(match &self.gateway {
            Some(url) => GatewayUrl { url: url.clone(), is_configured: false },
            None => GatewayUrl { url: configured_gateway(&self.config()?)?, is_configured: true },
        })
    }

    /// Returns how the certificate of the gateway is checked.
    pub(super) fn trust(&self) -> Trust<'_> {
        Trust::Authorities(self.ca.as_deref())
    }

    /// Adds the token to headers, unless they authorize the request already.
    ///
    /// # Errors
    /// Fails if the token is not valid in a header.
    pub(super) fn with_token(&self, headers: HeaderMap) -> Result<HeaderMap, Failure> {
        with_token(headers, self.token.as_ref()).map_err(Failure::Usage)
    }

    /// Returns the URL of the gateway and a client for it. The configuration is loaded only if no URL is given.
    ///
    /// # Errors
    /// Fails if the configuration, the token or a CA certificate is invalid.
    pub(super) fn connect(&self) -> Result<(Url, Gateway), Failure> {
        let GatewayUrl { url, is_configured } = self.url()?;
        if is_configured {
            // The gateway at this URL may be another one than the user expects.
            say(&format!("using the gateway {url}"));
        }
        self.client(url)
    }

    /// Returns the URL of the gateway and a client for it. Without a URL, it is the gateway of `config`.
    ///
    /// # Errors
    /// Fails if the token or a CA certificate is invalid.
    pub(super) fn connect_with(&self, config: &ConfigParts) -> Result<(Url, Gateway), Failure> {
        let url = self.gateway.clone().map_or_else(|| configured_gateway(config), Ok)?;
        self.client(url)
    }

    fn client(&self, url: Url) -> Result<(Url, Gateway), Failure> {
        let gateway = Gateway::new(&url, self.with_token(HeaderMap::new())?, self.trust()).map_err(Failure::Usage)?;
        Ok((url, gateway))
    }
}

/// HTTP client for one gateway.
pub(super) struct Gateway {
    client: Client,
    url: String,
    headers: HeaderMap,
}

impl Gateway {
    /// Builds the client. All requests have these headers.
    ///
    /// # Errors
    /// Fails if the client cannot be built.
    fn new(url: &Url, headers: HeaderMap, trust: Trust<'_>) -> Result<Self, String> {
        let client = client_for(url, trust)?.timeout(TIMEOUT).build().map_err(|error| describe_error(&error))?;
        Ok(Self { client, url: url.as_str().trim_end_matches('/').to_owned(), headers })
    }

    /// Sends a request and returns the JSON of the response, or null if the response has no body.
    ///
    /// # Errors
    /// Fails if there is no response, or its status is not 2xx.
    pub(super) async fn request(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value, GatewayError> {
        match self.send(method, path, body, "admin").await?[..] {
            [] => Ok(Value::Null),
            ref body => serde_json::from_slice(body).map_err(|error| GatewayError::unexpected_body(&error)),
        }
    }

    /// Returns the body of a resource that a token with the scope `read` may read, octet by octet.
    ///
    /// # Errors
    /// Fails if there is no response, or its status is not 2xx.
    pub(super) async fn read(&self, path: &str) -> Result<Vec<u8>, GatewayError> {
        self.send(Method::GET, path, None, "read").await
    }

    /// Sends a request that needs a token with this scope, and returns the body of the response.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        scope: &str,
    ) -> Result<Vec<u8>, GatewayError> {
        let mut request = self.client.request(method, format!("{}{path}", self.url)).headers(self.headers.clone());
        if let Some(body) = body {
            request = request.json(&body);
        }
        let mut response = request.send().await.map_err(|error| GatewayError::connection(&error))?;
        let status = response.status();
        let mut response_body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| GatewayError::connection(&error))? {
            response_body.extend_from_slice(&chunk);
            if response_body.len() > MAX_BODY_BYTES {
                return Err(GatewayError::permanent(format!("the response is larger than {MAX_BODY_BYTES} bytes")));
            }
        }
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let has_token = self.headers.contains_key(AUTHORIZATION);
                Err(GatewayError::permanent(describe_denial(status, &response_body, has_token, scope)))
            }
            _ if !status.is_success() => Err(GatewayError {
                reason: describe_response(status, &response_body),
                is_transient: is_transient(status),
                status: Some(status),
                problem: serde_json::from_slice(&response_body).unwrap_or_default(),
            }),
            _ => Ok(response_body),
        }
    }
}
