//! Audits on a schedule, and their results in the status and the metrics.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::audit_at;
use crate::support::{
    crawled_repository::{CrawledRepository, Fedora3},
    fedora3_messages::BASE,
    gateway::{Gateway, PATIENCE},
    journal_fixture::configuration,
};

/// Waits until the status has the problem, or has it no more; returns it.
async fn until_problem(gateway: &Gateway, is_there: bool) -> Value {
    let began = Instant::now();
    loop {
        let status = gateway.json("/status").await;
        let problems = status["problems"].as_array().unwrap();
        let problem = problems.iter().find(|problem| problem["code"] == "audit-differs");
        if problem.is_some() == is_there {
            return problem.cloned().unwrap_or_default();
        }
        assert!(began.elapsed() < PATIENCE, "{status:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduled_audit_makes_a_problem_until_it_is_corrected() {
    let repository = CrawledRepository::start(Fedora3::with(3)).await;
    let folder = tempfile::tempdir().unwrap();
    let url = repository.url();
    let lines = format!(
        "[sources.fedora3]\naudit_every = \"7d\"\n[sources.fedora3.repository]\nurl = \"{url}\"\npublic_urls = [\"{BASE}\"]\n"
    );
    let config = configuration(folder.path(), &lines);
    let data = folder.path().join("data");
    let mut gateway = Gateway::start_with(&data, &["--config", &config]);
    let problem = until_problem(&gateway, true).await;
    let text = problem["text"].as_str().unwrap();
    let expected = "the source fedora3 differs from its repository: 10 missing, 0 different and 0 extra items at ";
    assert!(text.starts_with(expected), "{text}");
    gateway.until_metric("tidings_audit_differences{source=\"fedora3\",kind=\"missing\"} 10").await;

    // A sample does not replace the result, which survives a restart. The audit is not repeated.
    let (code, _, stderr) = audit_at(&gateway.url, "fedora3", &["--sample", "3"]).await;
    assert_eq!(code, 0, "{stderr}");
    gateway.kill();
    repository.take_requests();
    let gateway = Gateway::start_with(&data, &["--config", &config]);
    until_problem(&gateway, true).await;
    assert_eq!(repository.take_requests(), Vec::<String>::new());

    let (code, _, stderr) = audit_at(&gateway.url, "fedora3", &["--repair", "--yes"]).await;
    assert_eq!(code, 0, "{stderr}");
    until_problem(&gateway, false).await;
    gateway.until_metric("tidings_audit_differences{source=\"fedora3\",kind=\"missing\"} 0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schedule_needs_a_repository() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), "[sources.fedora3]\naudit_every = \"7d\"\n");
    let output = crate::support::gateway::command().args(["check", "--config", &config]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && stderr.contains("audit_every") && stderr.contains("cannot be asked"),
        "{stderr}"
    );
}
