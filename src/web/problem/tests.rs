//! Tests of problem documents.

use std::{io, time::Duration};

use axum::{body::to_bytes, response::IntoResponse};
use serde_json::{Value, json};

use super::{Problem, ProblemCode};

#[test]
fn documented_codes_match_codes() {
    let page = include_str!("../../../docs/problems.md");
    let documented: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let rows: Vec<String> = ProblemCode::ALL
        .iter()
        .map(|code| format!("| `{}` | {} | {} |", code.code(), code.status().as_u16(), code.title()))
        .collect();
    assert_eq!(documented.len(), rows.len(), "docs/problems.md lists a different number of codes");
    for (documented, row) in documented.into_iter().zip(&rows) {
        assert!(documented.starts_with(row), "docs/problems.md says\n{documented}\nand the code says\n{row}");
    }
}

#[tokio::test]
async fn response_contains_detail_and_no_cause() {
    let problem = Problem::new(ProblemCode::Unavailable, "The journal is full; try again.")
        .at("/quarantine/7")
        .with("quarantine", 7)
        .with("status", 200)
        .retry_after(Duration::from_millis(1_200))
        .because(io::Error::other("disk /dev/secret"));
    let response = problem.into_response();
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["content-type"], Problem::MEDIA_TYPE);
    assert_eq!(response.headers()["retry-after"], "2");
    let body: Value = serde_json::from_slice(&to_bytes(response.into_body(), 4096).await.unwrap()).unwrap();
    let expected = json!({
        "type": "urn:tidings:problem:unavailable",
        "title": "Service Unavailable",
        "status": 503,
        "detail": "The journal is full; try again.",
        "instance": "/quarantine/7",
        "quarantine": 7,
    });
    assert_eq!(body, expected);
}
