//! `tidings top`: on a terminal until a key ends it, and once into a pipe.

use std::{path::Path, process::Command};

use crate::support::{
    command_line::{command, ended},
    gateway::{Gateway, free_address},
    subscription_fixture::{gateway, post},
};

/// Runs the command on a pseudo terminal: waits for a text, and sends keys. Returns the exit code and what it has written.
fn on_terminal(url: &str, expected: &str, keys: &str) -> (i32, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/terminal.py");
    let mut python = Command::new("python3");
    python.arg(script).args([expected, keys, env!("CARGO_BIN_EXE_tidings"), "top", "--gateway", url]);
    let output = python.output().unwrap();
    let written = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code().unwrap(), written + &String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_shows_a_gateway_on_a_terminal_until_a_key_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let running: Gateway = gateway(folder.path(), "");
    post(&running, 1).await;
    for (expected, keys) in [("SOURCES", "q"), ("FLOW", "\u{1b}[B\t\u{3}")] {
        let (code, written) = on_terminal(&running.url, expected, keys);
        assert_eq!(code, 0, "{written}");
        // The alternate screen, which leaves the terminal as it was.
        let (begin, end) = ("\u{1b}[?1049h", "\u{1b}[?1049l");
        assert!(written.find(begin).unwrap() < written.find(end).unwrap(), "{written}");
        assert!(written.contains("ready: 0 errors") && written.contains("content-change"), "{written}");
    }
    let (code, written) = on_terminal(&format!("http://{}", free_address()), "no answer since", "q");
    assert!(code == 0 && written.contains("TIDINGS_TOKEN"), "{written}");
}

#[tokio::test]
async fn top_prints_once_into_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let running = gateway(folder.path(), "");
    post(&running, 1).await;
    let (code, out, error) = ended(command(&["top", "--gateway", &running.url]).spawn().unwrap());
    assert_eq!(code, 0, "{error}");
    assert!(out.starts_with("ready: 0 errors, 0 warnings\n\nFLOW\n"), "{out}");
    for part in
        ["journal  changes 1 to 1", "\nSOURCES  ", "\ncontent-change      hook", "\nHARVESTS  ", "\nSUBSCRIPTIONS  "]
    {
        assert!(out.contains(part), "{part}: {out}");
    }
    let nobody = format!("http://{}", free_address());
    let (code, out, error) = ended(command(&["top", "--gateway", &nobody]).spawn().unwrap());
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(error.contains("Connection refused") && error.contains("`tidings serve`"), "{error}");
}
