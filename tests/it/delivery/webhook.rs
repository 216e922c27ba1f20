//! Webhooks through the real program: request bodies, signatures and order.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};
use tokio_rustls::TlsAcceptor;

use crate::support::{
    gateway::{Gateway, PATIENCE},
    http_receiver::{Receiver, Reply},
    journal_fixture::configuration,
    subscription_fixture::{gateway, post, post_event},
    webhook_fixture::{NEXT_SECRET, SECRET, are_in_order, webhook},
};

#[tokio::test]
async fn webhook_posts_in_order_over_one_connection() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &webhook("index", &receiver.url(), ""));
    assert_eq!(gateway.ask("POST", "/subscriptions/index/pause", None).await.0, 200);
    for number in 1..=20 {
        post(&gateway, number).await;
    }
    assert_eq!(gateway.ask("POST", "/subscriptions/index/resume", None).await.0, 200);
    let status_json = gateway.until_at("index", 20).await;
    let requests = receiver.requests().clone();
    are_in_order(&requests, 20);
    assert_eq!((requests.len(), receiver.connections()), (20, 1));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    for (message, change) in requests.iter().zip(gateway.changes().await) {
        assert_eq!(message.json(), change);
        assert_eq!((message.method.as_str(), message.path.as_str()), ("POST", "/in"));
        assert_eq!(message.header("content-type"), "application/json");
        assert!(message.header("user-agent").starts_with("tidings/"));
        let signed: u64 = message.header("webhook-timestamp").parse().unwrap();
        assert!(now - signed < 60, "{signed} {now}");
    }
    assert_eq!((&status_json["delivered"], &status_json["definition"]["ordered"]), (&json!(20), &json!(true)));
}

#[tokio::test]
async fn webhook_signs_with_both_secrets_during_rotation() {
    let receiver = Receiver::start(|_, _| Reply::of(204)).await;
    let folder = tempfile::tempdir().unwrap();
    let one = |secrets: &str| webhook("index", &receiver.url(), "").replace(&format!("[\"{SECRET}\"]"), secrets);
    let file = folder.path().join("secret");
    fs::write(&file, format!("{NEXT_SECRET}\n")).unwrap();
    let in_file = format!("{{ file = \"{}\" }}", file.display());
    for (number, secrets, old, new) in [
        (1, format!("[\"{SECRET}\"]"), true, false),
        (2, format!("[\"{SECRET}\", {in_file}]"), true, true),
        (3, format!("[{in_file}]"), false, true),
    ] {
        let gateway = gateway(folder.path(), &one(&secrets));
        post(&gateway, number).await;
        gateway.until_at("index", number).await;
        let request = receiver.requests().last().unwrap().clone();
        assert_eq!((request.is_signed_with(SECRET), request.is_signed_with(NEXT_SECRET)), (old, new), "{secrets}");
        assert!(gateway.stop().success());
    }
}

#[tokio::test]
async fn webhook_has_the_media_type_and_headers_of_its_format() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let folder = tempfile::tempdir().unwrap();
    let of = |format: &str| {
        webhook(format, &format!("{}/{format}", receiver.url()), "").replace("\"json\"", &format!("\"{format}\""))
    };
    let gateway = gateway(folder.path(), &(of("atom") + &of("cloudevents") + &of("cloudevents-binary")));
    post(&gateway, 1).await;
    let requests = receiver.until(3).await;
    let to = |format: &str| requests.iter().find(|request| request.path.ends_with(&format!("/{format}"))).unwrap();
    assert_eq!(to("atom").header("content-type"), "application/atom+xml;type=feed");
    assert_eq!(to("cloudevents").header("content-type"), "application/cloudevents+json");
    assert_eq!(to("cloudevents").json()["specversion"], "1.0");
    let binary = to("cloudevents-binary");
    assert_eq!((binary.header("content-type"), binary.header("ce-specversion")), ("application/json", "1.0"));
    assert_eq!(binary.header("ce-id"), binary.header("webhook-id"));
    assert_eq!(binary.header("ce-subject"), "http://h.example/objects/1");
    assert!(requests.iter().all(|request| request.is_signed_with(SECRET)));
}

#[tokio::test]
async fn webhook_batches_waiting_changes() {
    // The first response is delayed until the other changes wait.
    let (others_are_here, are_here) = watch::channel(false);
    let receiver = Receiver::start(move |nth, _| match nth {
        0 => Reply::When(are_here.clone(), Box::new(Reply::of(503))),
        _ => Reply::of(200),
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(
        folder.path(),
        &webhook(
            "index",
            &receiver.url(),
            "max_batch = 10\n[subscriptions.index.filter]\nobjects = [\"http://h.example/objects/\"]",
        ),
    );
    post(&gateway, 1).await;
    receiver.until(1).await;
    for number in 2..=25 {
        post(&gateway, number).await;
        let other = json!({ "object": format!("http://other.example/{number}"),
            "items": [{ "uri": "http://other.example/item", "change": "ADD" }] });
        post_event(&gateway, &other).await;
    }
    others_are_here.send_replace(true);
    gateway.until_at("index", 49).await;
    let requests = receiver.requests().clone();
    let seqs = |body: Value| {
        body["changes"].as_array().unwrap().iter().map(|one| one["seq"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let sizes: Vec<_> = requests.iter().map(|request| seqs(request.json()).len()).collect();
    assert_eq!(sizes, [1, 10, 10, 5], "the first, alone, and then all with it");
    let delivered: Vec<u64> = requests[1..].iter().flat_map(|request| seqs(request.json())).collect();
    assert_eq!(delivered, [vec![1], (2..49).step_by(2).collect()].concat());
    let ids: BTreeSet<_> = requests.iter().map(|request| request.header("webhook-id").to_owned()).collect();
    assert_eq!(ids.len(), 4);
    let first = &requests[1].json()["changes"];
    let (from, to) = (first[0]["id"].as_str().unwrap(), first[9]["id"].as_str().unwrap());
    assert_eq!(requests[1].header("webhook-id"), format!("{from}_{to}"));
    assert!(requests.iter().all(|request| request.is_signed_with(SECRET)));
    let status_json = gateway.until("index", "it is idle", |status_json| status_json["lag"]["changes"] == 0).await;
    assert_eq!(status_json["delivered"], 25);
}

#[tokio::test]
async fn webhook_splits_a_refused_batch() {
    let bad = |request: &crate::support::http_receiver::ReceivedRequest| {
        String::from_utf8_lossy(&request.body).contains("/objects/3\"")
    };
    let (others_are_here, are_here) = watch::channel(false);
    let receiver = Receiver::start(move |nth, request| match nth {
        0 => Reply::When(are_here.clone(), Box::new(Reply::of(500))),
        _ if bad(request) => Reply::of(422),
        _ => Reply::of(200),
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let more = "max_batch = 5\nrefused_statuses = [422]";
    let gateway = gateway(folder.path(), &webhook("index", &receiver.url(), more));
    post(&gateway, 1).await;
    receiver.until(1).await;
    for number in 2..=7 {
        post(&gateway, number).await;
    }
    others_are_here.send_replace(true);
    let status_json = gateway.until_at("index", 7).await;
    assert_eq!((&status_json["deadLetters"], &status_json["delivered"]), (&json!(1), &json!(6)));
    let sizes: Vec<_> =
        receiver.requests().iter().map(|request| request.json()["changes"].as_array().unwrap().len()).collect();
    assert_eq!(sizes, [1, 5, 1, 1, 1, 1, 1, 2]);
    let (_, letters) = gateway.ask("GET", "/subscriptions/index/dead-letters", None).await;
    assert_eq!(letters["deadLetters"][0]["seq"], 3);
}

#[tokio::test]
async fn webhook_without_order_sends_concurrently_and_repeats_only_failures() {
    let (four_are_here, are_here) = watch::channel(false);
    let (three_have_landed, have_landed) = watch::channel(false);
    let is_refused = AtomicBool::new(false);
    // The first message is refused once, after the concurrent ones have arrived.
    let receiver = Receiver::start(move |_, request| match request.seq() {
        1 if !is_refused.swap(true, Ordering::SeqCst) => Reply::When(have_landed.clone(), Box::new(Reply::of(500))),
        2..=4 => Reply::When(are_here.clone(), Box::new(Reply::of(200))),
        _ => Reply::of(200),
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &webhook("index", &receiver.url(), "ordered = false\nwindow = 4"));
    assert_eq!(gateway.ask("POST", "/subscriptions/index/pause", None).await.0, 200);
    for number in 1..=12 {
        post(&gateway, number).await;
    }
    assert_eq!(gateway.ask("POST", "/subscriptions/index/resume", None).await.0, 200);
    // None of the four requests has been answered yet.
    receiver.until(4).await;
    four_are_here.send_replace(true);
    let began = Instant::now();
    let landed = async || {
        let (_, status_json) = gateway.ask("GET", "/subscriptions/index/attempts", None).await;
        status_json["attempts"].as_array().unwrap().len()
    };
    while landed().await < 3 {
        assert!(began.elapsed() < PATIENCE, "three attempts are not shown");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(receiver.requests().len(), 4, "the window includes messages that wait for the first one");
    three_have_landed.send_replace(true);
    gateway.until_at("index", 12).await;
    let requests = receiver.requests().clone();
    let count = |seq: u64| requests.iter().filter(|request| request.seq() == seq).count();
    // The messages 2, 3 and 4 had arrived when 1 was refused.
    let counts: Vec<_> = (1..=12).map(count).collect();
    assert_eq!(counts, [2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert!(requests.iter().all(|request| request.is_signed_with(SECRET)));
}

/// The receiver supports only HTTP/2 over TLS, with a certificate of a private CA.
#[tokio::test]
async fn webhook_over_tls_with_a_private_ca_uses_http_2() {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    fs::write(&ca, certificate.pem()).unwrap();
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let connections = Arc::new(AtomicUsize::new(0));
    let (taken, counted) = (Arc::clone(&requests), Arc::clone(&connections));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            counted.fetch_add(1, Ordering::SeqCst);
            let taken = Arc::clone(&taken);
            let answer = service_fn(move |request: Request<Incoming>| {
                let taken = Arc::clone(&taken);
                async move {
                    let version = request.version();
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let change: Value = serde_json::from_slice(&body).unwrap();
                    taken.lock().unwrap().push((version, change["seq"].as_u64().unwrap()));
                    Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::default()))
                }
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), answer));
        }
    });
    let url = format!("https://me:hush-hush-1@localhost:{port}/in?key=hush-hush-2");
    let trusting = webhook("trusting", &url, &format!("ca = \"{}\"", ca.display()));
    let config = configuration(folder.path(), &(trusting + &webhook("other", &url, "")));
    let log = folder.path().join("log");
    let gateway = Gateway::start_logging(folder.path(), &["--config", &config], &log);
    for number in 1..=5 {
        post(&gateway, number).await;
    }
    gateway.until_at("trusting", 5).await;
    let expected: Vec<_> = (1..=5).map(|seq| (hyper::Version::HTTP_2, seq)).collect();
    assert_eq!((requests.lock().unwrap().clone(), connections.load(Ordering::SeqCst)), (expected, 1));
    // A subscription without that CA certificate sends nothing.
    let other =
        gateway.until("other", "the failure is reported", |status_json| status_json["lastError"].is_object()).await;
    let reason = other["lastError"]["reason"].as_str().unwrap();
    assert!(reason.contains("certificate") && other["delivered"] == 0, "{reason}");
    // The log lines of HTTP/2 and TLS contain no secret.
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("TRACE") && log.contains("h2::"), "the log is not what it should be");
    for secret in ["hush-hush", "bWU6aHVzaC1odXNoLTE", &SECRET[6..]] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
}
