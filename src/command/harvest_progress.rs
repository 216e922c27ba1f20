//! Progress of a run of a harvest on standard error: a bar or counters on a terminal, a line every ten seconds
//! elsewhere.

use std::{
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use reqwest::Method;
use serde_json::Value;
use tidings::model::SourceName;
use tokio::signal::unix::{SignalKind, signal};

use super::{
    Failure,
    gateway::{Gateway, GatewayError},
    say,
};

/// Interval at which the gateway is asked for the progress.
const POLL: Duration = Duration::from_millis(500);

/// Time between two lines if standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of failed requests in a row.
const MAX_FAILURES: u32 = 20;

const COUNTERS: &str = "{spinner} {msg}";
const BAR: &str = "{bar:30} {percent}% {msg}";

/// Exit code after Ctrl-C, as of a program that the signal ends.
const INTERRUPTED: i32 = 130;

/// Requests a run, which lists all records again if `is_full`, and waits until one has ended that had not ended before. Ctrl-C ends the wait and not the run.
pub(super) async fn run_and_wait(gateway: &Gateway, name: &SourceName, is_full: bool) -> Result<(), Failure> {
    let path = format!("/harvests/{name}");
    let failed = |error: GatewayError| Failure::Failed(error.reason);
    let before = ended_run(&gateway.request(Method::GET, &path, None).await.map_err(failed)?);
    gateway
        .request(Method::POST, &format!("{path}/run{}", if is_full { "?full=true" } else { "" }), None)
        .await
        .map_err(failed)?;
    // Before the line that announces it, so that no signal ends the program instead.
    let interrupted = signal(SignalKind::interrupt());
    let mut interrupted = interrupted.map_err(|error| Failure::Failed(format!("cannot handle Ctrl-C: {error}")))?;
    say(&format!("a run of the harvest of {name} is requested; Ctrl-C ends the wait and not the run"));
    let mut progress = RunProgress::new();
    let ended = tokio::select! {
        ended = wait(gateway, &path, before.as_ref(), &mut progress) => ended,
        _ = interrupted.recv() => {
            progress.finish();
            say(&format!("the run continues in the gateway; `tidings harvests history {name}` shows it"));
            std::process::exit(INTERRUPTED);
        }
    };
    progress.finish();
    let run = ended.map_err(failed)?;
    let (counts, reason) = (describe(&run, None), run["reason"].as_str().unwrap_or_default());
    match run["state"].as_str() {
        Some("completed") if reason.is_empty() => say(&format!("the run is complete: {counts}")),
        Some("completed") => say(&format!("the run is complete: {counts}; {reason}")),
        _ => return Err(Failure::Failed(format!("the run has failed: {counts}; {reason}"))),
    }
    Ok(())
}

/// Returns the identifier of the newest run if it has ended.
fn ended_run(harvest: &Value) -> Option<Value> {
    let newest = &harvest["runs"][0];
    (newest["state"] != "running" && !newest.is_null()).then(|| newest["id"].clone())
}

async fn wait(
    gateway: &Gateway,
    path: &str,
    before: Option<&Value>,
    progress: &mut RunProgress,
) -> Result<Value, GatewayError> {
    let mut failures = 0;
    loop {
        match gateway.request(Method::GET, path, None).await {
            Ok(harvest) => {
                failures = 0;
                let newest = &harvest["runs"][0];
                if ended_run(&harvest).is_some_and(|ended| Some(&ended) != before) {
                    return Ok(newest.clone());
                }
                let is_running = newest["state"] == "running";
                progress.update(&harvest, if is_running { newest } else { &Value::Null });
            }
            Err(error) if error.is_transient && failures < MAX_FAILURES => failures += 1,
            Err(error) => return Err(error),
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Describes the numbers of a run. `announced` is the number of records that the repository has announced.
fn describe(run: &Value, announced: Option<u64>) -> String {
    let number = |member: &str| run[member].as_u64().unwrap_or_default();
    let of = announced.map_or_else(String::new, |announced| format!(" of {announced}"));
    format!("{} pages, {}{of} records, {} changes", number("pages"), number("records"), number("changes"))
}

/// Progress display.
struct RunProgress {
    bar: Option<ProgressBar>,
    has_length: bool,
    last_line: Instant,
}

impl RunProgress {
    fn new() -> Self {
        let is_terminal = io::stderr().is_terminal();
        let bar =
            is_terminal.then(|| styled(ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()), COUNTERS));
        Self { bar, has_length: false, last_line: Instant::now() }
    }

    /// Shows the state of a harvest, and the numbers of its present run if there is one.
    fn update(&mut self, harvest: &Value, run: &Value) {
        let announced = harvest["announced"].as_u64();
        let state = harvest["state"].as_str().unwrap_or_default();
        let message = match run {
            Value::Null => format!("the harvest is {state}"),
            _ => describe(run, announced),
        };
        if let Some(bar) = &mut self.bar {
            if let Some(announced) = announced.filter(|_| !self.has_length) {
                *bar = styled(ProgressBar::with_draw_target(Some(announced), ProgressDrawTarget::stderr()), BAR);
                self.has_length = true;
            }
            bar.set_position(run["records"].as_u64().unwrap_or_default());
            bar.set_message(message);
            bar.tick();
        } else if self.last_line.elapsed() > LINE_INTERVAL {
            self.last_line = Instant::now();
            say(&message);
        }
    }

    /// Removes the bar.
    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{describe, ended_run};

    #[test]
    fn only_an_ended_run_counts() {
        let harvest = |state: &str| json!({ "runs": [{ "id": "1", "state": state }] });
        assert_eq!(ended_run(&harvest("running")), None);
        assert_eq!(ended_run(&harvest("failed")), Some(json!("1")));
        assert_eq!(ended_run(&json!({ "runs": [] })), None);
    }

    #[test]
    fn numbers_are_shown_with_the_announced_total() {
        let run = json!({ "pages": 3, "records": 300, "changes": 2 });
        assert_eq!(describe(&run, Some(1200)), "3 pages, 300 of 1200 records, 2 changes");
        assert_eq!(describe(&run, None), "3 pages, 300 records, 2 changes");
        assert_eq!(describe(&Value::Null, None), "0 pages, 0 records, 0 changes");
    }
}
