//! Audits compare the repository of a source with the registry, and correct the registry on request.

mod corrections;
mod datasets;
mod fedora;
mod feeds;
mod harvests;
mod interruptions;
mod refusals;
mod removed;
mod samples;
mod schedule;

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::{
    command_line::{CommandResult, ended},
    crawl_fixture::CrawlFixture,
    gateway::command,
};

/// Returns `tidings audit` of a source.
fn audit_command(fixture: &CrawlFixture, source: &str, more: &[&str]) -> Command {
    let mut command = command();
    command.args(["audit", "--source", source, "--config"]).arg(&fixture.config).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for the end of a command. The fake repository runs on threads of this process, so a test must not block them.
async fn until_ended(child: Child) -> CommandResult {
    tokio::task::spawn_blocking(move || ended(child)).await.unwrap()
}

async fn audit(fixture: &CrawlFixture, source: &str, more: &[&str]) -> CommandResult {
    until_ended(audit_command(fixture, source, more).spawn().unwrap()).await
}

/// Runs `tidings audit` of a source of the gateway at a URL.
async fn audit_at(url: &str, source: &str, more: &[&str]) -> CommandResult {
    let mut command = command();
    command.args(["audit", "--gateway", url, "--source", source]).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    until_ended(command.spawn().unwrap()).await
}

fn report_of((code, stdout, stderr): CommandResult) -> (i32, Value) {
    let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
    (code, report["audit"].clone())
}

/// Runs an audit at the gateway with a URL, and returns its exit code and its report.
async fn report_at(url: &str, source: &str, more: &[&str]) -> (i32, Value) {
    report_of(audit_at(url, source, &[&["--format", "json"], more].concat()).await)
}

/// Runs an audit, and returns its exit code and its report.
async fn audit_report(fixture: &CrawlFixture, source: &str, more: &[&str]) -> (i32, Value) {
    report_of(audit(fixture, source, &[&["--format", "json"], more].concat()).await)
}

/// Returns the differences of a report, sorted: kind, end of the item's URI, and members.
fn differences(report: &Value) -> Vec<String> {
    let difference = |difference: &Value| {
        let item = difference["item"].as_str().unwrap();
        let start = item.find("/objects/").or_else(|| item.find("/rest")).unwrap();
        let members: Vec<_> =
            difference["members"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap()).collect();
        format!("{} {} {}", difference["kind"].as_str().unwrap(), &item[start..], members.join(","))
            .trim_end()
            .to_owned()
    };
    let mut all: Vec<_> = report["differences"].as_array().unwrap().iter().map(difference).collect();
    all.sort();
    all
}
