//! Secrets in the configuration: given by value, in a file, or in an environment variable.
//!
//! Error messages never contain the secret, nor any value that may be a secret in the wrong place.

use std::{ffi::OsString, fs::File, io::Read};

use crate::{
    settings::{Setting, SettingErrors, Text, settings},
    suggestion::describe_variable,
    web::Secret,
};

/// Minimum length of a secret, in bytes. A shorter one can be guessed.
const SHORTEST: usize = 16;

/// Maximum size of a file with a secret, in bytes.
const LONGEST: u64 = 64 * 1024;

settings! {
    /// Reference to a secret outside the configuration.
    struct SecretReference {
        /// Path of a file.
        file: Option<Text>,
        /// Name of an environment variable.
        env: Option<Text>,
    }
}

/// Reads a text that contains a secret: `"…"`, `{ file = "PATH" }` or `{ env = "NAME" }`. Surrounding white space is
/// removed, because most files end with a line break.
pub(super) fn text(setting: &Setting, environment: &[(OsString, OsString)]) -> Result<String, SettingErrors> {
    let text = if setting.is_table() {
        let reference = setting.read::<SecretReference>()?;
        match (reference.file, reference.env) {
            (Some(path), None) => from_file(&path).map_err(|reason| setting.invalid(reason))?,
            (None, Some(name)) => from_environment(&name, environment).map_err(|reason| setting.invalid(reason))?,
            _ => return Err(setting.invalid("give either file or env").into()),
        }
    } else {
        setting.read::<Text>()?
    };
    Ok(text.trim().to_owned())
}

/// Reads a random secret of at least [`SHORTEST`] bytes, given as for [`text`].
pub(super) fn read(setting: &Setting, environment: &[(OsString, OsString)]) -> Result<Secret, SettingErrors> {
    match text(setting, environment)? {
        text if text.len() < SHORTEST => {
            Err(setting.invalid(format!("it is too short to be safe; give at least {SHORTEST} random bytes")).into())
        }
        text => Ok(Secret::new(text)),
    }
}

fn from_file(path: &str) -> Result<String, String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
    match read {
        Ok(_) if text.len() as u64 > LONGEST => Err(format!("its file is larger than {LONGEST} bytes")),
        Ok(_) => Ok(text),
        // A text that is no absolute path may be the secret itself by mistake.
        Err(error) if path.starts_with('/') => Err(format!("cannot read the file {path}: {error}")),
        Err(error) => Err(format!("cannot read its file: {error}")),
    }
}

fn from_environment(name: &str, environment: &[(OsString, OsString)]) -> Result<String, String> {
    let variable = describe_variable(name);
    let entry = environment.iter().find(|(key, _)| key == name);
    let (_, value) = entry.ok_or_else(|| format!("{variable} is not set"))?;
    let text = value.to_str().ok_or_else(|| format!("{variable} is not UTF-8"))?;
    Ok(text.to_owned())
}
