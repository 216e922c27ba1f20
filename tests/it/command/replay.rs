//! `tidings replay` against a hook that is slow, failing, busy or selective: it posts every file, in order, and
//! summarizes the results.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStderr, Command},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use tempfile::TempDir;
use tidings::web::{Problem, ProblemCode};
use tokio::{net::TcpListener, sync::Notify, task::spawn_blocking};

use crate::support::command_line::{CommandResult, command, ended};

/// Messages that the hook has received, in order: body and headers.
#[derive(Default)]
struct Hook {
    requests: Mutex<Vec<(String, HeaderMap)>>,
    let_go: Notify,
}

impl Hook {
    fn bodies(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|(body, _)| body.clone()).collect()
    }

    fn headers(&self, body: &str) -> HeaderMap {
        self.requests.lock().unwrap().iter().find(|(received, _)| received == body).unwrap().1.clone()
    }
}

/// Answers by the body of the message; a temporary failure succeeds at the second attempt.
async fn answer(State(hook): State<Arc<Hook>>, headers: HeaderMap, body: Bytes) -> Response {
    let body = String::from_utf8(body.to_vec()).unwrap();
    let tried_before = hook.bodies().contains(&body);
    hook.requests.lock().unwrap().push((body.clone(), headers));
    let response =
        |status: StatusCode, outcome: &str| (status, format!("{{\"outcome\": \"{outcome}\"}}")).into_response();
    let at_once = [("retry-after", "0")];
    match body.split(' ').next().unwrap() {
        "duplicate" => response(StatusCode::OK, "duplicate"),
        "unchanged" => response(StatusCode::OK, "unchanged"),
        "foreign" => (StatusCode::NO_CONTENT, "").into_response(),
        "refused" => {
            Problem::new(ProblemCode::UnprocessableMessage, "line 3, column 7: there is no date").into_response()
        }
        "moved" => (StatusCode::PERMANENT_REDIRECT, [("location", "/elsewhere")]).into_response(),
        "busy" if !tried_before => (StatusCode::SERVICE_UNAVAILABLE, at_once).into_response(),
        "hurried" if !tried_before => (StatusCode::TOO_MANY_REQUESTS, at_once).into_response(),
        "401" => Problem::new(ProblemCode::Unauthorized, "give a token").into_response(),
        "403" => StatusCode::FORBIDDEN.into_response(),
        "404" => StatusCode::NOT_FOUND.into_response(),
        "405" => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        "broken" => (StatusCode::INTERNAL_SERVER_ERROR, at_once, "no luck").into_response(),
        "held" => {
            hook.let_go.notified().await;
            response(StatusCode::CREATED, "accepted")
        }
        "busy-for-long" => (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "3600")]).into_response(),
        _ => response(StatusCode::CREATED, "accepted"),
    }
}

async fn hook() -> (Arc<Hook>, String) {
    let hook = Arc::new(Hook::default());
    let router = Router::new().route("/hooks/x", post(answer)).with_state(Arc::clone(&hook));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hooks/x", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, router).into_future());
    (hook, url)
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, body) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, body).unwrap();
    }
    folder
}

async fn replay(path: &Path, url: &str, more: &[&str]) -> CommandResult {
    let mut arguments = vec!["replay", path.to_str().unwrap(), "--to", url];
    arguments.extend(more);
    let child = command(&arguments).spawn().unwrap();
    spawn_blocking(|| ended(child)).await.unwrap()
}

#[tokio::test]
async fn replay_posts_every_file_in_order() {
    let (hook, url) = hook().await;
    let files = folder(&[
        ("1.xml", "accepted"),
        ("2.json", "busy"),
        ("3/1.jsonld", "hurried"),
        ("3/2.bin", "duplicate"),
        ("4.json", "unchanged"),
        ("4.json.headers", "Content-Type: application/ld+json\nX-One: of the file\n"),
        ("4.settings.json", "{}"),
        ("5.xml", "refused"),
        ("6.xml", "broken"),
        ("7.xml", "foreign"),
        ("8.xml", "moved"),
        ("tidings.toml", "secret"),
    ]);
    let path = files.path();
    let all = ["--retries", "2", "--header", "X-One: of all", "--header", "X-Two: of all"];
    let (code, out, err) = replay(path, &url, &all).await;
    assert_eq!(out, "posted 9: 4 accepted, 1 duplicate, 1 unchanged, 1 refused, 2 failed\n", "{err}");
    let expected = [
        "5.xml: refused: 422 Unprocessable Entity: line 3, column 7: there is no date",
        "6.xml: failed: 500 Internal Server Error: no luck (3 tries)",
        "8.xml: failed: the hook redirects (308 Permanent Redirect) to /elsewhere; post to that URL",
    ];
    let expected = expected.map(|line| format!("tidings: {}/{line}\n", path.display())).concat();
    let left_out = format!(
        "tidings: skipped 1 files without the extension of a message; the first is {}/tidings.toml\n",
        path.display()
    );
    assert_eq!(err, left_out + &expected + "tidings: not every file was accepted\n");
    assert_eq!(code, 1);
    let expected = [
        "accepted",
        "busy",
        "busy",
        "hurried",
        "hurried",
        "duplicate",
        "unchanged",
        "refused",
        "broken",
        "broken",
        "broken",
        "foreign",
        "moved",
    ];
    assert_eq!(hook.bodies(), expected);

    for (body, content_type, one) in [
        ("accepted", "application/atom+xml", "of all"),
        ("busy", "application/json", "of all"),
        ("hurried", "application/ld+json", "of all"),
        ("duplicate", "application/octet-stream", "of all"),
        ("unchanged", "application/ld+json", "of the file"),
    ] {
        let headers = hook.headers(body);
        let fields = ["content-type", "x-one", "x-two"].map(|name| headers[name].to_str().unwrap());
        assert_eq!(fields, [content_type, one, "of all"], "{body}");
        assert_eq!(headers.get_all("content-type").iter().count(), 1, "{body}");
    }
}

/// An error of the hook itself is printed once, and no further message is sent.
#[tokio::test]
async fn replay_ends_when_the_hook_refuses_all() {
    for status in ["401", "403", "404", "405", "moved"] {
        let (hook, url) = hook().await;
        let files = folder(&[("1.xml", "accepted"), ("2.xml", status), ("3.xml", "accepted"), ("4.xml", "accepted")]);
        let (code, out, err) = replay(files.path(), &url, &[]).await;
        assert_eq!(out, "posted 2: 1 accepted, 0 duplicate, 0 unchanged, 0 refused, 1 failed\n", "{err}");
        assert!(code == 1 && err.contains("2.xml: failed: "), "{err}");
        assert!(err.ends_with("tidings: stopped; 2 of 4 files were not posted\n"), "{err}");
        assert_eq!(hook.bodies().len(), 2);
    }
}

#[tokio::test]
async fn replay_success_exits_with_0() {
    let (_, url) = hook().await;
    let files = folder(&[("a.xml", "accepted 1"), ("b.xml", "accepted 2")]);
    let done = (0, "posted 2: 2 accepted, 0 duplicate, 0 unchanged, 0 refused, 0 failed\n".to_owned(), String::new());
    assert_eq!(replay(files.path(), &url, &[]).await, done);
}

#[tokio::test]
async fn replay_retries_an_unreachable_hook() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let files = folder(&[("a.xml", "accepted")]);
    let url = format!("http://me:secret@{closed}/hooks/x");
    let (code, out, err) = replay(files.path(), &url, &["--retries", "1"]).await;
    assert_eq!((code, out.as_str()), (1, "posted 1: 0 accepted, 0 duplicate, 0 unchanged, 0 refused, 1 failed\n"));
    assert!(err.contains("a.xml: failed: no connection: ") && err.contains("(2 tries)"), "{err}");
    assert!(!err.contains("secret"), "{err}");
}

#[tokio::test]
async fn replay_sends_the_token_and_never_prints_it() {
    let (hook, url) = hook().await;
    let files =
        folder(&[("a.xml", "accepted"), ("b.xml", "refused"), ("c.bin", "own"), ("c.headers", "Authorization: x")]);
    let path = files.path().to_str().unwrap().to_owned();
    let run = |arguments: &[&str], variable: &str| {
        let mut replay = command(&[&["replay", &path, "--to", &url], arguments].concat());
        replay.env("TIDINGS_TOKEN", variable);
        spawn_blocking(move || ended(replay.spawn().unwrap()))
    };
    for (arguments, variable, sent) in [
        (&["--token", "tdg_5ecre7"][..], "tdg_another", Some("Bearer tdg_5ecre7")),
        (&[], "tdg_5ecre7", Some("Bearer tdg_5ecre7")),
        (&["--header", "authorization: Basic YTpi"], "tdg_5ecre7", Some("Basic YTpi")),
        (&[], "", None),
    ] {
        hook.requests.lock().unwrap().clear();
        let (code, out, err) = run(arguments, variable).await.unwrap();
        assert_eq!((code, out.contains("5ecre7"), err.contains("5ecre7")), (1, false, false), "{out}{err}");
        let authorization =
            |body: &str| hook.headers(body).get("authorization").map(|v| v.to_str().unwrap().to_owned());
        assert_eq!(authorization("accepted").as_deref(), sent);
        assert_eq!(authorization("own").as_deref(), Some("x"));
    }
    let (code, out, err) = run(&["--token", "tdg_5ecre7\n"], "").await.unwrap();
    assert_eq!((code, out.as_str()), (2, ""));
    assert_eq!(err, "tidings: the token contains a line break or another control character\n");
    let (_, help, _) = ended(command(&["replay", "--help"]).env("TIDINGS_TOKEN", "tdg_5ecre7").spawn().unwrap());
    assert!(help.contains("TIDINGS_TOKEN") && !help.contains("5ecre7"), "{help}");
}

#[tokio::test]
async fn replay_times_out_on_a_silent_hook() {
    let (_, url) = hook().await;
    let files = folder(&[("a.xml", "held")]);
    let (code, _, err) = replay(files.path(), &url, &["--retries", "0", "--timeout", "1"]).await;
    assert_eq!(code, 1);
    assert!(err.contains("a.xml: failed: no response in time"), "{err}");
}

#[tokio::test]
async fn replay_posts_concurrently() {
    let (hook, url) = hook().await;
    let files = folder(&[("a.bin", "held 1"), ("b.bin", "held 2"), ("c.bin", "held 3"), ("d.bin", "held 4")]);
    let path = files.path().to_owned();
    let running = tokio::spawn(async move { replay(&path, &url, &["--concurrency", "3"]).await });
    until(|| hook.bodies().len() == 3).await;
    hook.let_go.notify_waiters();
    until(|| hook.bodies().len() == 4).await;
    hook.let_go.notify_one();
    let (code, out, err) = running.await.unwrap();
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out, "posted 4: 4 accepted, 0 duplicate, 0 unchanged, 0 refused, 0 failed\n");
}

/// Replay that is interrupted after a given number of requests and has announced that it stops.
struct Interrupted {
    child: Child,
    err: BufReader<ChildStderr>,
}

impl Interrupted {
    async fn after(requests: usize, hook: &Hook, files: &TempDir, url: &str) -> Self {
        let mut child = command(&["replay", files.path().to_str().unwrap(), "--to", url]).spawn().unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        until(|| hook.bodies().len() == requests).await;
        interrupt(&child);
        spawn_blocking(move || {
            let mut line = String::new();
            err.read_line(&mut line).unwrap();
            assert_eq!(
                line,
                "tidings: stopping after the messages in flight; press Ctrl-C again to stop immediately\n"
            );
            Self { child, err }
        })
        .await
        .unwrap()
    }

    async fn ended(mut self) -> CommandResult {
        spawn_blocking(move || {
            let mut stderr = String::new();
            self.err.read_to_string(&mut stderr).unwrap();
            let (code, out, _) = ended(self.child);
            (code, out, stderr)
        })
        .await
        .unwrap()
    }
}

fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

#[tokio::test]
async fn replay_ctrl_c_finishes_the_message_in_flight() {
    let (hook, url) = hook().await;
    let files = folder(&[("a.bin", "accepted"), ("b.bin", "held"), ("c.bin", "accepted too")]);
    let interrupted = Interrupted::after(2, &hook, &files, &url).await;
    hook.let_go.notify_one();
    let (code, out, err) = interrupted.ended().await;
    assert_eq!(out, "posted 2: 2 accepted, 0 duplicate, 0 unchanged, 0 refused, 0 failed\n");
    assert_eq!((code, err.as_str()), (1, "tidings: stopped; 1 of 3 files were not posted\n"));
    assert_eq!(hook.bodies().len(), 2);
}

#[tokio::test]
async fn replay_second_ctrl_c_does_not_wait() {
    let (hook, url) = hook().await;
    let files = folder(&[("a.bin", "accepted"), ("b.bin", "held"), ("c.bin", "accepted too")]);
    let interrupted = Interrupted::after(2, &hook, &files, &url).await;
    interrupt(&interrupted.child);
    let (code, out, err) = interrupted.ended().await;
    assert_eq!(out, "posted 1: 1 accepted, 0 duplicate, 0 unchanged, 0 refused, 0 failed\n");
    assert_eq!((code, err.as_str()), (1, "tidings: stopped; 2 of 3 files were not posted\n"));
}

#[tokio::test]
async fn replay_ctrl_c_ends_a_retry_pause() {
    let (hook, url) = hook().await;
    let files = folder(&[("a.bin", "busy-for-long")]);
    let (code, out, err) = Interrupted::after(1, &hook, &files, &url).await.ended().await;
    assert_eq!(out, "posted 1: 0 accepted, 0 duplicate, 0 unchanged, 0 refused, 1 failed\n");
    assert!(err.contains("a.bin: failed: 503 Service Unavailable (stopped before another try)"), "{err}");
    assert_eq!(code, 1);
}

/// Waits for a condition, at most 30 seconds.
async fn until(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "timeout");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
