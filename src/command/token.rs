//! `tidings token`: makes a token. The token is printed once; the configuration contains only its digest.

use std::fmt::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use clap::Args;
use tidings::{
    model::SourceName,
    web::{Scope, Secret},
};

use super::{Failure, print_text, say};

const EXAMPLES: &str = "\
Examples:
  tidings token --scope read --name indexer
  tidings token --scope publish:fedora3 --scope publish:fedora --expires 365
  tidings token --scope admin
  tidings token --webhook

Scopes:
  publish:SOURCE  post to the hook of that source
  publish:*       post to every hook
  read            read the feed, the changes, the objects
  admin           everything, including the sources and the quarantine

The first line of the output is the token, for its user:
  curl -H \"Authorization: Bearer $TOKEN\" https://tidings.example.org/feed
A feed reader that supports only user names and passwords sends it as the password of any user.
Add the other lines to the configuration, and reload the gateway (SIGHUP).

With --webhook the output is one line, a secret that signs messages according to Standard Webhooks. The receiver needs \
it, and so does the setting `secrets` of the subscription.

Exit codes:
  0  done
  1  failed; standard error says why
  2  wrong usage";

/// Number of random bytes in a token.
const RANDOM_BYTES: usize = 32;

/// Make a token and the configuration lines that accept it.
///
/// The token is printed once and stored nowhere.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Token {
    /// Permission of the token; may be given several times.
    #[arg(long = "scope", value_name = "SCOPE", default_value = "read", value_parser = scope)]
    scopes: Vec<Scope>,
    /// Name of the token in the configuration and the log. Default: a generated name.
    #[arg(long, value_name = "NAME", value_parser = SourceName::parse)]
    name: Option<SourceName>,
    /// Days until the token expires. Default: never.
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(i64).range(1..=36500))]
    expires: Option<i64>,
    /// Make a signing secret for webhooks instead of a token.
    #[arg(long, conflicts_with_all = ["scopes", "name", "expires"])]
    webhook: bool,
}

fn scope(text: &str) -> Result<Scope, String> {
    let expected = || "a scope is publish:SOURCE, publish:*, read or admin".to_owned();
    let scope = Scope::parse(text).ok_or_else(expected)?;
    if let Scope::PublishTo(source) = &scope {
        SourceName::parse(source).map_err(|error| error.to_string())?;
    }
    Ok(scope)
}

impl Token {
    pub(super) fn run(self) -> Result<(), Failure> {
        if self.webhook {
            print_text(&format!("whsec_{}\n", STANDARD.encode(random()?)))?;
            say("this secret is shown only once: give it to the receiver, and add it to `secrets` of the subscription");
            return Ok(());
        }
        // The prefix identifies a leaked token.
        let token = format!("tdg_{}", hex::encode(random()?));
        let digest = Secret::new(token.as_str()).digest().to_hex();
        let name = self.name.map_or_else(|| format!("token-{}", &digest[..8]), |name| name.to_string());
        let expires = self.expires.map(|days| Utc::now() + TimeDelta::days(days));
        let block = block(&name, &digest, &self.scopes, expires).map_err(|error| Failure::Failed(error.to_string()))?;
        print_text(&format!("{token}\n\n{block}"))?;
        say("the first line is the token, which is shown only once; add the other lines to the configuration");
        Ok(())
    }
}

fn random() -> Result<[u8; RANDOM_BYTES], Failure> {
    let mut bytes = [0; RANDOM_BYTES];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random
        .fill(&mut bytes)
        .map_err(|_| Failure::Failed("the operating system returned no random numbers".to_owned()))?;
    Ok(bytes)
}

fn block(
    name: &str,
    digest: &str,
    scopes: &[Scope],
    expires: Option<DateTime<Utc>>,
) -> Result<String, std::fmt::Error> {
    let scopes: Vec<_> = scopes.iter().map(|scope| format!("\"{scope}\"")).collect();
    let mut block = format!("[access.tokens.{name}]\nsha256 = \"{digest}\"\nscopes = [{}]\n", scopes.join(", "));
    if let Some(expires) = expires {
        writeln!(block, "expires = \"{}\"", expires.to_rfc3339_opts(SecondsFormat::Secs, true))?;
    }
    Ok(block)
}
