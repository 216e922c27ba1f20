//! Alert rules: each fires over the metrics of a real gateway while the thing is broken, and no other does.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{
    status::access_and_certificates::put_certificate,
    support::{
        breakable_proxy::{BreakableProxy, Link},
        gateway::{Gateway, PATIENCE, command, free_address},
        http_receiver::{Receiver, Reply},
        journal_fixture::configuration,
        promtool::Recording,
        scripted_repository::ScriptedRepository,
        subscription_fixture::{gateway, post},
        webhook_fixture::webhook,
    },
};

/// Waits until the metrics of a gateway have a line.
pub(super) async fn until(gateway: &Gateway, is_wanted: impl Fn(&str) -> bool) {
    let began = Instant::now();
    loop {
        let metrics = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap().text().await.unwrap();
        if metrics.lines().any(&is_wanted) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "timeout in\n{metrics}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until a gateway has a problem or not.
pub(super) async fn until_problem(gateway: &Gateway, code: &str, number: u64) {
    let start = format!("tidings_problems{{code=\"{code}\",");
    until(gateway, |line| line.starts_with(&start) && line.ends_with(&format!(" {number}"))).await;
}

#[test]
fn every_rule_has_a_test() {
    let rules = include_str!("../../../packaging/prometheus/alerts.yml");
    let tests = [include_str!("alerts.rs"), include_str!("alerts_of_storage.rs")].concat();
    let names: Vec<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() > 5, "{names:?}");
    for name in names {
        assert!(tests.contains(&format!("\"{name}")), "no test fires {name}");
    }
}

#[tokio::test]
async fn healthy_gateway_fires_nothing_and_a_dead_one_is_down() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::start(folder.path());
    post(&gateway, 1).await;
    until(&gateway, |line| line.starts_with("tidings_disk_free_bytes")).await;
    let mut recording = Recording::every(60);
    recording.scrape(&gateway, 120).await;
    recording.fires(&[]);
    gateway.kill();
    recording.fail(2);
    recording.fires(&[]);
    recording.fail(2);
    recording.fires(&["TidingsDown"]);
    let annotations = json!({
        "summary": "Tidings gateway cannot be scraped",
        "description": "The process has ended, the network is down, or the token of Prometheus is no longer valid."
    });
    let labels = json!({ "instance": "gateway", "job": "tidings", "severity": "critical" });
    recording.notifies("TidingsDown", &labels, &annotations);
    recording.miss(10);
    recording.fires(&["TidingsDown"]);
}

#[tokio::test]
async fn gateway_that_starts_again_and_again_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut recording = Recording::every(60);
    for _ in 0..5 {
        let gateway = Gateway::start(folder.path());
        recording.scrape(&gateway, 5).await;
    }
    recording.fires(&["TidingsRestarts"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn problems_are_reported_by_their_level() {
    let data = tempfile::tempdir().unwrap();
    let nowhere = free_address();
    let source = format!(
        "[sources.messages]\ntransport = \"stomp\"\ndialect = \"content-change\"\nurl = \"stomp://{nowhere}\"\n\
         destination = \"/queue/messages\"\n"
    );
    let gateway = gateway(data.path(), &source);
    until_problem(&gateway, "source-not-read", 1).await;
    assert_eq!(gateway.post("fedora3", "application/atom+xml", "no XML").await.0, 400);
    until_problem(&gateway, "quarantine", 1).await;
    let mut recording = Recording::every(60);
    recording.scrape(&gateway, 4).await;
    recording.fires(&[]);
    recording.scrape(&gateway, 4).await;
    recording.fires(&["TidingsProblem code=source-not-read"]);
    let labels = json!({
        "instance": "gateway", "job": "tidings", "severity": "critical", "code": "source-not-read", "level": "error"
    });
    let annotations = json!({
        "summary": "Tidings gateway does not work as a whole (source-not-read)",
        "description": "1 things have the problem source-not-read. `tidings status` names them and the remedy."
    });
    recording.notifies("TidingsProblem", &labels, &annotations);
    recording.scrape(&gateway, 10).await;
    recording.fires(&["TidingsProblem code=source-not-read", "TidingsWarning code=quarantine"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn harvest_that_is_not_complete_for_two_days_is_reported() {
    let repository = ScriptedRepository::start(3).await;
    let address: reqwest::Url = repository.url().parse().unwrap();
    let proxy = BreakableProxy::start(address.port().unwrap());
    let data = tempfile::tempdir().unwrap();
    let gateway = gateway(
        data.path(),
        &format!(
            "[sources.upm]\ntransport = \"oai-pmh\"\ndialect = \"oai-pmh\"\nurl = \"http://127.0.0.1:{}{}\"\n\
             every = \"1h\"\n",
            proxy.port,
            address.path()
        ),
    );
    let time = "tidings_harvest_last_complete_timestamp_seconds{source=\"upm\"}";
    until(&gateway, |line| line.starts_with(time) && !line.ends_with(" 0")).await;
    let mut recording = Recording::every(1800);
    recording.scrape(&gateway, 4).await;
    recording.fires(&[]);
    proxy.set_link(Link::Refusing);
    let run = format!("{}/harvests/upm/run", gateway.url);
    assert!(gateway.http.post(run).send().await.unwrap().status().is_success());
    until_problem(&gateway, "harvest-fails", 1).await;
    recording.scrape(&gateway, 2 * 47 - 4).await;
    recording.fires(&["TidingsProblem code=harvest-fails"]);
    recording.scrape(&gateway, 6).await;
    recording.fires(&["TidingsHarvestIncomplete source=upm", "TidingsProblem code=harvest-fails"]);
}

#[tokio::test]
async fn certificate_is_reported_before_and_after_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = configuration(folder.path(), &put_certificate(folder.path(), 2));
    let mut gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &file]);
    let insecure = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy();
    gateway.http = insecure.build().unwrap();
    until_problem(&gateway, "certificate-expires", 1).await;
    let mut recording = Recording::every(60);
    recording.scrape(&gateway, 20).await;
    recording.fires(&["TidingsCertificateEnds", "TidingsWarning code=certificate-expires"]);
    put_certificate(folder.path(), -1);
    gateway.signal("HUP");
    until_problem(&gateway, "certificate-expired", 1).await;
    recording.scrape(&gateway, 10).await;
    recording.fires(&["TidingsCertificateEnds", "TidingsProblem code=certificate-expired"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receiver_that_is_too_slow_is_reported() {
    let receiver = Receiver::start(|_, _| Reply::After(PATIENCE, Reply::of(200).into())).await;
    let data = tempfile::tempdir().unwrap();
    let gateway = gateway(data.path(), &webhook("index", &receiver.url(), "answer_seconds = 300"));
    let post_all = async |numbers: std::ops::Range<u64>| {
        for number in numbers.step_by(100) {
            futures_util::future::join_all((number..number + 100).map(|number| post(&gateway, number))).await;
        }
    };
    let mut recording = Recording::every(300);
    for round in 1..=3 {
        post_all((round - 1) * 1100..round * 1100).await;
        let lag = format!("tidings_subscription_lag_changes{{subscription=\"index\"}} {}", round * 1100);
        until(&gateway, |line| line == lag).await;
        recording.scrape(&gateway, 9).await;
    }
    recording.fires(&["TidingsSubscriptionLags subscription=index"]);
}

#[tokio::test]
async fn refused_readers_are_reported() {
    let data = tempfile::tempdir().unwrap();
    let mut serve = command();
    serve.env("TIDINGS_LIMITS__STREAMS", "1").stderr(std::process::Stdio::null());
    let gateway = Gateway::start_as(serve, data.path(), &["--listen", "127.0.0.1:0"]);
    let stream = format!("{}/stream", gateway.url);
    let open = gateway.http.get(&stream).send().await.unwrap();
    let mut recording = Recording::every(300);
    recording.scrape(&gateway, 4).await;
    recording.fires(&[]);
    for _ in 0..6 {
        assert_eq!(gateway.http.get(&stream).send().await.unwrap().status(), 503);
        recording.scrape(&gateway, 1).await;
    }
    drop(open);
    recording.fires(&["TidingsRefusesReaders limit=streams"]);
}
