//! Commands that connect to a gateway: how they choose its URL, and how they connect.

use std::{fs, io::ErrorKind, net::TcpListener};

use crate::support::{
    command_line::{CommandResult, command, ended},
    gateway::{Gateway, free_address},
    journal_fixture::configuration,
};

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> CommandResult {
    ended(command(arguments).envs(environment.iter().copied()).spawn().unwrap())
}

#[test]
fn health_reports_the_gateway_status() {
    let folder = tempfile::tempdir().unwrap();
    let listen = free_address();
    let config = configuration(folder.path(), &format!("[server]\nlisten = \"{listen}\"\n"));
    let (code, stdout, stderr) = run(&["health", "--config", &config], &[]);
    assert!(
        code == 1 && stdout.is_empty() && stderr.contains(&format!("http://{listen}/healthz: no connection")),
        "{stderr}"
    );
    let gateway = Gateway::start_elsewhere(folder.path(), &["--config", &config], None);
    for (arguments, environment) in [
        (&["health", "--config", config.as_str()][..], &[][..]),
        (&["health", "--config", &config, "--ready"], &[]),
        (&["health", "--gateway", &gateway.url], &[]),
        (&["health"], &[("TIDINGS_GATEWAY", gateway.url.as_str())]),
        (&["health"], &[("TIDINGS_CONFIG", config.as_str())]),
        (&["health"], &[("TIDINGS_SERVER__LISTEN", listen.as_str())]),
    ] {
        let (code, stdout, stderr) = run(arguments, environment);
        assert!(code == 0 && stdout.contains("\"status\":") && stderr.is_empty(), "{arguments:?}: {stdout}{stderr}");
    }
    let nothing = format!("{}/nothing", gateway.url);
    let (code, _, stderr) = run(&["health", "--gateway", &nothing], &[]);
    assert!(code == 1 && stderr.contains("/nothing/healthz: 404 Not Found"), "{stderr}");
}

/// The certificate is for the public host name, and the request goes to an IP address.
#[test]
fn health_connects_to_a_local_tls_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["tidings.example.org".to_owned()]).unwrap();
    let files = [("cert.pem", made.cert.pem()), ("key.pem", made.signing_key.serialize_pem())].map(|(name, text)| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    });
    let listen = free_address();
    let [certificate, key] = &files;
    let lines =
        format!("[server]\nlisten = \"{listen}\"\n[server.tls]\ncertificate = {certificate:?}\nkey = {key:?}\n");
    let config = configuration(folder.path(), &lines);
    let gateway = Gateway::start_elsewhere(folder.path(), &["--config", &config], None);
    let (code, stdout, stderr) = run(&["health", "--config", &config], &[]);
    assert!(code == 0 && stdout.contains("\"status\":"), "{stderr}");
    // A gateway given by URL must have a certificate for that URL.
    let (code, _, stderr) = run(&["health", "--gateway", &gateway.url], &[]);
    assert!(code == 1 && stderr.contains("certificate"), "{stderr}");
    // Replay verifies the certificate too, and stops at the first failure.
    let messages = folder.path().join("messages");
    fs::create_dir(&messages).unwrap();
    for name in ["1.xml", "2.xml"] {
        fs::write(messages.join(name), "<a/>").unwrap();
    }
    let hook = format!("{}/hooks/fedora3", gateway.url);
    let (code, stdout, stderr) = run(&["replay", messages.to_str().unwrap(), "--to", &hook], &[]);
    assert_eq!(
        (code, stdout.as_str()),
        (1, "posted 1: 0 accepted, 0 duplicate, 0 unchanged, 0 refused, 1 failed\n"),
        "{stderr}"
    );
    assert!(stderr.contains("certificate") && !stderr.contains("tries"), "{stderr}");
}

/// A proxy would see the token, and would itself resolve the loopback address.
#[test]
fn local_gateway_is_reached_without_a_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let at = format!("http://{}", proxy.local_addr().unwrap());
    let environment = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"].map(|name| (name, at.as_str()));
    let message = folder.path().join("message.json");
    fs::write(&message, "{}").unwrap();
    let hook = format!("{}/hooks/content-change", gateway.url);
    for (arguments, code) in [
        (&["subscriptions", "list", "--gateway", gateway.url.as_str()][..], 0),
        (&["health", "--gateway", &gateway.url], 0),
        (&["replay", message.to_str().unwrap(), "--to", &hook], 1),
        (&["tail", &format!("{}/nothing", gateway.url)], 1),
    ] {
        let (ended, stdout, stderr) = run(arguments, &environment);
        assert_eq!(ended, code, "{arguments:?}: {stdout}{stderr}");
        assert_eq!(proxy.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "{arguments:?}");
    }
}

/// The gateway has its secrets in files and variables that a user of these commands does not have.
#[test]
fn commands_resolve_only_the_secrets_that_they_use() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let listen = free_address();
    let lines = format!(
        r#"
[server]
listen = "{listen}"

[sources.shop]
transport = "http"
dialect = "content-change"
signature = {{ secret = {{ env = "NOT_SET_SIGNATURE" }} }}

[sources.queue]
transport = "kafka"
dialect = "content-change"
brokers = "127.0.0.1:9"
topics = ["t"]
sasl = "plain"
user = "me"
password = {{ env = "NOT_SET_PASSWORD" }}

[subscriptions.index]
delivery = "webhook"
url = "https://index.example.org/"
secrets = [{{ env = "NOT_SET_WEBHOOK" }}]
"#
    );
    let filesets = "\n[filesets.tokens]\nzenodo = { env = \"NOT_SET_TOKEN\" }\n";
    let bucket = "\n[files.s3]\nendpoint = \"https://s3.example.org\"\nbucket = \"b\"\naccess_key = { env = \"NOT_SET_ID\" }\n\
                  secret_key = { env = \"NOT_SET_KEY\" }\n";
    let config = configuration(folder.path(), &format!("{lines}{filesets}{bucket}"));
    let data = folder.path().join("data");
    let gateway = Gateway::start_elsewhere(&data, &["--listen", &listen], None);
    let succeeds = |arguments: &[&str], config: &str| {
        let (code, _, stderr) = run(&[arguments, &["--config", config]].concat(), &[]);
        assert!(code == 0 && !stderr.contains("NOT_SET"), "{arguments:?}: {stderr}");
    };
    for arguments in [&["health", "--ready"][..], &["subscriptions", "list"], &["harvests", "list"], &["nodes"]] {
        succeeds(arguments, &config);
    }
    // Each of these needs the secrets of one part. They are resolved if that part is used, and not otherwise.
    let with_database = "\n[journal]\nstore = { env = \"NOT_SET_STORE\" }\n";
    let config = configuration(folder.path(), &format!("{lines}{filesets}{bucket}{with_database}"));
    succeeds(&["health"], &config);
    let files = data.join("files");
    fs::create_dir_all(&files).unwrap();
    succeeds(&["files", "verify", "--folder", files.to_str().unwrap()], &config);
    for (arguments, missing) in [
        (&["verify"][..], "NOT_SET_STORE"),
        (&["files", "verify"], "NOT_SET_ID"),
        (&["ingest", "10.1/2"], "NOT_SET_TOKEN"),
        (&["seed-registry", "--source", "shop", "--silent"], "NOT_SET_SIGNATURE"),
        (&["check"], "NOT_SET"),
    ] {
        let (code, _, stderr) = run(&[arguments, &["--config", &config]].concat(), &[]);
        assert!(code == 2 && stderr.contains(missing), "{arguments:?}: {stderr}");
    }
    let config = configuration(folder.path(), &format!("{lines}{filesets}{bucket}"));
    assert!(gateway.stop().success());
    let (data, backup) = (data.to_str().unwrap(), folder.path().join("backup.sqlite"));
    succeeds(&["verify", "--data", data], &config);
    succeeds(&["backup", backup.to_str().unwrap(), "--data", data], &config);
}
