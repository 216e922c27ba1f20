//! WatchedGateway requests, by path, query or headers: each is refused with a reason or answered correctly.

use std::io::Write;

use serde_json::Value;

use crate::support::resource_watch::{WatchedGateway, answer, is_clear};

/// GET routes with their numeric parameters.
const NUMBERS: [(&str, &[&str]); 4] = [
    ("/feed", &["limit", "before"]),
    ("/changes", &["after", "before", "limit"]),
    ("/quarantine", &["before", "limit"]),
    ("/objects", &["uri"]),
];

/// 2^63 and 2^64 with their neighbours, and values that are not numbers.
const VALUES: [&str; 20] = [
    "0",
    "-1",
    "+1",
    "1.0",
    "1e3",
    "0x10",
    " 1",
    "",
    "NaN",
    "inf",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999999999",
    "%00",
    "%ff",
    "%D9%A1",
    "1,2",
    "1;drop",
];

#[tokio::test]
async fn numbers_out_of_range_are_handled() {
    let gateway = WatchedGateway::start("");
    let message = r#"{"object":"http://h/1","items":[{"uri":"http://h/1","change":"ADD"}]}"#;
    gateway.post("content-change", "application/json", message).await;
    let mut requests: Vec<String> = Vec::new();
    for (path, parameters) in NUMBERS {
        for parameter in parameters {
            requests.extend(VALUES.map(|value| format!("{path}?{parameter}={value}")));
            requests.push(format!("{path}?{parameter}=1&{parameter}=2"));
            requests.push(format!("{path}?{parameter}={}", "9".repeat(20_000)));
        }
    }
    for folder in ["/feed/archive", "/changes", "/quarantine"] {
        requests.extend(VALUES.map(|value| format!("{folder}/{value}")));
    }
    for path in requests {
        let (status, body) =
            gateway.raw(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes());
        let details: String = path.chars().take(100).collect();
        if (400..600).contains(&status) && !path.contains(' ') {
            let problem: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{details}: {status} {body}"));
            assert!(is_clear(status, &problem), "{details}: {status} {problem}");
        } else {
            // A space ends the request target, which is invalid HTTP, so the HTTP server itself responds.
            assert!(matches!(status, 200 | 307) || path.contains(' '), "{details}: {status}");
        }
    }
    gateway.still_serves("numbers");
}

#[tokio::test]
async fn path_traversal_is_refused() {
    let gateway = WatchedGateway::start("");
    let long = format!("/{}", "x".repeat(40_000));
    let many = "/..".repeat(10_000);
    for path in [
        "/feed/archive/..%2f",
        "/feed/archive/..%2f..%2f..%2fetc%2fpasswd",
        "/feed/archive/../../etc/passwd",
        "/feed/archive/%2e%2e/%2e%2e/journal.db",
        "/feed/archive/%00",
        "/feed/archive/1%00",
        "/feed/archive/1/",
        "/feed//archive/1",
        "/changes/%00",
        "/changes/%2e%2e%2fhealthz",
        "/changes/%ff%fe",
        "/hooks/..%2ffeed",
        "/hooks/%00",
        "/hooks/",
        "//",
        "//h/feed",
        "/%",
        "/%zz",
        "/feed%2farchive%2f1",
        "/feed;v=1",
        "/FEED",
        "/quarantine/1/retry/..",
        "/\u{7f}",
        &long,
        &many,
    ] {
        for method in ["GET", "HEAD", "POST", "DELETE", "BREW"] {
            let request = format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            let (status, body) = gateway.raw(request.as_bytes());
            let details: String = path.chars().take(60).collect();
            assert!(matches!(status, 400 | 404 | 405 | 414), "{method} {details}: {status} {body}");
            assert!(!body.contains("root:"), "{method} {details}");
            if status == 404 && method != "HEAD" {
                let problem: Value = serde_json::from_str(&body).unwrap();
                assert!(is_clear(status, &problem) || body.len() > 4000, "{method} {details}: {body}");
            }
        }
    }
    gateway.still_serves("path tricks");
}

#[tokio::test]
async fn oversized_and_malformed_headers_are_refused() {
    let gateway = WatchedGateway::start("");
    let before = gateway.most_memory();
    let fields = |count: usize, value: usize| -> String {
        (0..count).map(|n| format!("X-{n}: {}\r\n", "v".repeat(value))).collect()
    };
    let get = |fields: &str| {
        format!("GET /readyz HTTP/1.1\r\nHost: localhost\r\n{fields}Connection: close\r\n\r\n").into_bytes()
    };
    for (name, request, expected) in [
        ("fifty fields", get(&fields(50, 100)), &[200][..]),
        ("many fields", get(&fields(1_000, 1)), &[431]),
        ("a flood of fields", get(&fields(100_000, 100)), &[431, 0]),
        ("a large field", get(&fields(1, 10_000_000)), &[431, 0]),
        ("a long target", format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(10_000_000)).into_bytes(), &[414, 431, 0]),
        ("a NUL in a field", get("X: a\0b\r\n"), &[400]),
        ("a line without a colon", get("nonsense\r\n"), &[400]),
        ("two lengths", get("Content-Length: 1\r\nContent-Length: 2\r\n"), &[400]),
        ("a length that is no number", get("Content-Length: -1\r\n"), &[400]),
        ("a length without end", get("Content-Length: 99999999999999999999999\r\n"), &[400]),
        ("another version", b"GET / HTTP/9.9\r\n\r\n".to_vec(), &[400, 505, 0]),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), &[400, 505, 0]),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(), &[400]),
        ("NULs", vec![0; 100_000], &[400, 0]),
    ] {
        let (status, body) = gateway.raw(&request);
        assert!(expected.contains(&status), "{name}: {status} {body}");
        if status >= 400 {
            let problem: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{name}: {status} {body}"));
            assert!(is_clear(status, &problem), "{name}: {body}");
        }
        gateway.still_serves(name);
    }
    assert!(gateway.most_memory() - before < 32 << 20, "{}", gateway.most_memory() - before);
}

#[tokio::test]
async fn truncated_and_badly_framed_bodies_change_nothing() {
    let gateway = WatchedGateway::start("");
    let message = r#"{"object":"http://h/1","items":[{"uri":"http://h/1","change":"ADD"}]}"#;
    let head = "POST /hooks/content-change HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    for (name, rest, expected) in [
        ("a body cut short", format!("Content-Length: {}\r\n\r\n{message}", message.len() + 1), &[400, 0][..]),
        ("a chunk cut short", format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{message}", message.len()), &[400, 0]),
        (
            "a chunk of a wrong size",
            format!("Transfer-Encoding: chunked\r\n\r\nzz\r\n{message}\r\n0\r\n\r\n"),
            &[400, 0],
        ),
        ("a chunk without end", format!("Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{message}"), &[400, 0]),
        ("another transfer coding", format!("Transfer-Encoding: gzip\r\n\r\n{message}"), &[400, 0]),
    ] {
        let mut stream = gateway.connect();
        stream.write_all(format!("{head}{rest}").as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let (status, body) = answer(&mut stream);
        assert!(expected.contains(&status), "{name}: {status} {body}");
        gateway.still_serves(name);
    }
    assert!(gateway.changes().await.is_empty());
}

#[tokio::test]
async fn request_names_its_host_exactly_once() {
    let gateway = WatchedGateway::start("");
    let twice = "Host: localhost\r\nHost: localhost\r\n";
    for (version, hosts, expected) in [
        ("1.1", "Host: localhost\r\n", 200),
        ("1.1", "", 400),
        ("1.1", twice, 400),
        ("1.1", "Host: localhost\r\nHost: evil.example\r\n", 400),
        ("1.0", "Host: localhost\r\n", 200),
        ("1.0", "", 200),
        ("1.0", twice, 400),
    ] {
        for target in ["/changes", "/healthz", "http://localhost/changes"] {
            let request = format!("GET {target} HTTP/{version}\r\n{hosts}Connection: close\r\n\r\n");
            let (status, body) = gateway.raw(request.as_bytes());
            assert_eq!(status, expected, "{request} {body}");
        }
    }
    gateway.still_serves("requests without a host");
}
