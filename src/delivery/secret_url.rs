//! The address of a receiver, which may hold a password, and secrets that it shares with the gateway.
//!
//! The administrator's configuration may give it as it is, or tell a file or a variable of the
//! environment that holds it. Who makes a subscription through the HTTP interface gives an address
//! without a password, or names a variable that was meant for this: what is put there is kept in the
//! journal and shown again, and a token for the interface must not open every file and variable.

use std::{fs::File, io::Read};

use serde_json::{Map, Value};

use super::{InvalidDefinition, Maker};
use crate::{journal::subscriptions::MadeBy, suggestion::describe_variable, web::Secret};

/// What the names of variables begin with that the interface may refer to.
const VARIABLES: &str = "TIDINGS_SECRET_";

/// The most that is read of a file, in bytes.
const LONGEST: u64 = 64 * 1024;

/// Reads the setting `key`: `"…"`, `{ file = "PATH" }` or `{ env = "NAME" }`. No error repeats it.
pub(super) fn read(key: &str, setting: Option<Value>, maker: &Maker<'_>) -> Result<Secret, InvalidDefinition> {
    let wrong = |reason: String| InvalidDefinition::new(key, reason);
    match setting {
        None | Some(Value::Null) => Err(wrong("it is missing; add it".to_owned())),
        Some(Value::String(text)) => {
            let has_password = url::Url::parse(&text).is_ok_and(|url| url.password().is_some());
            if maker.made_by == MadeBy::Api && has_password {
                return Err(wrong(format!(
                    "it has a password, which would be kept and shown; set a variable of the environment of the \
                     gateway to the whole address and give {{\"env\": \"{VARIABLES}…\"}}, or define the subscription \
                     in the configuration file"
                )));
            }
            Ok(Secret::new(text))
        }
        Some(Value::Object(table)) => found(table, maker, "give the address, or either file or env").map_err(wrong),
        Some(_) => Err(wrong("give an address in quotation marks".to_owned())),
    }
}

/// Reads a secret that is nothing else, in the same three ways. No error repeats it.
pub(super) fn read_secret(key: &str, setting: Value, maker: &Maker<'_>) -> Result<Secret, InvalidDefinition> {
    let wrong = |reason: String| InvalidDefinition::new(key, reason);
    match setting {
        Value::String(_) if maker.made_by == MadeBy::Api => Err(wrong(format!(
            "it would be kept in the journal; set a variable of the environment of the gateway to it and give \
             {{\"env\": \"{VARIABLES}…\"}}, or define the subscription in the configuration file"
        ))),
        Value::String(text) => Ok(Secret::new(text)),
        Value::Object(table) => found(table, maker, "give the secret, or either file or env").map_err(wrong),
        _ => Err(wrong("give the secret in quotation marks, or either file or env".to_owned())),
    }
}

/// What is found where a table points.
fn found(mut table: Map<String, Value>, maker: &Maker<'_>, advice: &str) -> Result<Secret, String> {
    let (env, file) = (table.remove("env"), table.remove("file"));
    let found = match (env, file) {
        (Some(Value::String(name)), None) if table.is_empty() => variable(&name, maker),
        (None, Some(Value::String(path))) if table.is_empty() && maker.made_by == MadeBy::Config => from_file(&path),
        (None, Some(_)) if maker.made_by == MadeBy::Api => {
            Err(format!("only the configuration file may name a file; give {{\"env\": \"{VARIABLES}…\"}}"))
        }
        _ => Err(advice.to_owned()),
    };
    found.map(|text| Secret::new(text.trim()))
}

fn variable(name: &str, maker: &Maker<'_>) -> Result<String, String> {
    if maker.made_by == MadeBy::Api && !name.starts_with(VARIABLES) {
        return Err(format!("only variables whose names begin with {VARIABLES} may be named here"));
    }
    let variable = describe_variable(name);
    let value = (maker.variable)(name).ok_or_else(|| format!("{variable} is not set"))?;
    value.into_string().map_err(|_| format!("{variable} is not UTF-8"))
}

fn from_file(path: &str) -> Result<String, String> {
    let mut text = String::new();
    match File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text)) {
        Ok(_) if text.len() as u64 > LONGEST => Err(format!("its file has more than {LONGEST} bytes")),
        Ok(_) => Ok(text),
        Err(error) => Err(format!("its file cannot be read: {error}")),
    }
}
