//! TLS: the gateway serves its certificate, finishes active requests at shutdown, and loads a new certificate
//! at SIGHUP. An invalid certificate changes nothing.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Instant,
};

use rcgen::{CertificateParams, KeyPair, SerialNumber};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::support::{
    command_line::ended,
    event_stream::Stream,
    fedora3_messages::Call,
    gateway::{Gateway, PATIENCE, command},
    subscription_fixture::post,
};

/// Self-signed certificate and its key.
struct Certificate {
    certificate: rcgen::Certificate,
    key: String,
}

fn pair(serial: u64) -> Certificate {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.serial_number = Some(SerialNumber::from(serial));
    Certificate { certificate: params.self_signed(&key).unwrap(), key: key.serialize_pem() }
}

/// Gateway with a certificate.
struct TlsGateway {
    gateway: Gateway,
    folder: TempDir,
}

fn put(folder: &Path, certificate: &str, key: &str) -> PathBuf {
    let path = |name: &str| folder.join(name);
    fs::write(path("cert.pem"), certificate).unwrap();
    fs::write(path("key.pem"), key).unwrap();
    let (certificate, key, config) = (path("cert.pem"), path("key.pem"), path("tidings.toml"));
    fs::write(&config, format!("[server.tls]\ncertificate = {certificate:?}\nkey = {key:?}\n")).unwrap();
    config
}

impl TlsGateway {
    fn start(pair: &Certificate) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = put(folder.path(), &pair.certificate.pem(), &pair.key);
        let log = folder.path().join("log");
        let arguments = ["--config", config.to_str().unwrap()];
        let gateway = Gateway::start_logging(&folder.path().join("data"), &arguments, &log);
        assert!(gateway.url.starts_with("https://"), "{}", gateway.url);
        Self { gateway, folder }
    }

    fn put(&self, certificate: &str, key: &str) {
        put(self.folder.path(), certificate, key);
    }

    /// Returns the certificate that a new connection gets.
    async fn served_certificate(&self, trusted: &[&Certificate]) -> Vec<u8> {
        let trusted =
            trusted.iter().map(|pair| reqwest::Certificate::from_pem(pair.certificate.pem().as_bytes()).unwrap());
        let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().tls_certs_only(trusted).tls_info(true);
        let answer = client.build().unwrap().get(format!("{}/healthz", self.gateway.url)).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["strict-transport-security"], "max-age=31536000");
        let info = answer.extensions().get::<reqwest::tls::TlsInfo>().unwrap();
        info.peer_certificate().unwrap().to_vec()
    }

    /// Waits until the log contains a text that many times.
    fn until_logged(&self, text: &str, times: usize) {
        let began = Instant::now();
        loop {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
            if log.matches(text).count() == times {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "the log does not say {text:?} {times} times:\n{log}");
            std::thread::yield_now();
        }
    }
}

#[tokio::test]
async fn sighup_loads_a_valid_certificate_and_ignores_an_invalid_one() {
    let (first, second) = (pair(1), pair(2));
    let both = [&first, &second];
    let gateway = TlsGateway::start(&first);
    assert_eq!(gateway.served_certificate(&both).await, first.certificate.der().to_vec());

    gateway.put(&second.certificate.pem(), &second.key);
    assert_eq!(
        gateway.served_certificate(&both).await,
        first.certificate.der().to_vec(),
        "it was read without being text to"
    );
    gateway.gateway.signal("HUP");
    gateway.until_logged("certificate reloaded; new connections use it", 1);
    assert_eq!(gateway.served_certificate(&both).await, second.certificate.der().to_vec());

    for (times, (certificate, key)) in [
        (first.certificate.pem(), second.key.clone()),
        ("no certificate".to_owned(), first.key.clone()),
        (first.certificate.pem(), "no key".to_owned()),
        (String::new(), String::new()),
    ]
    .into_iter()
    .enumerate()
    {
        gateway.put(&certificate, &key);
        gateway.gateway.signal("HUP");
        gateway.until_logged("cannot reload the certificate; continuing with the previous one", times + 1);
        assert_eq!(gateway.served_certificate(&both).await, second.certificate.der().to_vec());
    }
    let log = fs::read_to_string(gateway.folder.path().join("log")).unwrap();
    assert!(!log.contains("PRIVATE KEY") && !log.contains("no key"), "{log}");
}

#[tokio::test]
async fn plain_text_client_is_disconnected_and_delays_nobody() {
    let first = pair(1);
    let gateway = TlsGateway::start(&first);
    let address = gateway.gateway.url.strip_prefix("https://").unwrap();
    let _silent = TcpStream::connect(address).unwrap();
    let mut plain = TcpStream::connect(address).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(plain, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request"), "{answer}");
    assert_eq!(gateway.served_certificate(&[&first]).await, first.certificate.der().to_vec());
}

#[tokio::test]
async fn shutdown_finishes_active_tls_requests() {
    let first = pair(1);
    let TlsGateway { mut gateway, folder } = TlsGateway::start(&first);
    let address = gateway.url.strip_prefix("https://").unwrap().to_owned();
    let mut roots = RootCertStore::empty();
    roots.add(first.certificate.der().clone()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let client = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let socket = TcpStream::connect(&address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut slow = StreamOwned::new(client, socket);

    let message = Call { number: 1, method: "purgeObject", pid: "demo:1", parameters: &[], returned: None }.message();
    let length = message.len();
    write!(
        slow,
        "POST /hooks/fedora3 HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
    )
    .unwrap();
    let mut interim = [0; 25];
    slow.read_exact(&mut interim).unwrap();
    assert!(interim.starts_with(b"HTTP/1.1 100"));
    gateway.signal("TERM");
    while TcpStream::connect(&address).is_ok() {
        std::thread::yield_now();
    }
    slow.write_all(message.as_bytes()).unwrap();
    let mut answer = [0; 12];
    slow.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 201");
    drop(slow);
    assert!(gateway.wait().success());
    assert_eq!(Gateway::start(&folder.path().join("data")).changes().await.len(), 1);
}

/// The body of a stream bypasses the code for other responses.
#[tokio::test]
async fn stream_over_tls_ends_cleanly() {
    let first = pair(1);
    let TlsGateway { mut gateway, folder: _folder } = TlsGateway::start(&first);
    let trusted = reqwest::Certificate::from_pem(first.certificate.pem().as_bytes()).unwrap();
    let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().tls_certs_only([trusted]);
    gateway.http = client.build().unwrap();
    let mut stream = Stream::open(&gateway, "?after=0", None).await;
    for number in 1..=3 {
        post(&gateway, number).await;
        assert_eq!(stream.numbers(1).await, [number]);
    }
    gateway.signal("TERM");
    assert!(stream.ends_well().await, "the stream was interrupted");
    assert!(gateway.wait().success());
}

#[test]
fn plain_http_at_the_tls_port_gets_a_response() {
    let tls = TlsGateway::start(&pair(1));
    let address = tls.gateway.url.strip_prefix("https://").unwrap().to_owned();
    let body = "x".repeat(20_000);
    for request in [
        "GET /feed HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
        format!("POST /hooks/x HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
    ] {
        let mut connection = TcpStream::connect(&address).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        connection.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        connection.read_to_string(&mut response).unwrap();
        let (head, text) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{response}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", text.len())), "{response}");
        assert!(text.contains("https"), "{response}");
    }
}

#[test]
fn invalid_certificate_is_refused_at_startup() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (pair(1), pair(2));
    for (certificate, key, text) in [
        (first.certificate.pem(), &second.key, "does not belong to the certificate in /"),
        (String::new(), &first.key, ".pem: the file contains none in PEM"),
        (first.certificate.pem(), &first.certificate.pem(), "cannot read the private key"),
    ] {
        let config = put(folder.path(), &certificate, key);
        let mut serve = command();
        serve.args(["serve", "--listen", "127.0.0.1:0", "--data", "none", "--config"]).arg(config);
        serve.current_dir(&folder).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (code, out, err) = ended(serve.spawn().unwrap());
        assert_eq!((code, out.as_str()), (1, ""));
        assert!(err.starts_with("tidings: server.tls: ") && err.contains(text), "{err}");
        assert!(!err.contains("PRIVATE KEY") && !folder.path().join("none").exists(), "{err}");
    }
}

#[tokio::test]
async fn sighup_without_tls_does_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let gateway = Gateway::start_logging(&folder.path().join("data"), &[], &log);
    gateway.signal("HUP");
    let began = Instant::now();
    while !fs::read_to_string(&log).unwrap().contains("the configuration has not changed") {
        assert!(began.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    assert_eq!(gateway.json("/healthz").await["status"], "ok");
}
