//! Every route, with every kind of wrong and right credentials; signatures; and that no secret ever
//! comes out again.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::Stdio,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;
use tempfile::TempDir;
use tidings::{
    router::routes,
    web::{Route, Rule, Secret},
};

use crate::{
    fedora3::Call,
    gateway::{Gateway, PATIENCE, command},
    the_command_line_keeps_its_promises::{Ran, ended},
};

/// The tokens: what each is called, and what it may do. `expired` could do everything.
const TOKENS: [(&str, &str); 6] = [
    ("tdg_reader", "read"),
    ("tdg_fedora3", "publish:fedora3"),
    ("tdg_islandora", "publish:islandora"),
    ("tdg_publisher", "publish:*"),
    ("tdg_admin", "admin"),
    ("tdg_expired", "admin"),
];

/// The key of the source fedora3.
const KEY: &str = "5ecre7 5ecre7 5ecre7";

/// Which of the tokens a rule lets in, for the source fedora3.
fn let_in(rule: Rule) -> &'static [&'static str] {
    match rule {
        Rule::Open => &["tdg_reader", "tdg_fedora3", "tdg_islandora", "tdg_publisher", "tdg_admin", "tdg_expired"],
        Rule::Read => &["tdg_reader", "tdg_admin"],
        Rule::Admin => &["tdg_admin"],
        Rule::Publish => &["tdg_fedora3", "tdg_publisher", "tdg_admin"],
    }
}

/// The configuration with these tokens, and with the key if it is wanted.
fn configuration(folder: &Path, key: &str) -> String {
    let mut config = String::from(key);
    for (token, scope) in TOKENS {
        let digest = Secret::new(token).digest().to_hex();
        let expires = if token == "tdg_expired" { "2026-01-01T00:00:00Z" } else { "2099-01-01T00:00:00Z" };
        let name = token.trim_start_matches("tdg_");
        config += &format!(
            "[access.tokens.{name}]\nsha256 = \"{digest}\"\nscopes = [\"{scope}\"]\nexpires = \"{expires}\"\n"
        );
    }
    let path = folder.join("tidings.toml");
    fs::write(&path, config).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A gateway whose log and data are in the folder.
struct Guarded {
    gateway: Gateway,
    folder: TempDir,
}

impl Guarded {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = configuration(folder.path(), &format!("[sources.fedora3.signature]\nsecret = \"{KEY}\"\n"));
        let log = folder.path().join("log");
        let gateway = Gateway::start_logging(&folder.path().join("data"), &["--config", &config], &log);
        Self { gateway, folder }
    }

    fn request(&self, method: &Method, path: &str) -> RequestBuilder {
        let request = self.gateway.http.request(method.clone(), format!("{}{path}", self.gateway.url));
        request.header("content-type", "application/atom+xml")
    }

    fn post(&self, source: &str, body: &str) -> RequestBuilder {
        self.request(&Method::POST, &format!("/hooks/{source}")).body(body.to_owned())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

fn basic(user: &str, token: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{token}")))
}

/// An address of the route: its parameters name something that need not be there.
fn address(route: &Route) -> String {
    route.path.replace("{source}", "fedora3").replace("{page}", "1").replace("{id}", "7")
}

fn message(number: u64) -> String {
    let pid = format!("demo:{number}");
    Call { number, method: "purgeObject", pid: &pid, parameters: &[], returned: None }.message()
}

/// The status, and the document, which must be a problem of that code if it is a refusal.
async fn told(answer: Response) -> (u16, String) {
    let status = answer.status().as_u16();
    let challenge = answer.headers().get("www-authenticate").map(|value| value.to_str().unwrap().to_owned());
    let expected = r#"Bearer realm="tidings", Basic realm="tidings""#;
    assert_eq!(challenge.as_deref(), (status == 401).then_some(expected));
    let body = answer.text().await.unwrap();
    if let Some(code) = match status {
        401 => Some("unauthorized"),
        403 => Some("forbidden"),
        _ => None,
    } {
        let problem: Value = serde_json::from_str(&body).unwrap_or_default();
        if !body.is_empty() {
            assert_eq!(problem["type"], format!("urn:tidings:problem:{code}"));
        }
    }
    (status, body)
}

#[test]
fn what_is_open_is_open_on_purpose() {
    let of = |rule: Rule| -> Vec<String> {
        let routes = routes();
        routes
            .list()
            .filter(|route| route.rule == rule)
            .map(|route| format!("{} {}", route.method, route.path))
            .collect()
    };
    assert_eq!(of(Rule::Open), ["GET /healthz", "GET /readyz"]);
    assert_eq!(of(Rule::Publish), ["POST /hooks/{source}"]);
    let changing = |route: &String| !route.starts_with("GET ");
    assert_eq!(of(Rule::Read).into_iter().filter(changing).collect::<Vec<_>>(), [""; 0], "a reader changes nothing");
}

#[tokio::test]
async fn every_route_asks_for_the_scope_of_its_rule() {
    let guarded = Guarded::start();
    let routes = routes();
    assert!(routes.list().count() >= 14);
    for route in routes.list() {
        let send = async |authorization: Option<&str>| {
            let mut request = guarded.request(&route.method, &address(route)).body(message(1));
            if let Some(authorization) = authorization {
                request = request.header("authorization", authorization);
            }
            told(request.send().await.unwrap()).await
        };
        let is_open = route.rule == Rule::Open;
        for wrong in [
            None,
            Some("Bearer tdg_unknown"),
            Some("Bearer tdg_expired"),
            Some("Bearer "),
            Some("Bearer tdg_admin2"),
            Some("Bearer tdg_admi"),
            Some("Token tdg_admin"),
            Some("tdg_admin"),
            Some("Digest username=\"tdg_admin\""),
            Some("Basic tdg_admin"),
            // The token as the user's name, and without a colon.
            Some(&basic("tdg_admin", "")),
            Some(&format!("Basic {}", STANDARD.encode("tdg_admin"))),
            Some(&basic("me", "tdg_unknown")),
            Some(&basic("me", "tdg_expired")),
        ] {
            let (status, body) = send(wrong).await;
            assert_eq!(status == 401, !is_open, "{route:?} with {wrong:?}: {status} {body}");
            assert!(status == 401 || status == 200, "{route:?} with {wrong:?}: {status} {body}");
            assert!(!body.contains("tdg_"), "{body}");
        }
        for (token, _) in TOKENS.iter().filter(|(token, _)| *token != "tdg_expired") {
            for right in
                [format!("Bearer {token}"), format!("bearer {token}"), basic("", token), basic("any one", token)]
            {
                let (status, body) = send(Some(&right)).await;
                if let_in(route.rule).contains(token) {
                    assert!(![401, 403].contains(&status) && status < 500, "{route:?} with {right}: {status} {body}");
                } else {
                    assert_eq!(status, 403, "{route:?} with {right}: {body}");
                    let problem: Value = serde_json::from_str(&body).unwrap();
                    let needed = match route.rule {
                        Rule::Read => "read",
                        Rule::Admin => "admin",
                        Rule::Publish => "publish:fedora3",
                        Rule::Open => unreachable!(),
                    };
                    assert_eq!(problem["scope"], needed);
                    assert!(problem["detail"].as_str().unwrap().contains(needed), "{body}");
                }
            }
        }
        if route.method == Method::GET {
            let head = guarded.request(&Method::HEAD, &address(route)).send().await.unwrap();
            assert_eq!(head.status() == 401, !is_open, "HEAD {}", route.path);
        }
    }
    let nowhere = guarded.request(&Method::GET, "/nowhere").send().await.unwrap();
    assert_eq!(nowhere.status(), 404);
}

#[tokio::test]
async fn two_tokens_at_once_are_none() {
    let guarded = Guarded::start();
    let request = guarded.request(&Method::GET, "/changes").bearer_auth("tdg_reader").bearer_auth("tdg_admin");
    assert_eq!(request.send().await.unwrap().status(), 401);
}

fn signature(key: &str, body: &str) -> String {
    let mac = Hmac::<sha2::Sha256>::new_from_slice(key.as_bytes()).unwrap().chain_update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

#[tokio::test]
async fn a_hook_takes_the_signature_of_its_source_alone() {
    let guarded = Guarded::start();
    let (body, other) = (message(1), message(2));
    let right = signature(KEY, &body);
    let post = async |source: &str, signature: Option<&str>, authorization: Option<&str>| {
        let mut request = guarded.post(source, &body);
        if let Some(signature) = signature {
            request = request.header("x-hub-signature-256", signature);
        }
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        told(request.send().await.unwrap()).await.0
    };
    for (source, signature, status) in [
        ("fedora3", None, 401),
        ("fedora3", Some("sha256="), 401),
        ("fedora3", Some(right.trim_start_matches("sha256=")), 401),
        ("fedora3", Some(&*signature("another key altogether", &body)), 401),
        ("fedora3", Some(&*signature(KEY, &other)), 401),
        ("fedora3", Some(&*signature(KEY, "")), 401),
        ("fedora", Some(&right), 401),
        ("nowhere", Some(&right), 401),
        ("fedora3", Some(&right), 201),
        ("fedora3", Some(&right), 200),
    ] {
        assert_eq!(post(source, signature, None).await, status, "{source} {signature:?}");
    }
    for (authorization, status) in
        [("Bearer tdg_unknown", 200), ("Bearer tdg_reader", 200), ("Bearer tdg_expired", 200)]
    {
        assert_eq!(post("fedora3", Some(&right), Some(authorization)).await, status, "{authorization}");
    }
    // A token that fits is enough, whatever the signature.
    assert_eq!(post("fedora3", Some("sha256=00"), Some("Bearer tdg_fedora3")).await, 200);
    // On other routes a signature is nothing.
    let read = guarded.request(&Method::GET, "/changes").header("x-hub-signature-256", signature(KEY, ""));
    assert_eq!(told(read.send().await.unwrap()).await.0, 401);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_not_taken_to_be_hashed() {
    let guarded = Guarded::start();
    let body = "x".repeat((4 << 20) + 1);
    for signed in [signature(KEY, &body), signature("another key altogether", &body)] {
        let post = guarded.post("fedora3", &body).header("x-hub-signature-256", signed);
        assert_eq!(told(post.send().await.unwrap()).await.0, 413);
    }
}

#[test]
fn who_is_refused_is_heard_out_and_can_read_why() {
    let guarded = Guarded::start();
    let mut slow = TcpStream::connect(guarded.gateway.url.strip_prefix("http://").unwrap()).unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = 4 << 20;
    write!(slow, "POST /hooks/fedora3 HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n").unwrap();
    for _ in 0..length / 4096 {
        slow.write_all(&[b'x'; 4096]).unwrap();
    }
    let mut answer = [0; 12];
    slow.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
}

#[tokio::test]
async fn nobody_without_a_token_learns_which_sources_there_are() {
    let guarded = Guarded::start();
    let well_formed = signature("another key altogether", "x");
    for headers in [
        &[][..],
        &[("authorization", "Bearer tdg_x")],
        &[("x-hub-signature-256", "sha256=00")],
        &[("x-hub-signature-256", &well_formed)],
        &[("x-hub-signature-256", &well_formed), ("authorization", "Bearer tdg_x")],
    ] {
        let mut answers = Vec::new();
        for source in ["fedora3", "fedora", "nowhere"] {
            let post = headers.iter().fold(guarded.post(source, "x"), |post, (name, value)| post.header(*name, *value));
            answers.push(told(post.send().await.unwrap()).await);
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]) && answers[0].0 == 401, "{answers:?}");
    }
    let post = guarded.post("nowhere", "x").bearer_auth("tdg_fedora3");
    assert_eq!(told(post.send().await.unwrap()).await.0, 403);
    let post = guarded.post("nowhere", "x").bearer_auth("tdg_publisher");
    assert_eq!(told(post.send().await.unwrap()).await.0, 404);
}

#[tokio::test]
async fn what_needs_a_token_is_not_for_shared_caches() {
    let guarded = Guarded::start();
    let sent = guarded.post("fedora3", &message(1)).bearer_auth("tdg_fedora3").send().await.unwrap();
    let location = sent.headers()["location"].to_str().unwrap().to_owned();
    let open = Gateway::start(&guarded.folder.path().join("other"));
    assert_eq!(open.post("fedora3", "application/atom+xml", message(1)).await.0, 201);
    let id = open.changes().await[0]["id"].as_str().unwrap().to_owned();
    let id = id.rsplit(':').next().unwrap();
    let of_open = open.http.get(format!("{}/changes/{id}", open.url)).send().await.unwrap();
    let of_guarded = guarded.request(&Method::GET, &location).bearer_auth("tdg_reader").send().await.unwrap();
    let cache = |answer: &Response| answer.headers()["cache-control"].to_str().unwrap().to_owned();
    assert_eq!(cache(&of_open), "public, max-age=31536000, immutable");
    assert_eq!(cache(&of_guarded), "private, max-age=31536000, immutable");
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() { files(&path) } else { vec![(path.display().to_string(), fs::read(&path).unwrap())] }
        })
        .collect()
}

#[tokio::test]
async fn no_secret_comes_out_again() {
    let guarded = Guarded::start();
    let mut answers = String::new();
    for (body, authorization) in [
        (message(1), "Bearer tdg_fedora3".to_owned()),
        ("no message".to_owned(), basic("me", "tdg_fedora3")),
        (message(2), "Bearer tdg_unknown".to_owned()),
        (message(2), "Bearer tdg_expired".to_owned()),
        (message(2), "Bearer tdg_reader".to_owned()),
    ] {
        let sent = guarded.post("fedora3", &body).header("authorization", authorization).send().await.unwrap();
        answers += &sent.text().await.unwrap();
    }
    let signed = guarded.post("fedora3", &message(3)).header("x-hub-signature-256", signature(KEY, &message(3)));
    assert_eq!(signed.send().await.unwrap().status(), 201);
    for path in ["/sources", "/quarantine", "/quarantine/1", "/changes?after=0", "/feed", "/service"] {
        let read = guarded.request(&Method::GET, path).bearer_auth("tdg_admin").send().await.unwrap();
        assert_eq!(read.status(), 200, "{path}");
        answers += &read.text().await.unwrap();
    }
    let log = guarded.log();
    for told in [
        "access refused",
        "method=POST path=\"/hooks/fedora3\" reason=an unknown token",
        "reason=the token expired has expired",
        "reason=the token reader has not the scope publish:fedora3",
        "peer=127.0.0.1:",
    ] {
        assert!(log.contains(told), "the log does not say {told}:\n{log}");
    }
    assert!(answers.contains("no message") && log.contains("DEBUG"), "the test has lost sight of what it looks at");

    let stored = files(&guarded.folder.path().join("data"));
    assert!(stored.iter().any(|(_, bytes)| bytes.windows(6).any(|part| part == b"demo:1")), "nothing is stored");
    let encoded = STANDARD.encode("me:tdg_fedora3");
    let of_signature = signature(KEY, &message(3));
    for secret in ["tdg_", KEY, &encoded, of_signature.trim_start_matches("sha256=")] {
        assert!(!log.contains(secret), "{secret} is in the log");
        assert!(!answers.contains(secret), "{secret} is in an answer");
        for (path, bytes) in &stored {
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{secret} is in {path}");
        }
    }
}

#[tokio::test]
async fn an_address_for_all_is_refused_as_long_as_nobody_can_be_known() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let serve = ["serve", "--listen", "0.0.0.0:0", "--data", data];
    let mut refused = command();
    refused.args(serve).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (code, out, err): Ran = ended(refused.spawn().unwrap());
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.starts_with("tidings: server.listen is 0.0.0.0:0, which others can reach, and there is no"), "{err}");
    assert!(err.contains("--insecure") && err.contains("`tidings token`") && err.lines().count() == 1, "{err}");
    assert!(!Path::new(data).exists());

    let config = configuration(folder.path(), "");
    for arguments in [&["--insecure"][..], &["--config", &config]] {
        let log = folder.path().join("log");
        let listen = [&["--listen", "0.0.0.0:0"], arguments].concat();
        let gateway = Gateway::start_elsewhere(data.as_ref(), &listen, Some(&log));
        let url = gateway.url.replace("0.0.0.0", "127.0.0.1");
        let status = gateway.http.get(format!("{url}/changes")).send().await.unwrap().status();
        assert_eq!(status, if arguments[0] == "--insecure" { 200 } else { 401 });
        let log = fs::read_to_string(log).unwrap();
        assert_eq!(log.contains("there is no access control"), arguments[0] == "--insecure", "{log}");
        assert_eq!(log.contains("unencrypted"), arguments[0] != "--insecure", "{log}");
    }
}

#[tokio::test]
async fn a_token_that_is_made_works_when_what_is_printed_is_pasted() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut token = command();
        token.arg("token").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        ended(token.spawn().unwrap())
    };
    let (code, out, err) =
        run(&["--scope", "read", "--scope", "publish:islandora", "--name", "mine", "--expires", "30"]);
    assert_eq!(code, 0, "{err}");
    let (token, block) = out.split_once("\n\n").unwrap();
    assert!(token.starts_with("tdg_") && token.len() == 68, "{token}");
    assert!(block.starts_with("[access.tokens.mine]\nsha256 = \"") && !block.contains(token), "{block}");
    assert!(
        block.contains("scopes = [\"read\", \"publish:islandora\"]\nexpires = \"") && !err.contains(token),
        "{out}{err}"
    );
    let (_, second, _) = run(&[]);
    let (another, second) = second.split_once("\n\n").unwrap();
    assert!(another != token && second.contains("scopes = [\"read\"]\n") && !second.contains("expires"), "{second}");

    let config = folder.path().join("tidings.toml");
    fs::write(&config, format!("{block}{second}")).unwrap();
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", config.to_str().unwrap()]);
    let get = async |path: &str, token: &str| {
        gateway.http.get(format!("{}{path}", gateway.url)).bearer_auth(token).send().await.unwrap().status().as_u16()
    };
    assert_eq!(
        [get("/changes", token).await, get("/changes", another).await, get("/sources", token).await],
        [200, 200, 403]
    );

    for (arguments, told) in [
        (&["--scope", "write"][..], "a scope is publish:SOURCE, publish:*, read or admin"),
        (&["--scope", "publish:A"], "is not a name"),
        (&["--name", "A b"], "is not a name"),
        (&["--expires", "0"], "--expires"),
    ] {
        let (code, out, err) = run(arguments);
        assert_eq!((code, out.as_str()), (2, ""));
        assert!(err.contains(told), "{err}");
    }
}
