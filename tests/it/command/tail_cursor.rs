//! `tidings tail --once --cursor`: each run prints the changes since the last one, whatever happened to that.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::Path,
    time::Instant,
};

use crate::support::{
    command_line::{CommandResult, command, ended},
    gateway::{Gateway, PATIENCE, free_address},
    gateway_with_auth::GatewayWithAuth,
    journal_fixture::configuration,
    printed_lines::printed_lines,
    subscription_fixture::post,
};

fn run(arguments: &[&str]) -> CommandResult {
    ended(command(&[&["tail"], arguments].concat()).spawn().unwrap())
}

/// Returns the numbers at the beginnings of lines.
fn numbers(lines: &str) -> Vec<u64> {
    lines.lines().map(|line| line.split("  ").next().unwrap().parse().unwrap()).collect()
}

/// Heartbeats are an hour apart, so a run that waits for one does not end within the time of the test.
fn slow_gateway(folder: &Path) -> Gateway {
    let config = configuration(folder, "[server]\nheartbeat_seconds = 3600\n");
    Gateway::start_with(&folder.join("data"), &["--config", &config])
}

#[tokio::test]
async fn once_ends_at_the_head() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = slow_gateway(folder.path());
    let at = ["--gateway", gateway.url.as_str(), "--once", "--after", "0"];
    assert_eq!(run(&at), (0, String::new(), String::new()), "an empty journal has no changes");
    for number in 1..=3 {
        post(&gateway, number).await;
    }
    let (code, lines, stderr) = run(&at);
    assert_eq!((code, numbers(&lines), stderr.as_str()), (0, vec![1, 2, 3], ""));
    // The last changes are none that the filter selects.
    let (code, lines, _) = run(&[&at[..], &["--filter", "object=http://h.example/objects/1"]].concat());
    assert_eq!((code, numbers(&lines)), (0, vec![1]));
    // The URL of the stream is accepted as well, and its query is a filter.
    let stream = format!("{}/stream?object=http://h.example/objects/2", gateway.url);
    let (code, lines, _) = run(&[&stream, "--once", "--after", "0"]);
    assert_eq!((code, numbers(&lines)), (0, vec![2]));
    let (code, lines, stderr) = run(&["--gateway", &gateway.url, "--once", "--after", "4"]);
    assert!(code == 1 && lines.is_empty() && stderr.starts_with("tidings: 410 Gone"), "{stderr}");
}

#[tokio::test]
async fn each_run_continues_at_the_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = slow_gateway(folder.path());
    post(&gateway, 1).await;
    let cursor = folder.path().join("cursor");
    let run = |arguments: &[&str]| {
        let cursor = cursor.to_str().unwrap();
        run(&[&["--gateway", &gateway.url, "--once", "--cursor", cursor][..], arguments].concat())
    };
    // The first run starts with the next change, and makes the file.
    assert_eq!(run(&[]), (0, String::new(), String::new()));
    assert!(fs::read_to_string(&cursor).unwrap().starts_with("{\"after\":1,\"journal\":\""));
    for number in 2..=4 {
        post(&gateway, number).await;
    }
    // Changes that the filter leaves out are behind the cursor, too. The file counts before --after.
    let (code, lines, stderr) = run(&["--after", "0", "--filter", "object=http://h.example/objects/3"]);
    assert_eq!((code, numbers(&lines), stderr.as_str()), (0, vec![3], ""));
    assert_eq!(run(&[]), (0, String::new(), String::new()));
    fs::remove_file(&cursor).unwrap();
    assert_eq!(numbers(&run(&["--after", "2"]).1), [3, 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_run_repeats_changes_and_loses_none() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(&folder.path().join("data"));
    let (cursor, printed) = (folder.path().join("cursor"), folder.path().join("printed"));
    let start = || {
        let mut tail = command(&["tail", &gateway.url, "--after", "0", "--cursor", cursor.to_str().unwrap()]);
        let out = File::options().create(true).append(true).open(&printed).unwrap();
        tail.stdout(out).spawn().unwrap()
    };
    let seen = || printed_lines(&printed).iter().map(|line| numbers(line)[0]).collect::<BTreeSet<_>>();
    for round in 0..6_u32 {
        let mut tail = start();
        for number in 1..=5 {
            post(&gateway, u64::from(round * 5 + number)).await;
        }
        let (began, wanted) = (Instant::now(), round * 5 + 2);
        while seen().len() < wanted as usize {
            assert!(began.elapsed() < PATIENCE, "{:?}", seen());
            tokio::task::yield_now().await;
        }
        tail.kill().unwrap();
        tail.wait().unwrap();
    }
    let (code, lines, _) = run(&["--gateway", &gateway.url, "--once", "--cursor", cursor.to_str().unwrap()]);
    assert_eq!(code, 0);
    let all: BTreeSet<_> = seen().into_iter().chain(numbers(&lines)).collect();
    assert_eq!(all, (1..=30).collect());
    assert!(fs::read_to_string(&cursor).unwrap().starts_with("{\"after\":30,"));
}

#[tokio::test]
async fn unusable_cursors_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [here, there] = ["here", "there"].map(|name| Gateway::start(&folder.path().join(name)));
    let cursor = folder.path().join("cursor");
    let cursor = cursor.to_str().unwrap();
    let at = |gateway: &Gateway| run(&["--gateway", &gateway.url, "--once", "--cursor", cursor]);
    assert_eq!(at(&here).0, 0);
    let kept = fs::read_to_string(cursor).unwrap();
    let (code, lines, stderr) = at(&there);
    assert!(code == 1 && lines.is_empty() && stderr.contains("belongs to the journal"), "{stderr}");
    assert_eq!(fs::read_to_string(cursor).unwrap(), kept);
    fs::write(cursor, "{\"after\":").unwrap();
    let (code, _, stderr) = at(&here);
    assert!(code == 1 && stderr.contains(&format!("{cursor} is not a cursor of `tidings tail`")), "{stderr}");
    let nowhere = format!("{cursor}.d/cursor");
    let (code, _, stderr) = run(&["--gateway", &here.url, "--once", "--cursor", &nowhere]);
    assert!(code == 1 && stderr.contains(&format!("cannot store the cursor {nowhere}: ")), "{stderr}");
    let (code, _, stderr) = run(&["--gateway", &here.url, "--once"]);
    assert!(code == 2 && stderr.contains("--after") && stderr.contains("--cursor"), "{stderr}");
}

#[tokio::test]
async fn once_gives_up() {
    let dead = format!("http://{}", free_address());
    let (code, lines, stderr) = run(&["--gateway", &dead, "--once", "--after", "0"]);
    assert!(code == 1 && lines.is_empty() && stderr.ends_with("gave up after 6 attempts\n"), "{stderr}");
    // A refusal is not repeated.
    let guarded = GatewayWithAuth::start();
    let (code, _, stderr) = run(&["--gateway", &guarded.gateway.url, "--once", "--after", "0"]);
    assert!(code == 1 && stderr.starts_with("tidings: 401 Unauthorized") && !stderr.contains("retrying"), "{stderr}");
}
