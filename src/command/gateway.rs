//! Asking a gateway, and putting what is wrong in its own words.

use std::time::Duration;

use reqwest::{Client, Method, StatusCode, header::HeaderMap};
use serde_json::Value;
use tidings::{
    config::Config,
    http_client::{is_transient, trouble},
    web::Secret,
};
use url::Url;

use super::{
    Failure,
    http::{client_for, printable, why, with_token},
};

/// How long an answer may take. A subscription that is paused waits for what is on its way.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How much of an answer is read: a thousand subscriptions have a few megabytes.
const MOST: usize = 64 << 20;

/// Why a gateway did not do as it was asked.
#[derive(Debug)]
pub(super) struct NoAnswer {
    /// In a sentence.
    pub(super) why: String,
    /// Whether the same may do better later.
    pub(super) is_transient: bool,
}

impl NoAnswer {
    fn for_good(why: String) -> Self {
        Self { why, is_transient: false }
    }

    /// What answers is something else.
    pub(super) fn strange(error: &serde_json::Error) -> Self {
        Self::for_good(printable(&format!("the answer is no gateway's of Tidings: {error}")))
    }

    fn broken(error: &reqwest::Error) -> Self {
        Self { why: trouble(error), is_transient: true }
    }
}

/// The gateway of the configuration, as it is reached on this machine.
///
/// # Errors
/// When its address makes no URL.
pub(super) fn of_the_configuration(config: &Config) -> Result<Url, Failure> {
    let url = config.server.url_on_this_machine();
    Url::parse(&url).map_err(|_| Failure::Usage(format!("{url} is not an address; name the gateway with --gateway")))
}

/// A gateway that is asked.
pub(super) struct Gateway {
    client: Client,
    url: String,
    headers: HeaderMap,
}

impl Gateway {
    /// # Errors
    /// When the token cannot be sent.
    pub(super) fn new(url: &Url, token: Option<&Secret>) -> Result<Self, String> {
        let client = client_for(url).timeout(TIMEOUT).build().map_err(|error| trouble(&error))?;
        let url = url.as_str().trim_end_matches('/').to_owned();
        Ok(Self { client, url, headers: with_token(HeaderMap::new(), token)? })
    }

    /// Asks for something; gives the JSON of the answer, or null where there is none.
    ///
    /// # Errors
    /// When there is no answer, or the gateway refuses.
    pub(super) async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value, NoAnswer> {
        let mut request = self.client.request(method, format!("{}{path}", self.url)).headers(self.headers.clone());
        if let Some(body) = body {
            request = request.json(&body);
        }
        let mut response = request.send().await.map_err(|error| NoAnswer::broken(&error))?;
        let status = response.status();
        let mut told = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| NoAnswer::broken(&error))? {
            told.extend_from_slice(&chunk);
            if told.len() > MOST {
                return Err(NoAnswer::for_good(format!("the answer has more than {MOST} bytes")));
            }
        }
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let why = format!("{}; give a token with the scope admin in TIDINGS_TOKEN", why(status, &told));
                Err(NoAnswer::for_good(why))
            }
            _ if !status.is_success() => Err(NoAnswer { why: why(status, &told), is_transient: is_transient(status) }),
            _ if told.is_empty() => Ok(Value::Null),
            _ => serde_json::from_slice(&told).map_err(|error| NoAnswer::strange(&error)),
        }
    }
}
