//! A secret in the configuration: by value, in a file, or in a variable of the environment. What is
//! wrong with one is told without it, and without what may be one by mistake.

use std::{ffi::OsString, fs::File, io::Read};

use serde::Deserialize;

use super::{error::ConfigError, setting::Setting};
use crate::web::Secret;

/// The least length of a secret, in bytes: a shorter one can be found by trying.
const SHORTEST: usize = 16;

/// The most that is read of a file, in bytes.
const LONGEST: u64 = 64 * 1024;

/// Where else a secret may be.
#[derive(Deserialize)]
struct Elsewhere {
    #[serde(default)]
    file: Option<String>,
    #[serde(default)]
    env: Option<String>,
}

/// Reads a text that has a secret in it: `"…"`, `{ file = "PATH" }` or `{ env = "NAME" }`. White space
/// around it does not count, since a file mostly ends in a line break.
pub(super) fn text(setting: &Setting, environment: &[(OsString, OsString)]) -> Result<String, ConfigError> {
    let text = if setting.is_table() {
        let elsewhere: Elsewhere = setting.clone().read()?;
        match (elsewhere.file, elsewhere.env) {
            (Some(path), None) => from_file(&path).map_err(|reason| setting.invalid(reason))?,
            (None, Some(name)) => from_environment(&name, environment).map_err(|reason| setting.invalid(reason))?,
            _ => return Err(setting.invalid("give either file or env")),
        }
    } else {
        setting.clone().read::<String>()?
    };
    Ok(text.trim().to_owned())
}

/// Reads a secret that was made at random, given as for [`text`].
pub(super) fn read(setting: &Setting, environment: &[(OsString, OsString)]) -> Result<Secret, ConfigError> {
    match text(setting, environment)? {
        text if text.len() < SHORTEST => {
            Err(setting.invalid(format!("it is too short to be safe; give at least {SHORTEST} bytes, at random")))
        }
        text => Ok(Secret::new(text)),
    }
}

fn from_file(path: &str) -> Result<String, String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
    match read {
        Ok(_) if text.len() as u64 > LONGEST => Err(format!("its file has more than {LONGEST} bytes")),
        Ok(_) => Ok(text),
        Err(error) => Err(format!("its file cannot be read: {error}")),
    }
}

fn from_environment(name: &str, environment: &[(OsString, OsString)]) -> Result<String, String> {
    let found = environment.iter().find(|(found, _)| found == name);
    let (_, value) = found.ok_or("the environment variable that it names is not set")?;
    let text = value.to_str().ok_or("the environment variable that it names is not UTF-8")?;
    Ok(text.to_owned())
}
