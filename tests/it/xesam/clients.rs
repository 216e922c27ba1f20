//! Crawlers over libraries of others, and our own.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use crate::support::{
    gateway,
    xesam_fixture::{Crawler, NAME, Target, crawler_python, until, uri},
};

const CRAWLER_INTERFACE: &str = "org.freedesktop.xesam.pmh.Crawler";

fn support(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support").join(file)
}

/// Checks that a crawler gets everything, then new records, and ends at its invalidation.
async fn check(target: &Target, crawler: &Crawler) {
    crawler.until_records(25).await;
    assert_eq!(crawler.until_event("installed").await["incremental"], false);
    crawler.until_event("CleanUp").await;
    target.add(25).await;
    let records = crawler.until_record_of(&uri(25)).await;
    assert_eq!(
        records.iter().map(|record| record.uri.clone()).collect::<Vec<_>>(),
        (0..26).map(uri).collect::<Vec<_>>()
    );
    crawler.check_order();
    let id = target.crawlers().await[0]["id"].clone();
    let url = format!("{}/crawlers/{id}/invalidate", target.gateway.url);
    let sent = target.gateway.http.post(url).body(r#"{"reason":"test"}"#).send().await.unwrap();
    assert_eq!(sent.status(), 204);
    assert_eq!(crawler.until_event("Invalidate").await["text"], "test");
    target.until_crawlers(0).await;
}

async fn target_with_records() -> Target {
    let target = Target::start().await;
    for number in 0..25 {
        target.add(number).await;
    }
    target
}

#[tokio::test]
async fn dbus_fast_and_dbus_next_of_python_harvest() {
    for library in ["dbus_fast", "dbus_next"] {
        let target = target_with_records().await;
        let mut command = Command::new(crawler_python());
        command.arg(support("xesam_asyncio.py")).args([library, &target.bus.address(), NAME, "0"]);
        check(&target, &Crawler::run(command)).await;
    }
}

#[tokio::test]
async fn dbus_next_of_node_harvests() {
    let target = target_with_records().await;
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/node"));
    command.arg("dbus-next@0.10.2").arg(support("xesam_crawler.js")).args([&target.bus.address(), NAME, "0"]);
    check(&target, &Crawler::run(command)).await;
}

#[tokio::test]
async fn tidings_crawl_prints_records_as_json_lines() {
    let target = target_with_records().await;
    let crawl = |arguments: &[&str]| {
        let mut command = gateway::command();
        command.args(["crawl", "--bus", &target.bus.address()]).args(arguments);
        command
    };
    let crawler = Crawler::run(crawl(&["--batch", "3", "--field", "xesam:url"]));
    let lines = || crawler.events();
    let until_lines = async |count: usize| {
        until("the lines are printed", async || lines().len() >= count).await;
    };
    until_lines(26).await;
    assert_eq!(lines()[0], json!({ "cleanUp": true }));
    let first = &lines()[1];
    let url = format!("{}.png", uri(0));
    let expected = json!({
        "uri": uri(0), "time": first["time"], "state": "normal", "content": "xesam:Image", "source": "xesam:RemoteFile",
        "fields": [["xesam:url", url]]
    });
    assert_eq!(first, &expected);
    target.post(&json!({ "object": uri(0), "items": [{ "uri": uri(0), "change": "DELETE" }] })).await;
    until_lines(27).await;
    let last = lines()[26].clone();
    assert_eq!(last, json!({ "uri": uri(0), "time": last["time"], "state": "deleted" }));
    drop(crawler);
    target.until_crawlers(0).await;
    // It ends at a closed pipe, and at an error with its own status.
    let since = last["time"].as_str().unwrap();
    let mut command = Command::new("sh");
    let line =
        format!("{} crawl --bus {} --since {since} | head -1", env!("CARGO_BIN_EXE_tidings"), target.bus.address());
    command.args(["-c", &line]);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap());
    until("it is installed", async || {
        target.add(fastrand::usize(100..100_000)).await;
        done.is_finished()
    })
    .await;
    let done = done.await.unwrap();
    let printed: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(printed["time"].as_str() > Some(&since[..19]), "{printed}");
    let refused = crawl(&["--name", "org.example.Nobody1"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no target org.example.Nobody1"), "{refused:?}");
}

/// The draft: a call of `Invalidate`, by whomever, forces the crawler to emit `Invalidated`.
#[tokio::test]
async fn tidings_crawl_that_is_invalidated_says_so_on_the_bus() {
    let target = target_with_records().await;
    let mut crawl = gateway::command();
    crawl.args(["crawl", "--bus", &target.bus.address()]).stdout(Stdio::null()).stderr(Stdio::piped());
    let crawl = crawl.spawn().unwrap();
    until("it has all records", async || target.crawlers().await.iter().any(|crawler| crawler["records"] == 25)).await;
    let owner = target.crawlers().await[0]["owner"].as_str().unwrap().to_owned();
    let signal = format!("type='signal',sender='{owner}',member='Invalidated'");
    let mut monitor = Command::new("dbus-monitor");
    monitor.args(["--address", &target.bus.address(), &signal]).stdout(Stdio::piped());
    let mut monitor = monitor.spawn().unwrap();
    let (lines, output) = (Arc::<Mutex<Vec<String>>>::default(), monitor.stdout.take().unwrap());
    let adding = Arc::clone(&lines);
    std::thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).for_each(|line| adding.lock().unwrap().push(line));
    });
    let has_signal = |member: &str| lines.lock().unwrap().iter().any(|line| line.contains(member));
    // It monitors when it has lost the name that every connection gets.
    until("the signals are monitored", async || has_signal("member=NameLost")).await;
    let call = ["--user", "call", &owner, "/org/tidings/Crawler", CRAWLER_INTERFACE, "Invalidate", "s", "enough"];
    target.bus.run("busctl", &call);
    until("the signal is sent", async || has_signal("member=Invalidated")).await;
    let ended = tokio::task::spawn_blocking(move || crawl.wait_with_output().unwrap()).await.unwrap();
    monitor.kill().unwrap();
    monitor.wait().unwrap();
    let errors = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(1) && errors.contains("the crawler was invalidated: enough"), "{errors}");
    assert!(errors.contains("continue with --since "), "{errors}");
    target.until_crawlers(0).await;
}
