//! `tidings audit`: compares the repository of a source with the registry. The gateway does the work; this command starts it,
//! shows its progress, and prints the differences.

use std::{
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};
use tidings::model::SourceName;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    Failure, Output,
    columns::{columns, text},
    gateway::{Gateway, GatewayArgs, GatewayError},
    print, runtime, say,
};

const EXAMPLES: &str = "\
Examples:
  tidings audit --source fedora3
  tidings audit --source fedora3 --sample 1000
  tidings audit --source fedora3 --format json
  tidings audit --source fedora3 --repair
  tidings audit --source fedora3 --repair --yes

The gateway requests the repository with the settings in [sources.NAME.repository]. Ctrl-C stops the audit; the same \
command continues it. It also continues after a restart of the gateway. --repair compares first, asks, and appends the \
missing changes to the journal, deletions included. The token needs the scope admin. docs/audit.md explains the rest.

Exit codes:
  0  the repository and the registry agree, or --repair has corrected the registry
  1  there are differences
  2  the audit could not finish, or wrong usage";

/// Interval at which the gateway is asked for the progress.
const POLL: Duration = Duration::from_millis(300);

/// Time between two lines of progress.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of failed requests in a row: the gateway may start again meanwhile.
const MAX_FAILURES: u32 = 100;

/// Exit code if the audit could not finish.
const UNFINISHED: u8 = 2;

/// Compare the repository of a source with the registry, and report or correct the differences.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Audit {
    /// Name of the source.
    #[arg(long, value_name = "NAME", value_parser = SourceName::parse)]
    source: SourceName,
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Compare this number of random objects of the registry. Missing objects need a complete audit.
    #[arg(long, value_name = "N", conflicts_with = "repair", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sample: Option<u32>,
    /// Append the changes that the registry lacks to the journal.
    #[arg(long)]
    repair: bool,
    /// Do not ask before the registry is corrected.
    #[arg(long, requires = "repair")]
    yes: bool,
    /// Greatest share of the registered objects that a correction may delete, in percent.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u8).range(0..=100))]
    max_deleted_percent: u8,
    /// Seconds after which a difference is looked at again, because the message about it may be on its way. Give more if
    /// messages need longer.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pause: u64,
    /// Begin anew instead of continuing an audit that was interrupted.
    #[arg(long)]
    restart: bool,
    /// Format of the result.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Format of the result.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people.
    Table,
    /// The report as JSON.
    Json,
}

/// Reason why the audit has no result.
enum Unfinished {
    Gateway(GatewayError),
    Failure(Failure),
    Interrupted,
}

impl From<GatewayError> for Unfinished {
    fn from(error: GatewayError) -> Self {
        Self::Gateway(error)
    }
}

impl From<Failure> for Unfinished {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl Audit {
    pub(super) fn run(self) -> Result<(), Failure> {
        if self.repair && !self.yes && !io::stdin().is_terminal() {
            let reason = "--repair asks before it corrects the registry, and there is no terminal; give --yes";
            return Err(Failure::Usage(reason.to_owned()));
        }
        let unfinished = |reason: String| {
            say(&reason);
            Failure::Printed(UNFINISHED)
        };
        let (url, gateway) = self.gateway.connect()?;
        let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
        let result = runtime.block_on(self.audit(&gateway));
        // Does not wait for a pending DNS lookup.
        runtime.shutdown_background();
        result.map_err(|error| match error {
            Unfinished::Gateway(error) => unfinished(format!("{url}: {}", error.reason)),
            Unfinished::Failure(failure) => failure,
            Unfinished::Interrupted => {
                unfinished("the audit is stopped; give the same command again to continue".to_owned())
            }
        })
    }

    fn path(&self) -> String {
        format!("/sources/{}/audit", self.source)
    }

    async fn audit(&self, gateway: &Gateway) -> Result<(), Unfinished> {
        let interrupts = signal(SignalKind::interrupt());
        let mut interrupts = interrupts.map_err(|error| Failure::Failed(format!("cannot handle Ctrl-C: {error}")))?;
        let newest = gateway.request(Method::GET, &self.path(), None).await?;
        let is_repairing = newest["audit"]["repair"] == true && !has_ended(&newest["audit"]);
        if !(self.repair && is_repairing && !self.restart) {
            let options = json!({ "sample": self.sample, "restart": self.restart, "pauseSeconds": self.pause });
            let report = self.run_audit(gateway, options, &mut interrupts).await?;
            let differences = number(&report["audit"], "missing")
                + number(&report["audit"], "different")
                + number(&report["audit"], "extra");
            if !self.repair || differences == 0 {
                self.print(&report)?;
                return result(&report["audit"], differences);
            }
            say(&summary(&report["audit"]));
        }
        if !self.yes && !confirm()? {
            return Err(Failure::Printed(1).into());
        }
        let options =
            json!({ "repair": true, "maxDeletedPercent": self.max_deleted_percent, "pauseSeconds": self.pause });
        let report = self.run_audit(gateway, options, &mut interrupts).await?;
        self.print(&report)?;
        let audit = &report["audit"];
        if let Some(reason) = audit["reason"].as_str() {
            say(&super::output::cell(reason));
            return Err(Failure::Printed(1).into());
        }
        result(audit, 0)
    }

    /// Starts an audit and waits for its end.
    async fn run_audit(
        &self,
        gateway: &Gateway,
        mut options: Value,
        interrupts: &mut Signal,
    ) -> Result<Value, Unfinished> {
        if let Some(options) = options.as_object_mut() {
            options.retain(|_, value| !value.is_null());
        }
        let path = self.path();
        let started = gateway.request(Method::POST, &path, Some(options)).await?;
        let id = started["audit"]["id"].clone();
        let mut shown = Instant::now();
        let mut failures = 0;
        loop {
            tokio::select! {
                () = tokio::time::sleep(POLL) => {}
                _ = interrupts.recv() => {
                    gateway.request(Method::DELETE, &path, None).await?;
                    return Err(Unfinished::Interrupted);
                }
            }
            let report = match gateway.request(Method::GET, &path, None).await {
                Ok(report) => report,
                Err(error) if error.is_transient && failures < MAX_FAILURES => {
                    failures += 1;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            failures = 0;
            let audit = &report["audit"];
            if audit["id"] != id {
                return Err(not_finished("another audit has replaced this one"));
            }
            match audit["state"].as_str() {
                Some("complete") => return Ok(report),
                Some("failed") => {
                    let reason = text(&audit["reason"]);
                    return Err(not_finished(&format!(
                        "the audit has failed: {reason}; give the same command again to continue"
                    )));
                }
                Some("stopped") => {
                    return Err(not_finished("the audit was stopped; give the same command again to continue"));
                }
                _ => {}
            }
            if shown.elapsed() > LINE_INTERVAL {
                shown = Instant::now();
                say(&format!("{} ({})", summary(audit), text(&audit["phase"])));
            }
        }
    }

    fn print(&self, report: &Value) -> Result<(), Failure> {
        match self.format {
            Format::Json => print(&Output::Json(&format!("{report:#}\n"))),
            Format::Table => print(&Output::Text(&table(&report["audit"]))),
        }
    }
}

fn has_ended(audit: &Value) -> bool {
    audit["state"] == "complete"
}

fn not_finished(reason: &str) -> Unfinished {
    say(reason);
    Failure::Printed(UNFINISHED).into()
}

/// Returns the exit code of an audit that has ended with this number of differences.
fn result(audit: &Value, differences: u64) -> Result<(), Unfinished> {
    match number(audit, "unanswered") {
        0 if differences == 0 => Ok(()),
        0 => Err(Failure::Printed(1).into()),
        unanswered => Err(not_finished(&format!(
            "the repository has no usable answer about {unanswered} objects; the log of the gateway has the reasons with the \
             filter tidings::audit=debug"
        ))),
    }
}

/// Asks whether to correct the registry.
fn confirm() -> Result<bool, Failure> {
    say("append the changes that the registry lacks to the journal? [y/N]");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(|error| Failure::Failed(format!("cannot ask: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn number(audit: &Value, member: &str) -> u64 {
    audit[member].as_u64().unwrap_or_default()
}

fn summary(audit: &Value) -> String {
    let number = |member| number(audit, member);
    let plural = |number: u64, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    let mut line = format!(
        "compared {}: {} missing, {} different, {} extra",
        plural(number("objects"), "object"),
        number("missing"),
        number("different"),
        number("extra")
    );
    if number("corrections") > 0 {
        line.push_str(&format!("; {} made", plural(number("corrections"), "change")));
    }
    if number("unlisted") > 0 {
        line.push_str(&format!(
            "; {} not judged, because the list may lack objects that exist",
            plural(number("unlisted"), "registered object")
        ));
    }
    if let Some(percent) = audit["atMostPercent"].as_f64() {
        line.push_str(&format!(
            "; with 95 % confidence, at most {percent:.2} % of {} differ",
            plural(number("registered"), "object")
        ));
    }
    line
}

/// Formats the differences as a table, with a summary.
fn table(audit: &Value) -> String {
    let differences = audit["differences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let members = |difference: &Value| {
        let members = difference["members"].as_array().map(Vec::as_slice).unwrap_or_default();
        members.iter().map(text).collect::<Vec<_>>().join(", ")
    };
    let row = |difference: &Value| [text(&difference["kind"]), text(&difference["item"]), members(difference)];
    let rows: Vec<_> = differences.iter().map(row).collect();
    let listed = if rows.is_empty() { String::new() } else { columns(&["KIND", "ITEM", "DIFFERS"], &rows) };
    let all = number(audit, "missing") + number(audit, "different") + number(audit, "extra");
    let more = if all > rows.len() as u64 { format!("and {} more\n", all - rows.len() as u64) } else { String::new() };
    format!("{listed}{more}{}\n", summary(audit))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::table;

    #[test]
    fn differences_are_a_table_with_a_summary() {
        let audit = json!({
            "objects": 3, "registered": 3, "missing": 1, "different": 2, "extra": 0, "atMostPercent": 0.2987,
            "differences": [
                { "kind": "missing", "object": "http://h/1", "item": "http://h/1" },
                { "kind": "different", "object": "http://h/2", "item": "http://h/2", "members": ["content.size", "state"] },
            ],
        });
        let expected = "\
KIND       ITEM        DIFFERS
missing    http://h/1
different  http://h/2  content.size, state
and 1 more
compared 3 objects: 1 missing, 2 different, 0 extra; with 95 % confidence, at most 0.30 % of 3 objects differ
";
        assert_eq!(table(&audit), expected);
        let audit = json!({ "objects": 1, "unlisted": 1, "corrections": 1 });
        let expected = "compared 1 object: 0 missing, 0 different, 0 extra; 1 change made; 1 registered object not judged, \
                        because the list may lack objects that exist\n";
        assert_eq!(table(&audit), expected);
    }
}
