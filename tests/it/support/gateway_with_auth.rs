//! Gateway with access control: six tokens, and a signing key for one source.

use std::{fs, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;
use tempfile::TempDir;
use tidings::web::Secret;

use crate::support::{fedora3_messages::Call, gateway::Gateway};

/// Names of the tokens and their scopes. `expired` has every scope.
pub(crate) const TOKENS: [(&str, &str); 6] = [
    ("tdg_reader", "read"),
    ("tdg_fedora3", "publish:fedora3"),
    ("tdg_islandora", "publish:islandora"),
    ("tdg_publisher", "publish:*"),
    ("tdg_admin", "admin"),
    ("tdg_expired", "admin"),
];

/// Signing key of the source fedora3.
pub(crate) const KEY: &str = "5ecre7 5ecre7 5ecre7";

/// Returns the configuration with these tokens, and with the key unless it is empty.
pub(crate) fn configuration(folder: &Path, key: &str) -> String {
    let mut config = String::from(key);
    for (token, scope) in TOKENS {
        let digest = Secret::new(token).digest().to_hex();
        let expires = if token == "tdg_expired" { "2026-01-01T00:00:00Z" } else { "2099-01-01T00:00:00Z" };
        let name = token.trim_start_matches("tdg_");
        config += &format!(
            "[access.tokens.{name}]\nsha256 = \"{digest}\"\nscopes = [\"{scope}\"]\nexpires = \"{expires}\"\n"
        );
    }
    let path = folder.join("tidings.toml");
    fs::write(&path, config).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Gateway whose log and data are in the folder.
pub(crate) struct GatewayWithAuth {
    pub(crate) gateway: Gateway,
    pub(crate) folder: TempDir,
}

impl GatewayWithAuth {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = configuration(folder.path(), &format!("[sources.fedora3.signature]\nsecret = \"{KEY}\"\n"));
        let log = folder.path().join("log");
        let gateway = Gateway::start_logging(&folder.path().join("data"), &["--config", &config], &log);
        Self { gateway, folder }
    }

    pub(crate) fn request(&self, method: &Method, path: &str) -> RequestBuilder {
        let request = self.gateway.http.request(method.clone(), format!("{}{path}", self.gateway.url));
        request.header("content-type", "application/atom+xml")
    }

    pub(crate) fn post(&self, source: &str, body: &str) -> RequestBuilder {
        self.request(&Method::POST, &format!("/hooks/{source}")).body(body.to_owned())
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

/// Returns the value of `Authorization` with which a feed reader sends a token.
pub(crate) fn basic(user: &str, token: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{token}")))
}

/// Returns a message with that number for the source fedora3.
pub(crate) fn message(number: u64) -> String {
    let pid = format!("demo:{number}");
    Call { number, method: "purgeObject", pid: &pid, parameters: &[], returned: None }.message()
}

/// Returns the status and the body. The body of an error must be a problem document with that status.
pub(crate) async fn status_and_body(answer: Response) -> (u16, String) {
    let status = answer.status().as_u16();
    let challenges: Vec<_> = answer.headers().get_all("www-authenticate").iter().cloned().collect();
    let expected = [r#"Bearer realm="tidings""#, r#"Basic realm="tidings""#];
    assert_eq!(challenges, expected[..if status == 401 { 2 } else { 0 }]);
    let body = answer.text().await.unwrap();
    if let Some(code) = match status {
        401 => Some("unauthorized"),
        403 => Some("forbidden"),
        _ => None,
    } {
        let problem: Value = serde_json::from_str(&body).unwrap_or_default();
        if !body.is_empty() {
            assert_eq!(problem["type"], format!("urn:tidings:problem:{code}"));
        }
    }
    (status, body)
}

/// Returns the signature of the bytes with this key, as a header value.
pub(crate) fn signature(key: &str, body: impl AsRef<[u8]>) -> String {
    let mac = Hmac::<sha2::Sha256>::new_from_slice(key.as_bytes()).unwrap().chain_update(body.as_ref());
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}
