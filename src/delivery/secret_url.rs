//! Receiver URLs, which may contain a password, and secrets that a receiver shares with the gateway.
//!
//! The configuration file may give the value directly or name a file or an environment variable. A definition
//! over HTTP may give a URL without a password, or name an environment variable with a reserved prefix. Other
//! values would be stored in the journal and shown again, and an API token must not open arbitrary files and
//! variables.

use std::{fs::File, io::Read};

use serde_json::{Map, Value};

use super::DefinitionContext;
use crate::{
    journal::subscriptions::MadeBy,
    settings::{Setting, SettingError},
    suggestion::describe_variable,
    web::Secret,
};

/// Prefix of environment variables that definitions over HTTP may name.
const VARIABLE_PREFIX: &str = "TIDINGS_SECRET_";

/// Maximum number of bytes read from a file.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Parses a URL: `"…"`, `{ file = "PATH" }` or `{ env = "NAME" }`. Errors never contain the value.
pub(super) fn read_url(setting: &Setting, context: &DefinitionContext<'_>) -> Result<Secret, SettingError> {
    let wrong = |reason: String| setting.invalid(reason);
    match setting.json() {
        Value::String(text) => {
            let has_password = url::Url::parse(&text).is_ok_and(|url| url.password().is_some());
            if context.made_by == MadeBy::Api && has_password {
                return Err(wrong(format!(
                    "it has a password, which would be stored and shown; put the whole URL into an environment \
                     variable of the gateway and give {{\"env\": \"{VARIABLE_PREFIX}…\"}}, or define the subscription \
                     in the configuration file"
                )));
            }
            Ok(Secret::new(text))
        }
        Value::Object(table) => resolve_reference(table, context, "give the URL, or either file or env").map_err(wrong),
        _ => Err(wrong("give a URL in quotation marks".to_owned())),
    }
}

/// Parses a secret in one of the same three forms. Errors name `place` and never contain the value.
pub(super) fn read_secret(
    place: &Setting,
    secret: &Setting,
    context: &DefinitionContext<'_>,
) -> Result<Secret, SettingError> {
    let wrong = |reason: String| place.invalid(reason);
    match secret.json() {
        Value::String(_) if context.made_by == MadeBy::Api => Err(wrong(format!(
            "it would be stored in the journal; put it into an environment variable of the gateway and give \
             {{\"env\": \"{VARIABLE_PREFIX}…\"}}, or define the subscription in the configuration file"
        ))),
        Value::String(text) => Ok(Secret::new(text)),
        Value::Object(table) => {
            resolve_reference(table, context, "give the secret, or either file or env").map_err(wrong)
        }
        _ => Err(wrong("give the secret in quotation marks, or either file or env".to_owned())),
    }
}

/// Reads the secret from the file or variable that a table names.
fn resolve_reference(
    mut table: Map<String, Value>,
    context: &DefinitionContext<'_>,
    advice: &str,
) -> Result<Secret, String> {
    let (env, file) = (table.remove("env"), table.remove("file"));
    let text = match (env, file) {
        (Some(Value::String(name)), None) if table.is_empty() => variable(&name, context),
        (None, Some(Value::String(path))) if table.is_empty() && context.made_by == MadeBy::Config => from_file(&path),
        (None, Some(_)) if context.made_by == MadeBy::Api => {
            Err(format!("only the configuration file may name a file; give {{\"env\": \"{VARIABLE_PREFIX}…\"}}"))
        }
        _ => Err(advice.to_owned()),
    };
    text.map(|text| Secret::new(text.trim()))
}

fn variable(name: &str, context: &DefinitionContext<'_>) -> Result<String, String> {
    if context.made_by == MadeBy::Api && !name.starts_with(VARIABLE_PREFIX) {
        return Err(format!("only variables whose names begin with {VARIABLE_PREFIX} may be named here"));
    }
    let variable = describe_variable(name);
    let value = (context.variable)(name).ok_or_else(|| format!("{variable} is not set"))?;
    value.into_string().map_err(|_| format!("{variable} is not UTF-8"))
}

fn from_file(path: &str) -> Result<String, String> {
    let mut text = String::new();
    match File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)) {
        Ok(_) if text.len() as u64 > MAX_FILE_BYTES => Err(format!("the file has more than {MAX_FILE_BYTES} bytes")),
        Ok(_) => Ok(text),
        Err(error) => Err(format!("cannot read the file: {error}")),
    }
}
