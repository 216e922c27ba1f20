//! Messages about wrong uses: each says what is wrong, and what to do.

use std::{fs, net::TcpListener};

use crate::support::{
    command_line::{CommandResult, command, ended},
    gateway::{Gateway, free_address},
    gateway_with_auth::GatewayWithAuth,
    journal_fixture::configuration,
};

fn run(arguments: &[&str]) -> CommandResult {
    ended(command(arguments).spawn().unwrap())
}

#[test]
fn settings_have_messages_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let webhook = "[subscriptions.p]\ndelivery = \"webhook\"\nurl = \"https://h.example/\"\n";
    let source = |lines: &str| format!("[sources.x]\n{lines}\n");
    for (lines, expected) in [
        (
            source("transport = \"oai-pmh\"\ndialect = \"oai-pmh\"\nurl = \"https://r.example/oai\"\nevery = 3600"),
            "sources.x.every in FILE is wrong: it is 3600; give a time with a unit, as in \"1h\"",
        ),
        ("[journal]\nkeep_days = -1\n".to_owned(), "it is -1; give a whole number from 0 to 36500"),
        (
            source("transport = \"http\"\ndialect = \"sfm\"\nbase_url = \"https://sfm.example.org\""),
            "sources.x.base_url in FILE is wrong: base_url is a setting of the dialect; move it to sources.x.settings",
        ),
        (
            source("transport = \"http\"\ndialect = \"sfm\""),
            "sources.x.settings in FILE is wrong for the dialect sfm: base_url is missing; add it, as in base_url = \"http",
        ),
        (
            webhook.to_owned(),
            "subscriptions.p.secrets in FILE is wrong: it is missing; give a list of one or two secrets",
        ),
        (
            source(
                "transport = \"stomp\"\ndialect = \"islandora\"\nurl = \"tcp://h:61616\"\ndestination = \"/queue/q\"",
            ),
            "61616 is OpenWire; ActiveMQ speaks STOMP at port 61613",
        ),
        (
            source("transport = \"amqp\"\ndialect = \"islandora\"\nurl = \"amqp://me:a/b@h/v\"\nqueue = \"q\""),
            "it is not a URL (percent-encode / : and @ in user and password: %2f, %3a, %40)",
        ),
    ] {
        let config = configuration(folder.path(), &lines);
        let (code, _, stderr) = run(&["check", "--config", &config]);
        let expected = expected.replace("FILE", &config);
        assert!(code == 2 && stderr.starts_with("tidings: line ") && stderr.contains(&expected), "{lines}: {stderr}");
    }
    for (address, expected) in [
        ("127.0.0.1:99999", "the port is a number from 1 to 65535"),
        ("8395", "give an IP address and a port, as in 127.0.0.1:8395"),
    ] {
        for name in ["serve", "check"] {
            let (code, _, stderr) = run(&[name, "--listen", address]);
            assert!(code == 2 && stderr.contains(expected), "{stderr}");
        }
    }
}

#[test]
fn certificates_have_messages_with_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = [1, 2].map(|_| rcgen::generate_simple_self_signed(["h.example".to_owned()]).unwrap());
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let garbage = "garbage".to_owned();
    for (chain, private, expected) in [
        (&garbage, one.signing_key.serialize_pem(), "cannot read the certificate CERT: the file contains none in PEM"),
        (&one.cert.pem(), garbage.clone(), "cannot read the private key KEY: the file contains none in PEM"),
        (
            &one.cert.pem(),
            other.signing_key.serialize_pem(),
            "the key in KEY does not belong to the certificate in CERT",
        ),
    ] {
        fs::write(&certificate, chain).unwrap();
        fs::write(&key, private).unwrap();
        // Relative paths begin at the working directory; messages have absolute ones.
        let config = configuration(folder.path(), "[server.tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n");
        let mut check = command(&["check", "--config", &config]);
        let (code, _, stderr) = ended(check.current_dir(folder.path().canonicalize().unwrap()).spawn().unwrap());
        let absolute = |path: &std::path::Path| path.canonicalize().unwrap().display().to_string();
        let expected = expected.replace("CERT", &absolute(&certificate)).replace("KEY", &absolute(&key));
        assert!(code == 1 && stderr.contains(&format!("tidings: server.tls: {expected}\n")), "{stderr}");
    }
}

#[test]
fn missing_journals_and_backups_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (empty, file) = (at("empty"), at("file"));
    fs::create_dir(&empty).unwrap();
    fs::write(&file, "no journal").unwrap();
    for (arguments, expected) in [
        (&["verify", "--data", &empty][..], format!("there is no journal at {empty}/journal.sqlite")),
        (
            &["restore", &file, "--data", &at("new")],
            format!("{file} is not a backup of Tidings; give the file that `tidings backup` wrote"),
        ),
        (&["restore", &at("none"), "--data", &at("new")], format!("there is no backup at {}", at("none"))),
    ] {
        let (code, stdout, stderr) = run(arguments);
        assert_eq!((code, stdout, stderr), (1, String::new(), format!("tidings: {expected}\n")));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing was made");
}

#[test]
fn failed_start_makes_no_journal() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, data) = (taken.local_addr().unwrap().to_string(), folder.path().join("data"));
    let mut serve = command(&["serve", "--listen", &address, "--data", data.to_str().unwrap()]);
    let (code, _, stderr) = ended(serve.current_dir(&folder).spawn().unwrap());
    assert!(code == 1 && stderr.contains(&format!("cannot listen on {address}: ")), "{stderr}");
    assert!(!data.exists());
}

#[test]
fn commands_say_where_the_token_belongs() {
    let guarded = GatewayWithAuth::start();
    let url = guarded.gateway.url.as_str();
    let message = guarded.folder.path().join("message.xml");
    fs::write(&message, "<a/>").unwrap();
    for (arguments, scope) in [
        (&["replay", message.to_str().unwrap(), "--to", "fedora3", "--gateway", url][..], "publish:fedora3"),
        (&["tail", "--gateway", url], "read"),
        (&["subscriptions", "list", "--gateway", url], "admin"),
    ] {
        let (code, _, stderr) = run(arguments);
        let expected = format!("this request needs a token; give a token with the scope {scope} in TIDINGS_TOKEN");
        assert!(code == 1 && stderr.contains(&expected), "{stderr}");
    }
}

#[test]
fn replay_to_a_dead_gateway_ends_at_the_first_file() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["1.xml", "2.xml", "3.xml"] {
        fs::write(folder.path().join(name), "<a/>").unwrap();
    }
    let url = format!("http://{}/hooks/fedora3", free_address());
    let (code, stdout, stderr) = run(&["replay", folder.path().to_str().unwrap(), "--to", &url, "--retries", "1"]);
    assert_eq!((code, stdout.as_str()), (1, "posted 1: 0 accepted, 0 duplicate, 0 unchanged, 0 refused, 1 failed\n"));
    assert!(stderr.ends_with("(2 tries)\ntidings: stopped; 2 of 3 files were not posted\n"), "{stderr}");
}

#[test]
fn replay_posts_to_a_source_of_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(&folder.path().join("data"));
    let message = folder.path().join("message.json");
    fs::write(&message, r#"{ "object": "http://h.example/1", "items": [] }"#).unwrap();
    let (_, stdout, stderr) =
        run(&["replay", message.to_str().unwrap(), "--to", "content-change", "--gateway", &gateway.url]);
    assert!(stdout.starts_with("posted 1: ") && stdout.contains(" 0 failed\n"), "{stdout}{stderr}");
    let (code, _, stderr) = run(&["replay", message.to_str().unwrap(), "--to", "ftp://h/"]);
    assert!(code == 2 && stderr.contains("or the name of a source"), "{stderr}");
}

/// The only token that grants reading has ended.
#[test]
fn expired_token_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let lines = format!(
        "[access.tokens.ops]\nsha256 = \"{}\"\nscopes = [\"admin\"]\nexpires = \"2026-01-01T00:00:00Z\"\n",
        "0".repeat(64)
    );
    let config = configuration(folder.path(), &lines);
    let log = folder.path().join("log");
    let gateway = Gateway::start_logging(&folder.path().join("data"), &["--config", &config], &log);
    assert!(gateway.stop().success());
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.contains("the token ops has expired, and no other has the scope read"), "{log}");
}

/// A gateway whose certificate is that of a CA of its own.
#[test]
fn ca_of_a_gateway_can_be_given() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let files = [("cert.pem", made.cert.pem()), ("key.pem", made.signing_key.serialize_pem())].map(|(name, text)| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    });
    let [certificate, key] = &files;
    let lines = format!("[server.tls]\ncertificate = {certificate:?}\nkey = {key:?}\n");
    let config = configuration(folder.path(), &lines);
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    let (url, ca) = (gateway.url.as_str(), certificate.to_str().unwrap());
    for arguments in [
        &["health", "--gateway", url][..],
        &["tail", "--gateway", url, "--once", "--after", "0"],
        &["nodes", "--gateway", url],
        &["status", "--gateway", url],
    ] {
        let (code, _, stderr) = run(arguments);
        assert!(code != 0 && stderr.contains("certificate"), "{arguments:?}: {stderr}");
        let (code, _, stderr) = run(&[arguments, &["--ca", ca]].concat());
        assert_eq!(code, 0, "{arguments:?}: {stderr}");
        let (code, _, stderr) = run(&[arguments, &["--ca", "/none.pem"]].concat());
        assert!(code == 2 && stderr.contains("cannot read the CA certificate /none.pem"), "{arguments:?}: {stderr}");
    }
}

/// OpenSSL makes such a certificate unless it is told otherwise.
#[test]
fn certificate_of_a_ca_serves_no_gateway_although_it_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let mut parameters = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let [certificate, key_file] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    fs::write(&certificate, parameters.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(&key_file, key.serialize_pem()).unwrap();
    let lines = format!("[server.tls]\ncertificate = {certificate:?}\nkey = {key_file:?}\n");
    let config = configuration(folder.path(), &lines);
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    let (code, _, stderr) = run(&["status", "--gateway", &gateway.url, "--ca", certificate.to_str().unwrap()]);
    assert!(code == 2 && stderr.contains("a self-signed one needs basicConstraints=CA:FALSE"), "{code}: {stderr}");
}

#[test]
fn commands_that_talk_to_a_gateway_have_the_same_options() {
    for name in [
        &["tail"][..],
        &["replay"],
        &["status"],
        &["health"],
        &["nodes"],
        &["subscriptions", "list"],
        &["quarantine", "list"],
        &["harvests", "list"],
        &["files", "gc"],
        &["seed-registry"],
    ] {
        let (code, help, _) = run(&[name, &["--help"]].concat());
        assert_eq!(code, 0, "{name:?}");
        for option in ["--gateway <URL>", "--token <TOKEN>", "--ca <FILE>", "--config <FILE>", "--environment <FILE>"] {
            assert!(help.contains(option), "{name:?} has no {option}");
        }
    }
}
