//! The HTTP client: `wrk`, run once per turn.

use std::{io::Write, process::Command, time::Duration};

/// Duration of a turn, in seconds.
const SECONDS: u64 = 3;

/// Default number of connections.
const CONNECTIONS: usize = 64;

/// Configuration of a run of `wrk`.
pub(crate) struct Wrk {
    connections: usize,
    threads: &'static str,
    script: Option<(tempfile::NamedTempFile, u32)>,
    header: Option<String>,
}

impl Wrk {
    /// GET requests from two threads, because a single thread could be slower than the server.
    pub(crate) fn getting() -> Self {
        Self { connections: CONNECTIONS, threads: "2", script: None, header: None }
    }

    /// Uses another number of connections.
    pub(crate) fn over(self, connections: usize) -> Self {
        Self { connections, ..self }
    }

    /// Adds an If-None-Match header with the tag.
    pub(crate) fn if_none_match(self, etag: &str) -> Self {
        Self { header: Some(format!("If-None-Match: {etag}")), ..self }
    }

    /// POST requests with messages that are unique across all runs; `run` is the number of the run.
    pub(crate) fn posting(run: u32) -> Self {
        let mut script = tempfile::NamedTempFile::new().unwrap();
        script.write_all(include_bytes!("post.lua")).unwrap();
        Self { connections: CONNECTIONS, threads: "1", script: Some((script, run)), header: None }
    }

    /// Runs `wrk` and returns the number of responses and the elapsed time.
    pub(crate) fn rate(&self, url: &str) -> (u64, Duration) {
        let mut wrk = Command::new("wrk");
        wrk.args(["-c", &self.connections.to_string(), "-t", self.threads, "-d", &format!("{SECONDS}s")]);
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
        let output = wrk.output().unwrap();
        let report = String::from_utf8_lossy(&output.stdout);
        // wrk reports statuses of 400 and above.
        assert!(
            output.status.success() && !report.contains("Non-2xx") && !report.contains("Socket errors"),
            "{report}"
        );
        let rate = report.lines().find_map(|line| line.strip_prefix("Requests/sec:")).unwrap();
        let rate: f64 = rate.trim().parse().unwrap();
        ((rate * SECONDS as f64) as u64, Duration::from_secs(SECONDS))
    }
}
