//! The gateway under callgrind.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::{
    super::harvests::write_config,
    profile::{self, Work},
};

/// Running gateway whose instructions are counted.
pub(super) struct CountedGateway {
    process: Child,
    profile: PathBuf,
    pub(super) url: String,
}

impl CountedGateway {
    /// Starts the gateway with its journal in the folder, and further lines of its configuration.
    pub(super) fn start(folder: &Path, lines: &str) -> Self {
        let (config, profile) = (write_config(folder, lines), folder.join("callgrind.out"));
        let mut serve = Command::new("valgrind");
        serve.args(["-q", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no"]);
        serve.arg(format!("--callgrind-out-file={}", profile.display())).arg(env!("CARGO_BIN_EXE_tidings"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.join("data")).arg("--config").arg(config);
        let mut process = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().rsplit(' ').next().unwrap().to_owned();
        assert!(url.starts_with("http"), "the gateway does not start: see {}", folder.display());
        Self { process, profile, url }
    }

    /// Stops the gateway, and returns the work of each stage.
    pub(super) fn stop(mut self) -> BTreeMap<&'static str, Work> {
        assert!(Command::new("kill").arg(self.process.id().to_string()).status().unwrap().success());
        assert!(self.process.wait().unwrap().success());
        profile::read(&self.profile)
    }
}
