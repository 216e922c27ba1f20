//! The option `--config`, shared by all commands that read the configuration.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::Args;
use tidings::config::{ConfigParts, Flags};

use super::{Failure, environment_file};

/// Configuration file of commands that name none, if it exists: a cron job that forgets `--config` then works on the
/// journal of the service and not on one in its working directory.
const SYSTEM_FILE: &str = "/etc/tidings/tidings.toml";

/// The configuration file, and the variables that override it.
#[derive(Args)]
pub(super) struct ConfigFile {
    /// Configuration file (TOML). Default: the file named by the environment variable TIDINGS_CONFIG, or else
    /// /etc/tidings/tidings.toml if it exists. Without any, only the built-in defaults and environment variables apply.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// File with environment variables for the configuration, as systemd reads an EnvironmentFile. They count before those
    /// of the environment.
    #[arg(long, value_name = "FILE", global = true)]
    environment: Option<PathBuf>,
}

/// Reason why a file is the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChosenBy {
    /// The option `--config`.
    Option,
    /// The variable `TIDINGS_CONFIG`.
    Variable,
    /// It is the file of the service.
    Default,
}

impl ConfigFile {
    /// Returns the absolute path of the configuration file; `None` if there is none.
    ///
    /// # Errors
    /// Fails if the file of `--environment` cannot be read.
    pub(super) fn path(&self) -> Result<Option<(PathBuf, ChosenBy)>, Failure> {
        Ok(self.chosen(&self.variables()?, Path::new(SYSTEM_FILE)))
    }

    fn chosen(&self, variables: &[(OsString, OsString)], system_file: &Path) -> Option<(PathBuf, ChosenBy)> {
        let variable = variables.iter().find(|(name, path)| name == "TIDINGS_CONFIG" && !path.is_empty());
        // A file in a folder that this user may not read is there. Then reading it fails, instead of using another journal.
        let exists = || system_file.try_exists().unwrap_or(true);
        let (path, by) = match (&self.config, variable) {
            (Some(path), _) => (path.clone(), ChosenBy::Option),
            (None, Some((_, path))) => (path.into(), ChosenBy::Variable),
            (None, None) if exists() => (system_file.to_owned(), ChosenBy::Default),
            (None, None) => return None,
        };
        Some((std::path::absolute(&path).unwrap_or(path), by))
    }

    /// Returns the environment, with the variables of `--environment` first.
    fn variables(&self) -> Result<Vec<(OsString, OsString)>, Failure> {
        let mut variables = match &self.environment {
            Some(path) => environment_file::read(path).map_err(Failure::Usage)?,
            None => Vec::new(),
        };
        let others = std::env::vars_os().filter(|(name, _)| !variables.iter().any(|(given, _)| given == name));
        variables.extend(others.collect::<Vec<_>>());
        Ok(variables)
    }

    /// Merges the layers of the configuration. A command reads only the parts that it needs, because it may lack the secrets
    /// of the others.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or a table without secrets is invalid.
    pub(super) fn load(&self, flags: &Flags) -> Result<ConfigParts, Failure> {
        let variables = self.variables()?;
        let chosen = self.chosen(&variables, Path::new(SYSTEM_FILE));
        let path = chosen.as_ref().map(|(path, _)| path.as_path());
        Ok(ConfigParts::load_with(path, variables, flags)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{ChosenBy, ConfigFile, OsString, PathBuf};

    #[test]
    fn option_counts_before_the_variable_and_that_before_the_system_file() {
        let folder = tempfile::tempdir().unwrap();
        let (missing, present) = (folder.path().join("missing.toml"), folder.path().join("present.toml"));
        fs::write(&present, "").unwrap();
        let variable = |path: &str| vec![(OsString::from("TIDINGS_CONFIG"), OsString::from(path))];
        let chosen = |config: Option<&str>, variables: &[_], system| {
            ConfigFile { config: config.map(PathBuf::from), environment: None }.chosen(variables, system)
        };
        assert_eq!(chosen(None, &[], &missing), None);
        assert_eq!(chosen(None, &[], &present), Some((present.clone(), ChosenBy::Default)));
        assert_eq!(chosen(None, &variable(""), &present), Some((present.clone(), ChosenBy::Default)));
        assert_eq!(chosen(None, &variable("/b.toml"), &present), Some(("/b.toml".into(), ChosenBy::Variable)));
        let relative = std::path::absolute("a.toml").unwrap();
        assert_eq!(chosen(Some("a.toml"), &variable("/b.toml"), &present), Some((relative, ChosenBy::Option)));
        // A path below a file cannot be looked up.
        let hidden = present.join("tidings.toml");
        assert_eq!(
            chosen(None, &[], &hidden).map(|(_, by)| by),
            hidden.try_exists().is_err().then_some(ChosenBy::Default)
        );
    }
}
