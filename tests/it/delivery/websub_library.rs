//! Flask-WebSub, an independent WebSub subscriber: it discovers the hub, subscribes with a secret, checks every
//! signature, renews and ends its subscription.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
};

use rcgen::{CertificateParams, KeyPair};

use crate::support::{
    gateway::{Gateway, PATIENCE},
    python,
    subscription_fixture::event,
};

struct Subscriber {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Subscriber {
    fn start(feed: &str, authority: &Path) -> Self {
        let mut command = Command::new(python::environment("websub"));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/websub_subscriber.py");
        command.arg(script).arg(feed).env("REQUESTS_CA_BUNDLE", authority).env("NO_PROXY", "*");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines: receiver }
    }

    fn next_line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap()
    }

    fn send_command(&mut self, command: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{command}").unwrap();
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn library_discovers_the_hub_and_receives_every_entry() {
    library_receives("/feed", |number| number.to_string()).await;
}

#[tokio::test]
async fn library_discovers_the_hub_and_receives_every_notification_of_resourcesync() {
    library_receives("/resourcesync/notifications.xml", |number| {
        event(number)["items"][0]["uri"].as_str().unwrap().to_owned()
    })
    .await;
}

/// Subscribes to a topic with the library, which prints the text of each entry.
async fn library_receives(topic: &str, text: impl Fn(u64) -> String) {
    let folder = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let (authority, key) = (file("cert.pem", certificate.pem()), file("key.pem", key.serialize_pem()));
    let config = format!(
        "[server.tls]\ncertificate = {authority:?}\nkey = {key:?}\n[delivery]\nallow = [\"127.0.0.1\"]\n\
                 [resourcesync]\nnotifications = true\n"
    );
    let config = file("tidings.toml", config);
    let log = folder.path().join("log");
    let gateway = Gateway::start_logging(&folder.path().join("data"), &["--config", config.to_str().unwrap()], &log);
    let trusted = reqwest::Certificate::from_pem(certificate.pem().as_bytes()).unwrap();
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([trusted]).build().unwrap();
    let post = async |number: u64| {
        let hook = format!("{}/hooks/content-change", gateway.url);
        let posted = http.post(hook).header("content-type", "application/json").body(event(number).to_string());
        assert_eq!(posted.send().await.unwrap().status(), 201);
    };

    let topic = format!("{}{topic}", gateway.url);
    let mut subscriber = Subscriber::start(&topic, &authority);
    assert_eq!(subscriber.next_line(), format!("found {}/hub {topic}", gateway.url));
    assert_eq!(subscriber.next_line(), "verified subscribe");
    // The subscription is stored shortly after its verification, and includes every entry since the request.
    for number in 1..=5 {
        post(number).await;
        assert_eq!(subscriber.next_line(), format!("told {}", text(number)));
    }
    subscriber.send_command("renew");
    assert_eq!(subscriber.next_line(), "verified subscribe");
    for number in 6..=8 {
        post(number).await;
        assert_eq!(subscriber.next_line(), format!("told {}", text(number)));
    }
    subscriber.send_command("unsubscribe");
    assert_eq!(subscriber.next_line(), "verified unsubscribe");
    let told = fs::read_to_string(&log).unwrap();
    assert!(!told.contains("hub.secret"), "no secret comes out");
}
