//! The client: `wrk`, run once a turn.

use std::{io::Write, process::Command, time::Duration};

/// How long a turn takes, in seconds.
const SECONDS: u64 = 3;

/// A run of `wrk`.
pub(crate) struct Wrk {
    threads: &'static str,
    script: Option<(tempfile::NamedTempFile, u32)>,
    header: Option<String>,
}

impl Wrk {
    /// GET requests. Two threads: one could be what limits the faster servers.
    pub(crate) fn getting() -> Self {
        Self { threads: "2", script: None, header: None }
    }

    /// The same by a client that has the document of that tag, and is to be told so.
    pub(crate) fn known(self, etag: &str) -> Self {
        Self { header: Some(format!("If-None-Match: {etag}")), ..self }
    }

    /// Messages by POST, each unlike all others of this and every other `run`.
    pub(crate) fn posting(run: u32) -> Self {
        let mut script = tempfile::NamedTempFile::new().unwrap();
        script.write_all(include_bytes!("post.lua")).unwrap();
        Self { threads: "1", script: Some((script, run)), header: None }
    }

    /// How many requests were answered, in how long.
    pub(crate) fn rate(&self, url: &str) -> (u64, Duration) {
        let mut wrk = Command::new("wrk");
        wrk.args(["-c", "64", "-t", self.threads, "-d", &format!("{SECONDS}s")]);
        if let Some(header) = &self.header {
            wrk.args(["-H", header]);
        }
        if let Some((script, _)) = &self.script {
            wrk.arg("-s").arg(script.path());
        }
        wrk.arg(url);
        if let Some((_, run)) = &self.script {
            wrk.args(["--", &run.to_string()]);
        }
        let ran = wrk.output().unwrap();
        let told = String::from_utf8_lossy(&ran.stdout);
        // It names answers of 400 and above; whoever calls knows what the others are.
        assert!(ran.status.success() && !told.contains("Non-2xx") && !told.contains("Socket errors"), "{told}");
        let rate = told.lines().find_map(|line| line.strip_prefix("Requests/sec:")).unwrap();
        let rate: f64 = rate.trim().parse().unwrap();
        ((rate * SECONDS as f64) as u64, Duration::from_secs(SECONDS))
    }
}
