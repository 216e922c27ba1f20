//! `tidings subscriptions` against a running gateway.

use std::{fs, process::Command};

use serde_json::{Value, json};

use crate::support::{
    command_line::{CommandResult, ended},
    gateway::{Gateway, command},
    gateway_with_auth::configuration,
    http_receiver::{Receiver, Reply},
    subscription_fixture::post,
    webhook_fixture::{SECRET, webhook},
};

fn run(gateway: &str, arguments: &[&str]) -> CommandResult {
    let mut command = command();
    command.arg("subscriptions").args(arguments).args(["--gateway", gateway]);
    run_command(command)
}

fn run_command(mut command: Command) -> CommandResult {
    let piped = std::process::Stdio::piped;
    ended(command.stdin(std::process::Stdio::null()).stdout(piped()).stderr(piped()).spawn().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_are_created_listed_and_changed() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let folder = tempfile::tempdir().unwrap();
    let lines = "[delivery]\nallow = [\"127.0.0.0/8\"]\n".to_owned() + &webhook("config", &receiver.url(), "");
    let config = crate::support::journal_fixture::configuration(folder.path(), &lines);
    let mut serve = command();
    serve.env("TIDINGS_SECRET_KEY", SECRET);
    let gateway = Gateway::start_as(serve, folder.path(), &["--listen", "127.0.0.1:0", "--config", &config]);
    post(&gateway, 1).await;
    let url = format!("{}/", gateway.url);
    let on = |arguments: &[&str]| run(&url, arguments);

    let file = folder.path().join("definition.json");
    let definition = json!({ "delivery": "webhook", "format": "atom", "url": receiver.url(), "start": "beginning",
        "secrets": [{ "env": "TIDINGS_SECRET_KEY" }] });
    fs::write(&file, definition.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let (code, stdout, stderr) = on(&["add", "mine", file, "--set", "format=json", "--set", "filter.changes.0=ADD"]);
    assert_eq!((code, stderr.as_str()), (0, "tidings: the subscription mine is stored\n"), "{stdout}");
    assert!(
        stdout.contains("\n  filter              {\"changes\":[\"ADD\"]}\n") && !stdout.contains("MfKQ"),
        "{stdout}"
    );
    gateway.until_at("mine", 1).await;
    gateway.until_at("config", 1).await;

    let (code, stdout, stderr) = on(&["list"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let lines: Vec<Vec<&str>> = stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..4], ["NAME", "STATE", "DELIVERY", "TO"]);
    let to = receiver.url();
    assert_eq!(lines[1][..6], ["config", "running", "webhook", &to, "1", "0"]);
    assert_eq!(lines[2][..6], ["mine", "running", "webhook", &to, "1", "0"]);
    let (_, stdout, _) = on(&["attempts", "mine"]);
    assert!(stdout.contains("delivered  200") && stdout.contains("the answer is 200"), "{stdout}");
    let (_, stdout, _) = on(&["show", "mine", "--json"]);
    let stdout: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&stdout["name"], &stdout["definition"]["format"]), (&json!("mine"), &json!("json")));

    for (arguments, state, done) in [
        (&["pause", "mine"][..], "paused", "is paused"),
        (&["rewind", "mine", "--to", "beginning"], "paused", "is rewound"),
        (&["resume", "mine"], "", "is resumed"),
        (&["rewind", "mine", "--to", "1"], "", "is rewound"),
    ] {
        let (code, stdout, stderr) = on(arguments);
        let first = stderr.lines().next().unwrap();
        assert_eq!((code, first), (0, format!("tidings: the subscription mine {done}").as_str()), "{stdout}");
        assert!(stdout.contains(&format!("\nstate               {state}")), "{stdout}");
        if arguments[0] == "resume" {
            // The rewind after it would otherwise replace the position from which it resumes.
            receiver.until(3).await;
        }
    }
    receiver.until(4).await;
    for second in 2..=4 {
        post(&gateway, second).await;
    }
    gateway.until_at("mine", 4).await;
    for (to, moved) in [
        ("2", "3 changes will be examined again (the cursor is 1)"),
        ("4", "skipped 2 changes, which will not be delivered (the cursor is 3)"),
    ] {
        on(&["pause", "mine"]);
        let (code, _, stderr) = on(&["rewind", "mine", "--to", to]);
        assert!(code == 0 && stderr.contains(moved), "{stderr}");
    }
    let mut resume = command();
    resume.args(["subscriptions", "resume", "mine", "--config", &config]);
    resume.env("TIDINGS_SERVER__LISTEN", gateway.url.trim_start_matches("http://")).env("TIDINGS_SECRET_KEY", SECRET);
    let (code, _, stderr) = run_command(resume);
    let at = format!("tidings: using the gateway {}/\n", gateway.url);
    assert!(code == 0 && stderr.starts_with(&at), "{stderr}");
    assert_eq!(on(&["remove", "mine"]), (0, String::new(), "tidings: the subscription mine is deleted\n".to_owned()));

    // The command prints the gateway's own error text.
    for (arguments, expected) in [
        (&["show", "mine"][..], "404 Not Found: There is no subscription mine"),
        (&["remove", "config"], "409 Conflict: The subscription config is defined in the configuration file"),
        (&["rewind", "config", "--to", "99"], "422 Unprocessable Entity: There is no change 99"),
        (&["add", "new", "--set", "delivery=webhok"], "did you mean \"webhook\"?"),
        (&["add", "new", "--set", "delivery=webhook", "--set", "url=https://10.0.0.1/"], "which is private"),
    ] {
        let (code, stdout, stderr) = on(arguments);
        assert!(code == 1 && stdout.is_empty() && stderr.contains(expected), "{arguments:?}: {code} {stdout} {stderr}");
    }
    for arguments in [&["show"][..], &["show", "No"], &["add", "x"], &["add", "x", "--set", "hush"], &["rewind", "x"]] {
        let (code, _, stderr) = on(arguments);
        assert_eq!(code, 2, "{arguments:?}: {stderr}");
    }
    let (code, _, stderr) = on(&["add", "x", "/nowhere"]);
    assert!(code == 2 && stderr.contains("/nowhere: No such file"), "{stderr}");
    drop(gateway);
    let (code, _, stderr) = on(&["list"]);
    assert!(code == 1 && stderr.contains("no connection"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_token_comes_from_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), "");
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    for (token, code, expected) in [
        (None, 1, "give a token with the scope admin in TIDINGS_TOKEN"),
        (Some("tdg_reader"), 1, "403 Forbidden"),
        (Some("tdg_admin"), 0, ""),
    ] {
        let mut list = command();
        list.args(["subscriptions", "list", "--gateway", &gateway.url]);
        if let Some(token) = token {
            list.env("TIDINGS_TOKEN", token);
        }
        let (ended, stdout, stderr) = run_command(list);
        assert!(ended == code && stderr.contains(expected) && !stderr.contains("tdg_"), "{token:?}: {ended} {stderr}");
        assert_eq!(stdout == "there are no subscriptions\n", code == 0);
    }
}
