//! Tokens, keys and signatures appear in no response, log line or journal file.

use std::{fs, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use reqwest::Method;

use crate::support::gateway_with_auth::{GatewayWithAuth, KEY, basic, message, signature};

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() { files(&path) } else { vec![(path.display().to_string(), fs::read(&path).unwrap())] }
        })
        .collect()
}

#[tokio::test]
async fn secrets_appear_in_no_response_log_or_file() {
    crate::support::needs_sqlite();
    let gateway = GatewayWithAuth::start();
    let mut answers = String::new();
    for (body, authorization) in [
        (message(1), "Bearer tdg_fedora3".to_owned()),
        ("no message".to_owned(), basic("me", "tdg_fedora3")),
        (message(2), "Bearer tdg_unknown".to_owned()),
        (message(2), "Bearer tdg_expired".to_owned()),
        (message(2), "Bearer tdg_reader".to_owned()),
    ] {
        let sent = gateway.post("fedora3", &body).header("authorization", authorization).send().await.unwrap();
        answers += &sent.text().await.unwrap();
    }
    let signed = gateway.post("fedora3", &message(3)).header("x-hub-signature-256", signature(KEY, message(3)));
    assert_eq!(signed.send().await.unwrap().status(), 201);
    for path in ["/sources", "/quarantine", "/quarantine/1", "/changes?after=0", "/feed", "/service"] {
        let read = gateway.request(&Method::GET, path).bearer_auth("tdg_admin").send().await.unwrap();
        assert_eq!(read.status(), 200, "{path}");
        answers += &read.text().await.unwrap();
    }
    let log = gateway.log();
    for expected in [
        "access denied",
        "method=POST path=\"/hooks/fedora3\" reason=an unknown token",
        "reason=the token expired has expired",
        "reason=the token reader lacks the scope publish:fedora3",
        "peer=127.0.0.1:",
    ] {
        assert!(log.contains(expected), "the log does not say {expected}:\n{log}");
    }
    assert!(answers.contains("no message") && log.contains("DEBUG"), "the test finds nothing to check");

    let stored = files(&gateway.folder.path().join("data"));
    assert!(stored.iter().any(|(_, bytes)| bytes.windows(6).any(|part| part == b"demo:1")), "nothing is stored");
    let encoded = STANDARD.encode("me:tdg_fedora3");
    let of_signature = signature(KEY, message(3));
    for secret in ["tdg_", KEY, &encoded, of_signature.trim_start_matches("sha256=")] {
        assert!(!log.contains(secret), "{secret} is in the log");
        assert!(!answers.contains(secret), "{secret} is in an answer");
        for (path, bytes) in &stored {
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{secret} is in {path}");
        }
    }
}
