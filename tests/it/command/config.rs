//! `tidings config`, and the file that commands use without `--config`.

use std::{fs, path::Path, process::Command};

use tidings::{
    config::{Config, DEFAULTS, Flags},
    format::DIALECTS,
};

use crate::support::{
    command_line::{CommandResult, command, ended},
    journal_fixture::configuration,
};

fn run(arguments: &[&str]) -> CommandResult {
    ended(command(arguments).spawn().unwrap())
}

fn sample() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/tidings.toml")).unwrap()
}

#[test]
fn default_prints_the_packaged_sample() {
    assert_eq!(run(&["config", "default"]), (0, sample(), String::new()));
    assert_eq!(run(&["config", "default", "--all"]), (0, DEFAULTS.to_owned(), String::new()));
}

/// The settings of the sample work as they are. Its examples have the right names, types and ranges; their secrets and
/// files do not exist.
#[test]
fn sample_is_a_valid_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidings.toml");
    fs::write(&path, sample()).unwrap();
    let plain = Config::load_with(Some(&path), [], &Flags::default(), DIALECTS).unwrap();
    assert_eq!(plain.journal.data, Path::new("/var/lib/tidings"));
    assert!(plain.access.is_open() && plain.sources.len() == 4 && plain.subscriptions.is_empty());
    let is_example = |line: &&str| line.starts_with('#') && !line.starts_with("# ") && *line != "#";
    let examples: String = sample()
        .lines()
        .map(|line| if is_example(&line) { &line[1..] } else { line })
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(&path, examples).unwrap();
    let (code, stdout, stderr) = run(&["config", "show", "--config", path.to_str().unwrap()]);
    assert!(code == 0 && stdout.contains("server.public_url = "), "{stderr}");
}

#[test]
fn path_is_that_of_the_option_or_of_the_variable() {
    let folder = tempfile::tempdir().unwrap();
    let at = |arguments: &[&str], variable: &str| {
        let mut path = command(&[&["config", "path"], arguments].concat());
        path.current_dir(&folder).env("TIDINGS_CONFIG", variable);
        ended(path.spawn().unwrap())
    };
    let absolute = |name: &str| format!("{}\n", folder.path().canonicalize().unwrap().join(name).display());
    let (code, stdout, stderr) = at(&["--config", "one.toml"], "/other.toml");
    assert_eq!((code, stdout), (0, absolute("one.toml")), "{stderr}");
    let (code, stdout, stderr) = at(&[], "other.toml");
    assert_eq!((code, stdout), (0, absolute("other.toml")), "{stderr}");
    assert!(stderr.contains("TIDINGS_CONFIG"), "{stderr}");
}

/// Runs a command where `/etc/tidings/tidings.toml` is a file with this text.
fn with_system_file(text: &str, arguments: &str, folder: &Path) -> CommandResult {
    let script = format!(
        "mount -t tmpfs tmpfs /etc && mkdir /etc/tidings && printf '%s' \"$1\" > /etc/tidings/tidings.toml && exec \"$0\" {arguments}"
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", &script, env!("CARGO_BIN_EXE_tidings"), text]).current_dir(folder);
    unshare.env_remove("TIDINGS_CONFIG");
    let output =
        unshare.output().expect("this test mounts a file system: run it as root, in a container that may mount");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn file_of_the_service_is_used_if_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("service");
    let lines = format!("[journal]\ndata = {data:?}\n");
    let (code, stdout, stderr) = with_system_file(&lines, "config path", folder.path());
    assert_eq!((code, stdout.as_str()), (0, "/etc/tidings/tidings.toml\n"), "{stderr}");
    let (code, stdout, stderr) = with_system_file(&lines, "check", folder.path());
    assert!(
        code == 0 && stdout.contains(&format!("data          {} (a new journal)\n", data.display())),
        "{stdout}{stderr}"
    );
    let (code, stdout, _) = with_system_file(&lines, "check --config /dev/null", folder.path());
    assert!(code == 0 && !stdout.contains("/service"), "{stdout}");
    let (code, _, stderr) = with_system_file("[journal]\nkeep_day = 1\n", "health", folder.path());
    assert!(code == 2 && stderr.contains("keep_day in /etc/tidings/tidings.toml; did you mean"), "{stderr}");
}

#[test]
fn show_prints_origins_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let lines = r#"[server]
listen = "127.0.0.1:7"
[access.tokens.ops]
sha256 = "e78097f5d3fcc41048021b4aaa213da9326138a3b9609dcdbd99d732ec710a39"
scopes = ["admin"]
[sources.queue]
transport = "amqp"
dialect = "sfm"
url = "amqp://me:hush@broker.example:5671/hush"
exchange = "e"
queue = "q"
settings = { base_url = "https://sfm.example.org" }
[sources.topic]
transport = "kafka"
dialect = "content-change"
brokers = "k.example:9092"
topics = ["t"]
sasl = "plain"
user = "me"
password = "hush hush hush hush"
[sources.signed]
transport = "http"
dialect = "fedora-apim"
signature = { secret = "hush hush hush hush" }
lookup = "best-effort"
repository = { url = "http://me:hush@r.example/fedora", username = { file = "/etc/user" }, password = "hush" }
[subscriptions.portal]
delivery = "webhook"
url = "https://portal.example.org/hush?key=hush"
secrets = ["hush", { env = "PORTAL_SECRET" }, { env = "hush hush hush hush" }]
filter = { visibility = true }
[filesets.tokens]
"data.example.org" = "hush"
[files.s3]
endpoint = "https://s3.example.org"
bucket = "b"
access_key = "hush"
secret_key = { env = "S3_KEY" }
[journal]
store = "postgres://me:hush@db.example.org/tidings"
"#;
    let config = configuration(folder.path(), lines);
    let mut show = command(&["config", "show", "--config", &config]);
    show.env("TIDINGS_LIMITS__PAGE", "99").env("TIDINGS_FILESETS__TOKENS__ZENODO", "hush");
    let (code, stdout, stderr) = ended(show.spawn().unwrap());
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(!stdout.contains("hush"), "{stdout}");
    for line in [
        format!("server.listen = \"127.0.0.1:7\"  # in {config}, line 2"),
        "server.grace_seconds = 10  # in the defaults".to_owned(),
        "limits.page = \"99\"  # from the environment variable TIDINGS_LIMITS__PAGE".to_owned(),
        format!("access.tokens.ops.sha256 = \"(secret)\"  # in {config}, line 4"),
        format!("access.tokens.ops.scopes = [\"admin\"]  # in {config}, line 5"),
        format!("sources.queue.url = \"amqp://broker.example:5671/…\"  # in {config}, line 9"),
        format!("sources.queue.settings.base_url = \"https://sfm.example.org\"  # in {config}, line 12"),
        format!("sources.topic.user = \"me\"  # in {config}, line 19"),
        format!("sources.topic.password = \"(secret)\"  # in {config}, line 20"),
        format!("sources.signed.repository.url = \"http://r.example/…\"  # in {config}, line 26"),
        format!("sources.signed.repository.username = {{ file = \"/etc/user\" }}  # in {config}, line 26"),
        format!("subscriptions.portal.url = \"https://portal.example.org/…\"  # in {config}, line 29"),
        format!("subscriptions.portal.filter.visibility = true  # in {config}, line 31"),
        format!("filesets.tokens.\"data.example.org\" = \"(secret)\"  # in {config}, line 33"),
        format!("files.s3.bucket = \"b\"  # in {config}, line 36"),
        format!("files.s3.secret_key = {{ env = \"S3_KEY\" }}  # in {config}, line 38"),
        "filesets.tokens.zenodo = \"(secret)\"  # from the environment variable TIDINGS_FILESETS__TOKENS__ZENODO"
            .to_owned(),
    ] {
        assert!(stdout.lines().any(|shown| shown == line), "{line}\n{stdout}");
    }
    // The lines are TOML.
    toml::de::DeTable::parse(&stdout).unwrap();
}

#[test]
fn environment_file_gives_secrets_and_settings() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "[subscriptions.portal]\ndelivery = \"webhook\"\nurl = \"https://portal.example.org/\"\n\
                 secrets = [{ env = \"PORTAL_SECRET\" }]\n";
    let config = configuration(folder.path(), lines);
    let file = folder.path().join("environment");
    let check = |arguments: &[&str]| {
        let data = folder.path().join("data");
        run(&[&["check", "--config", &config, "--data", data.to_str().unwrap()], arguments].concat())
    };
    let (code, _, stderr) = check(&[]);
    assert!(code == 2 && stderr.contains("the environment variable PORTAL_SECRET is not set"), "{stderr}");
    let secret = "whsec_ZXhhbXBsZSBleGFtcGxlIGV4YW1wbGUgZXhhbXBsZQ==";
    fs::write(&file, format!("# secrets\nPORTAL_SECRET=\"{secret}\"\nTIDINGS_SERVER__LISTEN = 127.0.0.1:7\n")).unwrap();
    let (code, stdout, stderr) = check(&["--environment", file.to_str().unwrap()]);
    assert!(code == 0 && stdout.starts_with("listen        127.0.0.1:7\n"), "{stdout}{stderr}");
    let (code, _, stderr) = check(&["--environment", "none"]);
    let none = std::path::absolute("none").unwrap();
    assert!(
        code == 2 && stderr.contains(&format!("cannot read the environment file {}: ", none.display())),
        "{stderr}"
    );
}
