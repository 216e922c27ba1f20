//! `tidings check` reads every file that `serve` needs, reports the same errors, and leaves the folder
//! unchanged.

use std::{fs, net::TcpListener, path::Path, process::Stdio};

use crate::support::{
    command_line::{CommandResult, command, ended},
    gateway::{Gateway, free_address},
    gateway_with_auth,
    journal_fixture::configuration,
};

/// Runs a command with a configuration and the folder `data` beside it.
fn run(name: &str, folder: &Path, config: &str) -> CommandResult {
    let data = folder.join("data");
    let mut command = command(&[name, "--config", config, "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    ended(command.stdin(Stdio::null()).spawn().unwrap())
}

/// Writes a self-signed certificate and its key as PEM files.
fn certificate(folder: &Path) -> [String; 2] {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    [("cert.pem", made.cert.pem()), ("key.pem", made.signing_key.serialize_pem())].map(|(name, text)| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    })
}

fn tls(certificate: &str, key: &str) -> String {
    format!("[server.tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n")
}

#[test]
fn check_refuses_the_certificates_that_serve_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = certificate(folder.path());
    let garbage = folder.path().join("garbage.pem");
    fs::write(&garbage, "-----BEGIN CERTIFICATE-----\n???\n").unwrap();
    let garbage = garbage.to_str().unwrap();
    for pair in
        [("/nowhere/cert.pem", key.as_str()), (garbage, &key), (&certificate, garbage), (&certificate, "/nowhere")]
    {
        let config = configuration(folder.path(), &tls(pair.0, pair.1));
        let (code, _, checked) = run("check", folder.path(), &config);
        let (served, _, stderr) = run("serve", folder.path(), &config);
        assert_eq!((code, served), (1, 1), "{checked}{stderr}");
        let reason = stderr.lines().find(|line| line.starts_with("tidings: server.tls: ")).unwrap();
        assert_eq!(checked, format!("{reason}\ntidings: 1 problem found\n"));
    }
    let config = configuration(folder.path(), &tls(&certificate, &key));
    let (code, stdout, stderr) = run("check", folder.path(), &config);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(
        stdout.contains(&format!("TLS           the certificate {certificate} (until 4096-01-01), the key {key}\n")),
        "{stdout}"
    );
}

#[test]
fn check_reads_the_ca_certificates_of_brokers_repositories_and_receivers() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem");
    fs::write(&empty, "").unwrap();
    let empty = empty.to_str().unwrap();
    let [authority, _] = certificate(folder.path());
    let lines = |ca: &str| {
        format!(
            "[sources.queue]\ntransport = \"amqp\"\ndialect = \"content-change\"\nurl = \"amqps://h\"\nqueue = \"q\"\n\
             ca = \"{ca}\"\n\
             [sources.fedora]\ntransport = \"stomp\"\nurl = \"stomp+ssl://h\"\ndestination = \"/queue/q\"\nca = \"{ca}\"\n\
             [sources.fedora.repository]\nurl = \"https://h/rest\"\nca = \"{ca}\"\n\
             [subscriptions.index]\ndelivery = \"amqp\"\nurl = \"amqps://h\"\nexchange = \"x\"\nca = \"{ca}\"\n\
             [subscriptions.portal]\ndelivery = \"webhook\"\nurl = \"https://h/\"\nca = \"{ca}\"\n\
             secrets = [\"whsec_ZXhhbXBsZSBleGFtcGxlIGV4YW1wbGUgZXhhbXBsZQ==\"]\n"
        )
    };
    for ca in [empty, "/nowhere/ca.pem"] {
        let (code, _, stderr) = run("check", folder.path(), &configuration(folder.path(), &lines(ca)));
        assert_eq!(code, 1, "{stderr}");
        for key in [
            "sources.queue.ca",
            "sources.fedora.ca",
            "sources.fedora.repository.ca",
            "subscriptions.index.ca",
            "subscriptions.portal.ca",
        ] {
            assert!(stderr.contains(&format!("tidings: {key}: cannot read the CA certificate {ca}: ")), "{stderr}");
        }
        assert!(stderr.ends_with("tidings: 5 problems found\n"), "{stderr}");
    }
    let (code, _, stderr) = run("check", folder.path(), &configuration(folder.path(), &lines(&authority)));
    assert_eq!((code, stderr.as_str()), (0, ""));
}

#[test]
fn check_refuses_the_journals_that_serve_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), "");
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("journal.sqlite"), "no journal at all, and longer than a header would be. ".repeat(3)).unwrap();
    let (code, _, checked) = run("check", folder.path(), &config);
    assert_eq!(fs::read_dir(&data).unwrap().count(), 1, "check makes nothing");
    let (served, _, stderr) = run("serve", folder.path(), &config);
    assert_eq!((code, served), (1, 1));
    assert!(checked.starts_with(stderr.lines().last().unwrap()), "{checked}{stderr}");
}

#[test]
fn check_accepts_the_journal_of_a_running_gateway() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), "");
    let (log, data) = (folder.path().join("log"), folder.path().join("data"));
    let gateway = Gateway::start_logging(&data, &["--config", &config], &log);
    let (code, stdout, stderr) = run("check", folder.path(), &config);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains(&format!("data          {}\n", data.display())), "{stdout}");
    assert!(gateway.stop().success());
    // Only the first start creates a journal and logs its path.
    let is_new = |log: &Path| {
        let log = fs::read_to_string(log).unwrap();
        log.lines().any(|line| line.contains("created a new, empty journal") && line.contains(data.to_str().unwrap()))
    };
    assert!(is_new(&log));
    assert!(Gateway::start_logging(&data, &["--config", &config], &log).stop().success());
    assert!(!is_new(&log));
}

#[test]
fn check_warns_of_sources_with_the_same_objects() {
    let folder = tempfile::tempdir().unwrap();
    let source = |name: &str, transport: &str, url: &str, lines: &str| {
        format!("[sources.{name}]\ntransport = \"{transport}\"\ndialect = \"{transport}\"\nurl = \"{url}\"\n{lines}\n")
    };
    let public = "[server]\npublic_url = \"https://tidings.example.org\"\n".to_owned();
    let apart = public.clone()
        + &source("maps", "oai-pmh", "https://r.example.org/oai?db=maps", "")
        + &source("prints", "oai-pmh", "https://r.example.org/oai?db=prints", "")
        + &source("mods", "oai-pmh", "https://r.example.org/oai?db=maps", "metadata_prefix = \"mods\"")
        + &source("n1", "feed", "https://r.example.org/feed?key=hush-hush&a=1", "")
        + &source("n2", "feed", "https://r.example.org/feed?key=hush-hush&a=2", "");
    let (code, stdout, stderr) = run("check", folder.path(), &configuration(folder.path(), &apart));
    assert_eq!((code, stderr.as_str()), (0, ""));
    for place in [
        "maps: oai-pmh, oai-pmh, oai_dc of https://r.example.org/oai?db=maps\n",
        "https://r.example.org/oai?db=prints\n",
    ] {
        assert!(stdout.contains(place), "{stdout}");
    }
    let shared = public
        + &source("theses", "oai-pmh", "https://me:hush-hush@r.example.org/oai", "sets = [\"theses\"]")
        + &source("open", "oai-pmh", "https://r.example.org/oai", "sets = [\"open\"]")
        + &source("n1", "feed", "https://r.example.org/feed?key=hush-hush", "")
        + &source("n2", "feed", "https://r.example.org/feed?key=hush-hush", "every = \"1d\"");
    let (code, _, stderr) = run("check", folder.path(), &configuration(folder.path(), &shared));
    assert_eq!(code, 0, "{stderr}");
    for expected in [
        "the sources open and theses have the same objects (oai_dc of https://r.example.org/oai), so",
        "the sources n1 and n2 have the same objects (feed https://r.example.org/feed), so",
    ] {
        assert!(stderr.contains(expected), "{stderr}");
    }
    assert!(!stderr.contains("hush-hush"));
}

#[test]
fn check_marks_expired_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let config = gateway_with_auth::configuration(folder.path(), "");
    let (_, stdout, _) = run("check", folder.path(), &config);
    let access = stdout.lines().find(|line| line.starts_with("access ")).unwrap();
    assert_eq!(access, "access        by token: admin, expired (expired), fedora3, islandora, publisher, reader");
    let public = fs::read_to_string(&config).unwrap() + "[access.public]\nsurfaces = [\"feed\", \"live\"]\n";
    fs::write(&config, public).unwrap();
    let (_, stdout, _) = run("check", folder.path(), &config);
    assert!(stdout.contains("publisher, reader; to everybody: feed, live\n"), "{stdout}");
}

#[test]
fn check_prints_only_usable_urls() {
    let folder = tempfile::tempdir().unwrap();
    let details = |lines: &str, listen: &str| {
        let config = configuration(folder.path(), lines);
        let mut check = command(&["check", "--config", &config, "--listen", listen, "--insecure"]);
        ended(check.current_dir(&folder).spawn().unwrap())
    };
    for (listen, local) in [("0.0.0.0:7", "http://127.0.0.1:7"), ("[::]:7", "http://[::1]:7")] {
        let (code, stdout, stderr) = details("", listen);
        assert!(code == 0 && stdout.contains(&format!("public URL    {local}\n")), "{stdout}");
        assert!(stderr.contains("server.public_url is not set") && stderr.contains(local), "{stderr}");
    }
    let (code, stdout, stderr) = details("[server]\npublic_url = \"https://tidings.example.org\"\n", "0.0.0.0:7");
    assert!(code == 0 && stdout.contains("public URL    https://tidings.example.org\n"), "{stdout}");
    // A warning of `serve`.
    assert!(stderr.starts_with("tidings: access control is off: ") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn check_refuses_filters_with_unknown_sources() {
    let folder = tempfile::tempdir().unwrap();
    let index = |source: &str| {
        format!(
            "[sources.old]\ntransport = \"http\"\ndialect = \"content-change\"\nenabled = false\n\
             [subscriptions.index]\ndelivery = \"amqp\"\nurl = \"amqp://h\"\nexchange = \"x\"\nfilter = {{ sources = [\"{source}\"] }}\n"
        )
    };
    for source in ["fedora3", "old"] {
        assert_eq!(run("check", folder.path(), &configuration(folder.path(), &index(source))).0, 0);
    }
    let (code, _, stderr) = run("check", folder.path(), &configuration(folder.path(), &index("fedora33")));
    assert_eq!(code, 2);
    assert!(
        stderr.contains("subscriptions.index.filter.sources")
            && stderr.contains("there is no source \"fedora33\"; did you mean \"fedora3\"?"),
        "{stderr}"
    );
    let crawlers = "[dbus]\nsources = [\"fedora3\", \"fedora33\"]\n";
    let (code, _, stderr) = run("check", folder.path(), &configuration(folder.path(), crawlers));
    assert!(code == 2 && stderr.contains("dbus.sources") && stderr.contains("did you mean"), "{stderr}");
}

#[test]
fn check_has_the_warnings_of_serve() {
    let folder = tempfile::tempdir().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["h.example".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2020, 1, 31));
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = folder.path().join("cert.pem");
    fs::write(&certificate, params.self_signed(&key).unwrap().pem()).unwrap();
    let key_file = folder.path().join("key.pem");
    fs::write(&key_file, key.serialize_pem()).unwrap();
    let lines = format!(
        "[server.tls]\ncertificate = {certificate:?}\nkey = {key_file:?}\n\
         [sources.topic]\ntransport = \"stomp\"\ndialect = \"fedora-events\"\nurl = \"stomp://127.0.0.1:9\"\n\
         destination = \"/topic/fedora\"\n\
         [access.tokens.ops]\nsha256 = \"{}\"\nscopes = [\"admin\"]\nexpires = \"2026-01-01T00:00:00Z\"\n",
        "0".repeat(64)
    );
    let (code, stdout, stderr) = run("check", folder.path(), &configuration(folder.path(), &lines));
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains(&format!("the certificate {} (until 2020-01-31), the key ", certificate.display())),
        "{stdout}"
    );
    let expected = format!(
        "tidings: the token ops has expired, and no other has the scope read: nobody can read the feed\n\
         tidings: the certificate {} expired on 2020-01-31\n\
         tidings: source topic: the subscription is not durable: messages that are sent to the topic while Tidings is \
         disconnected are lost\n",
        certificate.display()
    );
    assert_eq!(stderr, expected);
}

/// A broker that is away, a port that is taken by another program, and that of the running gateway.
#[test]
fn check_connects_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let dead = free_address();
    let lines = format!(
        "[sources.queue]\ntransport = \"amqp\"\ndialect = \"content-change\"\nurl = \"amqp://{dead}\"\nqueue = \"q\"\n\
         [sources.topic]\ntransport = \"stomp\"\ndialect = \"content-change\"\nurl = \"stomp://{dead}\"\n\
         destination = \"/queue/q\"\n\
         [subscriptions.index]\ndelivery = \"amqp\"\nurl = \"amqp://{dead}\"\nexchange = \"e\"\n"
    );
    let config = configuration(folder.path(), &lines);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let data = folder.path().join("data");
    let check = |connect: &[&str], listen: &str, config: &str| {
        let arguments = ["check", "--config", config, "--listen", listen, "--data", data.to_str().unwrap()];
        ended(command(&[&arguments[..], connect].concat()).spawn().unwrap())
    };
    let (code, _, stderr) = check(&[], &listen, &config);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let (code, _, stderr) = check(&["--connect"], &listen, &config);
    assert_eq!(code, 1, "{stderr}");
    let problems: Vec<_> = stderr.lines().collect();
    let expected = [
        format!("tidings: cannot listen on {listen}: Address already in use"),
        "tidings: source queue: the broker cannot be reached: ".to_owned(),
        "tidings: source topic: the broker cannot be reached: ".to_owned(),
        "tidings: subscription index: the broker cannot be reached: ".to_owned(),
        "tidings: 4 problems found".to_owned(),
    ];
    assert_eq!(problems.len(), expected.len(), "{stderr}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.starts_with(&expected), "{problem}");
    }
    let config = configuration(folder.path(), "");
    let gateway = Gateway::start(&data);
    let own = gateway.url.strip_prefix("http://").unwrap();
    let (code, _, stderr) = check(&["--connect"], own, &config);
    assert_eq!((code, stderr.as_str()), (0, ""));
}
