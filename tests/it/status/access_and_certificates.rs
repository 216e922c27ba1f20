//! Ends of tokens and of the certificate.

use std::{fs, path::Path};

use chrono::{DateTime, Datelike, TimeDelta, Utc};
use rcgen::{CertificateParams, KeyPair};
use tidings::web::Secret;

use super::ObservedGateway;

const TOKEN: &str = "tdg_status";

fn token(name: &str, token: &str, expires: Option<DateTime<Utc>>) -> String {
    let digest = Secret::new(token).digest().to_hex();
    let expires = expires.map(|time| format!("expires = \"{}\"\n", time.to_rfc3339())).unwrap_or_default();
    format!("[access.tokens.{name}]\nsha256 = \"{digest}\"\nscopes = [\"admin\"]\n{expires}")
}

#[tokio::test]
async fn tokens_are_problems_before_and_after_their_end() {
    let now = Utc::now();
    let lines = token("status", TOKEN, None)
        + &token("later", "tdg_later", Some(now + TimeDelta::days(15)))
        + &token("soon", "tdg_soon", Some(now + TimeDelta::days(13)))
        + &token("former", "tdg_former", Some(now - TimeDelta::days(1)));
    let observed = ObservedGateway { token: Some(TOKEN), ..ObservedGateway::start(&lines) };
    observed.page().sign_in(TOKEN);
    observed.shows("token-expires", "token/soon", "it ends on").await;
    observed.shows("token-expired", "token/former", "it ends on").await;
    assert_eq!(observed.status().await["problems"].as_array().unwrap().len(), 2);
}

/// Writes a certificate that ends on a day, so many days from now, and its key.
pub(crate) fn put_certificate(folder: &Path, days: i64) -> String {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let end = Utc::now() + TimeDelta::days(days);
    let (month, day) = (u8::try_from(end.month()).unwrap(), u8::try_from(end.day()).unwrap());
    params.not_after = rcgen::date_time_ymd(end.year(), month, day);
    let (certificate, key_file) = (folder.join("cert.pem"), folder.join("key.pem"));
    fs::write(&certificate, params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(&key_file, key.serialize_pem()).unwrap();
    format!("[server.tls]\ncertificate = {certificate:?}\nkey = {key_file:?}\n")
}

#[tokio::test]
async fn certificate_is_a_problem_before_and_after_its_end() {
    let certificates = tempfile::tempdir().unwrap();
    let mut observed = ObservedGateway::start(&put_certificate(certificates.path(), -1));
    let insecure = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy();
    observed.gateway.http = insecure.build().unwrap();
    observed.shows("certificate-expired", "gateway", "it ends on").await;
    put_certificate(certificates.path(), 13);
    observed.gateway.signal("HUP");
    observed.shows("certificate-expires", "gateway", "it ends on").await;
    observed.ends("certificate-expired", "gateway").await;
    put_certificate(certificates.path(), 20);
    observed.gateway.signal("HUP");
    observed.ends("certificate-expires", "gateway").await;
    assert!(observed.status().await["certificateExpires"].is_string());
}
