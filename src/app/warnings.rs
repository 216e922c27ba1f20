//! Warnings about settings that are valid but may not be intended. `serve` logs them, and `tidings check` prints them.

use crate::{
    config::{Config, SourceConfig},
    model::SourceName,
    web::{Scope, SignatureHeader},
};

/// Returns the warnings about a configuration, without those about connections to brokers, which
/// [`BrokerSettings::warning`](crate::source::consumer::BrokerSettings::warning) returns.
#[must_use]
pub fn warnings(config: &Config) -> Vec<String> {
    let Config { server, access, .. } = config;
    let mut found = Vec::new();
    if server.lacks_public_url() {
        let url = server.url_on_this_machine();
        found.push(format!(
            "server.public_url is not set: links in the feed and in responses lead to {url}, which only this machine can \
             reach; set it to the URL that readers use"
        ));
    }
    let on_loopback = server.listen.ip().to_canonical().is_loopback();
    if access.is_open() && !on_loopback {
        found
            .push("access control is off: anybody who can reach this address may post, read and administer".to_owned());
    } else if !access.is_open() && !access.grants(&Scope::Read) {
        let reason = match access.expired().collect::<Vec<_>>()[..] {
            [] => "no token has the scope read".to_owned(),
            [name] => format!("the token {name} has expired, and no other has the scope read"),
            ref names => format!("the tokens {} have expired, and no other has the scope read", names.join(", ")),
        };
        found.push(format!("{reason}: nobody can read the feed"));
    }
    found.extend(config.sources.iter().filter_map(unsigned_headers));
    if !access.is_open() && !on_loopback && server.tls.is_none() {
        found.push(
            "tokens and messages are not encrypted, unless a reverse proxy encrypts them: see server.tls".to_owned(),
        );
    }
    found
}

/// Returns a warning if the dialect of a source with signatures reads headers.
fn unsigned_headers((name, source): (&SourceName, &SourceConfig)) -> Option<String> {
    // Alma sends no facts in headers.
    let is_general = source.signature.as_ref().is_some_and(|key| key.header == SignatureHeader::Hub);
    if !is_general || source.dialect.headers.is_empty() {
        return None;
    }
    let (dialect, headers) = (source.dialect.name, source.dialect.headers.join(", "));
    Some(format!(
        "source {name}: the dialect {dialect} also reads the headers {headers}, but a signature covers only the body: headers \
         of signed messages are ignored; give senders that need them a token"
    ))
}
