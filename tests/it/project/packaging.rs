//! `packaging/`, as far as it can be checked without a container engine: systemd accepts the unit, the image
//! runs as nobody, and every environment variable is a setting.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

use crate::support::{
    command_line::{CommandResult, command, ended},
    postgres::Server,
};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

/// Runs `tidings check` in a temporary folder with these variables.
fn check(environment: &BTreeMap<String, String>) -> CommandResult {
    let data = tempfile::tempdir().unwrap();
    let mut check = command(&["check", "--data", data.path().to_str().unwrap()]);
    ended(check.envs(environment).spawn().unwrap())
}

/// Variables that an operator sets in `.env`.
pub(super) const ENV_FILE: [(&str, &str); 7] = [
    ("TIDINGS_TOKEN_SHA256", "e78097f5d3fcc41048021b4aaa213da9326138a3b9609dcdbd99d732ec710a39"),
    ("RABBITMQ_USER", "sfm"),
    ("RABBITMQ_PASSWORD", "hush"),
    ("SFM_HOSTNAME", "sfm.example.org"),
    ("SFM_PORT", "8080"),
    ("DATABASE_PASSWORD", "hush"),
    ("REPLICATION_PASSWORD", "hush"),
];

/// Interpolates `${NAME}`, `${NAME:-default}` and `${NAME:?reason}` as Compose does.
fn interpolated(text: &str) -> String {
    let Some((before, rest)) = text.split_once("${") else { return text.to_owned() };
    let (variable, behind) = rest.split_once('}').unwrap();
    let (name, default) = match variable.split_once(':') {
        Some((name, default)) => (name, default.strip_prefix('-')),
        None => (variable, None),
    };
    let variable = ENV_FILE.iter().find(|(variable, _)| *variable == name).map(|(_, value)| *value);
    let value = variable.or(default).unwrap_or_else(|| panic!("{name} has no value"));
    format!("{before}{value}{}", interpolated(behind))
}

/// Returns a file as a YAML parser reads it.
pub(super) fn yaml(file: &str) -> Value {
    let script = "import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)";
    let parsed = Command::new(path("scripts/python-yaml")).args(["-c", script]).arg(path(file)).output().unwrap();
    assert!(parsed.status.success(), "{file}: {}", String::from_utf8_lossy(&parsed.stderr));
    serde_json::from_slice(&parsed.stdout).unwrap()
}

/// Returns the service of an overlay.
fn service(overlay: &str) -> Value {
    let file = yaml(overlay);
    let service = file["services"]["tidings"].clone();
    // The journal survives the container, and the port is published only to the host.
    assert_eq!(service["volumes"][0], "tidings-data:/var/lib/tidings");
    assert!(file["volumes"].get("tidings-data").is_some());
    assert_eq!(service["ports"][0], "127.0.0.1:8395:8395");
    service
}

fn environment(service: &Value) -> BTreeMap<String, String> {
    let all = service["environment"].as_object().unwrap();
    let text = |value: &Value| {
        interpolated(value.as_str().expect("a variable is text, in quotation marks where it looks otherwise"))
    };
    all.iter().map(|(name, value)| (name.clone(), text(value))).collect()
}

/// Returns whether the only warning is that a proxy has to encrypt connections.
fn is_only_unencrypted(stderr: &str) -> bool {
    stderr.lines().all(|line| line.starts_with("tidings: tokens and messages are not encrypted"))
}

#[test]
fn compose_overlays_set_existing_settings() {
    for (overlay, sources) in [
        (
            "packaging/compose.sfm.yml",
            &["source        sfm: amqp, sfm, the queue tidings.sfm of amqp://sfm@mq:5672/%2F\n"][..],
        ),
        (
            "packaging/compose.isle.yml",
            &[
                "source        fedora: stomp, fedora-events, /topic/fedora of stomp://activemq:61613\n",
                "source        islandora: stomp, islandora, /queue/tidings.islandora of stomp://activemq:61613\n",
            ],
        ),
    ] {
        let mut environment = environment(&service(overlay));
        assert!(environment.keys().all(|name| name.starts_with("TIDINGS_")), "{environment:?}");
        let (code, stdout, stderr) = check(&environment);
        assert!(code == 0 && is_only_unencrypted(&stderr), "{overlay}: {stderr}");
        for line in
            ["listen        0.0.0.0:8395\n", "public URL    http://localhost:8395\n", "access        by token: ops\n"]
        {
            assert!(stdout.contains(line), "{overlay}: {stdout}");
        }
        let read: String =
            stdout.lines().filter(|line| line.starts_with("source ")).map(|line| format!("{line}\n")).collect();
        assert_eq!(read, sources.concat(), "{overlay}");
        // A misspelled variable is an error.
        environment.insert("TIDINGS_SOURCES__FEDORA__DESTINATOIN".to_owned(), "/topic/x".to_owned());
        assert_eq!(check(&environment).0, 2);
    }
    // The default network of ISLE is internal, so the port is published through the other network.
    let networks = service("packaging/compose.isle.yml")["networks"].clone();
    assert_eq!(networks.as_object().unwrap().keys().collect::<Vec<_>>(), ["default", "gateway"]);
}

/// All nodes of the cluster example have the same settings, which `tidings check` accepts.
#[test]
fn nodes_of_the_cluster_example_differ_in_their_names_only() {
    let file = yaml("examples/cluster/compose.yaml");
    let services = file["services"].as_object().unwrap();
    let nodes: Vec<_> = services.iter().filter(|(name, _)| name.starts_with("tidings-")).collect();
    assert_eq!(nodes.len(), 3);
    let balancer = read("examples/cluster/haproxy.cfg") + &read("examples/cluster/nginx.conf");
    for (name, node) in nodes {
        assert_eq!(node["hostname"], name.as_str());
        assert_eq!(balancer.matches(&format!("{name}:8395")).count(), 2, "{name}");
        let mut environment = environment(node);
        let (host, config) = (&environment["TIDINGS_DATABASE"], &environment["TIDINGS_CONFIG"]);
        assert_eq!(host, "postgres://tidings:hush@primary:5432,standby:5432/tidings");
        assert_eq!(node["volumes"][0], format!("./tidings.toml:{config}:ro"));
        environment.insert("TIDINGS_DATABASE".to_owned(), Server::shared().create_database());
        environment.insert("TIDINGS_CONFIG".to_owned(), path("examples/cluster/tidings.toml").display().to_string());
        environment.insert("TIDINGS_SERVER__LISTEN".to_owned(), "0.0.0.0:8395".to_owned());
        let (code, stdout, stderr) = check(&environment);
        assert!(code == 0 && is_only_unencrypted(&stderr), "{stdout}{stderr}");
        assert!(stdout.contains("access        by token: ops\n"), "{stdout}");
    }
    assert_eq!(services["proxy"]["ports"][0], "127.0.0.1:8395:8395");
    let published = services.values().filter(|service| service.get("ports").is_some()).count();
    assert_eq!(published, 1, "only the load balancer is reached from outside");
}

#[test]
fn image_runs_as_nobody_with_a_health_check() {
    let text = read("packaging/Dockerfile").replace("\\\n", " ");
    let lines: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split_whitespace().collect())
        .collect();
    let last = lines.iter().rposition(|line| line[0] == "FROM").unwrap();
    assert!(last > 0, "the image contains no build tools");
    let all = |instruction: &'static str| {
        lines[last..].iter().filter(move |line| line[0] == instruction).map(|line| line[1..].join(" "))
    };
    let one = |instruction: &'static str| all(instruction).next_back().unwrap_or_else(|| panic!("no {instruction}"));
    assert_eq!(one("USER"), "65532:65532");
    assert_eq!(one("VOLUME"), "/var/lib/tidings");
    assert!(one("HEALTHCHECK").ends_with(r#"CMD ["tidings", "health"]"#));
    assert_eq!([one("ENTRYPOINT"), one("CMD")], [r#"["tidings"]"#, r#"["serve"]"#]);
    let toolchain = read("rust-toolchain.toml");
    let release = toolchain.split('"').nth(1).unwrap();
    assert!(
        lines.iter().any(|line| line[0] == "FROM" && line[1].starts_with(&format!("rust:{release}-"))),
        "{release}"
    );
    assert!(text.contains(&format!("ENV RUSTUP_TOOLCHAIN={release}\n")));

    let variables = all("ENV").flat_map(|line| {
        let pairs: Vec<_> = line.split_whitespace().map(|pair| pair.split_once('=').unwrap()).collect();
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<Vec<_>>()
    });
    let mut environment: BTreeMap<String, String> = variables.collect();
    let (code, _, stderr) = check(&environment);
    assert!(
        code == 2 && stderr.contains("there is no access control"),
        "others reach it, so it needs a token: {stderr}"
    );
    environment.insert("TIDINGS_ACCESS__TOKENS__OPS__SHA256".to_owned(), ENV_FILE[0].1.to_owned());
    environment.insert("TIDINGS_ACCESS__TOKENS__OPS__SCOPES".to_owned(), "admin".to_owned());
    let (code, stdout, _) = check(&environment);
    assert!(code == 0 && stdout.contains("listen        0.0.0.0:8395\n"), "{stdout}");
}

#[test]
fn systemd_unit_confines_the_program() {
    let unit = read("packaging/tidings.service");
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tidings.toml");
    fs::write(&config, "").unwrap();
    let checked = unit.lines().find_map(|line| line.strip_prefix("ExecStartPre=/usr/bin/tidings ")).unwrap();
    let served = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/tidings serve")).unwrap();
    assert_eq!(checked.strip_prefix("check"), Some(served), "check and serve agree");
    let arguments = checked.replace("/etc/tidings/tidings.toml", config.to_str().unwrap());
    let arguments = arguments.replace("/var/lib/tidings", folder.path().to_str().unwrap());
    let (code, _, stderr) = ended(command(&arguments.split(' ').collect::<Vec<_>>()).spawn().unwrap());
    assert_eq!((code, stderr.as_str()), (0, ""));

    // The program is not in /usr/bin on this machine.
    let copy = folder.path().join("tidings.service");
    fs::write(&copy, unit.replace("/usr/bin/tidings", env!("CARGO_BIN_EXE_tidings"))).unwrap();
    for arguments in [&["verify"][..], &["security", "--offline=true", "--no-pager", "--threshold=20"]] {
        let output = systemd_analyze(Command::new("systemd-analyze").args(arguments).arg(&copy));
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stdout}");
        assert!(arguments[0] != "verify" || stdout.is_empty(), "{stdout}");
    }
}

#[test]
fn systemd_unit_of_a_session_is_valid() {
    let unit = read("packaging/tidings-user.service");
    let commands = ["ExecStartPre=/usr/bin/tidings check", "ExecStart=/usr/bin/tidings serve"];
    let [checked, served] = commands.map(|start| unit.lines().find_map(|line| line.strip_prefix(start)).unwrap());
    assert_eq!(checked, served, "check and serve agree");
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("tidings.service");
    // The program is not in /usr/bin on this machine.
    fs::write(&copy, unit.replace("/usr/bin/tidings", env!("CARGO_BIN_EXE_tidings"))).unwrap();
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["--user", "verify"]).arg(&copy).env("XDG_RUNTIME_DIR", folder.path()).env("HOME", folder.path());
    let output = systemd_analyze(&mut analyze);
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !text.contains("tidings.service:"), "{text}");
}

/// Returns the output of `systemd-analyze`. Panics with what to do if it cannot be run.
fn systemd_analyze(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("systemd-analyze cannot be run ({error}); install systemd"))
}

#[test]
fn policy_of_the_system_bus_is_valid_xml_for_the_default_name() {
    let policy = path("packaging/org.tidings.Tidings1.conf");
    let checked = Command::new("xmllint").args(["--nonet", "--noout"]).arg(&policy).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let name = tidings::config::DEFAULTS.lines().find_map(|line| line.strip_prefix("name = ")).unwrap();
    let policy = fs::read_to_string(policy).unwrap();
    assert!(policy.contains(&format!("<allow own={name}/>")) && name.contains("org.tidings"), "{name}");
}
