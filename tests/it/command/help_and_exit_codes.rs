//! Command-line contract for scripts: exit codes, standard output, standard error, and help texts with
//! examples.

use crate::support::command_line::{CommandResult, command, ended};
use std::{fs, io::Write, process::Stdio};

use tidings::format::DIALECTS;

fn run(arguments: &[&str]) -> CommandResult {
    ended(command(arguments).spawn().unwrap())
}

/// Writes a configuration file without the default sources and with one source for each dialect; returns its
/// path.
fn configuration() -> String {
    let left_out: String = ["fedora3", "fedora", "islandora", "content-change"]
        .iter()
        .map(|name| format!("[sources.{name}]\nenabled = false\n"))
        .collect();
    let sources = DIALECTS.iter().map(|kind| {
        let settings: serde_json::Map<_, _> = serde_json::from_str(kind.sample_settings[0]).unwrap();
        let settings: String = settings.iter().map(|(key, value)| format!("settings.{key} = {value}\n")).collect();
        format!("[sources.my-{}]\ntransport = \"http\"\ndialect = \"{}\"\n{settings}", kind.name, kind.name)
    });
    left_out + &sources.collect::<String>()
}

#[test]
fn help_has_examples_and_exit_codes() {
    let (code, help, _) = run(&["--help"]);
    assert_eq!(code, 0);
    for word in [
        "serve",
        "convert",
        "replay",
        "check",
        "config",
        "token",
        "backup",
        "restore",
        "migrate",
        "verify",
        "completions",
        "man",
        "/hooks/fedora3",
        "/feed",
        "Exit codes",
    ] {
        assert!(help.contains(word), "--help does not tell of {word}:\n{help}");
    }
    for name in [
        "serve",
        "convert",
        "replay",
        "subscriptions",
        "ingest",
        "tail",
        "export",
        "publish",
        "check",
        "config",
        "health",
        "token",
        "backup",
        "restore",
        "migrate",
        "verify",
        "completions",
        "man",
    ] {
        let (code, help, _) = run(&[name, "--help"]);
        assert_eq!(code, 0);
        assert!(help.contains("Exit codes:\n  0  "), "{name} --help:\n{help}");
        assert!(help.contains(&format!("Examples:\n  tidings {name}")), "{name} --help:\n{help}");
    }
    let version = run(&["--version"]).1;
    let commit = version.trim_end().strip_prefix(concat!("tidings ", env!("CARGO_PKG_VERSION"))).unwrap();
    // The build script sets it for the tests too.
    let known = option_env!("TIDINGS_COMMIT").filter(|known| !known.is_empty());
    assert_eq!(commit, known.map_or_else(String::new, |known| format!(" (commit {known})")));
}

#[test]
fn usage_errors_exit_with_2() {
    for (arguments, expected) in [
        (&[][..], "Usage: tidings"),
        (&["server"], "serve"),
        (&["serve", "--listen", "8080"], "--listen"),
        (&["convert"], "--dialect"),
        (&["convert", "--dialect", "x", "--settings", "{"], "--settings"),
        (&["convert", "--dialect", "x", "--header", "nonsense"], "write a header as NAME: VALUE"),
        (&["convert", "--dialect", "morse"], "tidings: --dialect: there is no dialect \"morse\"; there are "),
        (&["replay", "--to", "http://h/"], "<PATH>"),
        (&["replay", "."], "--to"),
        (&["replay", ".", "--to", "ftp://h/"], "give an http or https URL"),
        (&["replay", ".", "--to", "http://h/", "--concurrency", "0"], "--concurrency"),
        (&["replay", ".", "--to", "http://h/", "--header", "a b: c"], "tidings: \"a b\" is not a valid header name"),
        (&["check", "--config", "/none.toml"], "tidings: cannot read the configuration file /none.toml: "),
        (&["serve", "--config", "/none.toml"], "tidings: cannot read the configuration file /none.toml: "),
        (&["check", "--config", "none.toml"], "tidings: cannot read the configuration file /"),
    ] {
        let (code, out, err) = run(arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}: {err}");
        assert!(err.contains(expected), "{arguments:?}: {err}");
    }
}

#[test]
fn check_prints_the_effective_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidings.toml");
    let amqp = "\
[sources.queue]
transport = \"amqp\"
dialect = \"content-change\"
url = \"amqp://me:hush@broker.example/v\"
queue = \"events\"
[subscriptions.index]
delivery = \"amqp\"
url = \"amqp://me:hush@broker.example/v\"
exchange = \"content.changes\"
";

    fs::write(&path, configuration() + "\n" + amqp).unwrap();
    let mut check = command(&["check", "--config", path.to_str().unwrap()]);
    check.env("TIDINGS_SERVER__LISTEN", "127.0.0.1:7").current_dir(&folder);
    let (code, out, err) = ended(check.spawn().unwrap());
    assert_eq!((code, err.as_str()), (0, ""));
    let mut expected = "\
listen        127.0.0.1:7
public URL    http://127.0.0.1:7
TLS           none, nothing is encrypted
data          FOLDER/data (a new journal)
access        open to anyone who can reach it
"
    .replace("FOLDER", folder.path().canonicalize().unwrap().to_str().unwrap());
    let mut names: Vec<&str> = DIALECTS.iter().map(|kind| kind.name).collect();
    names.sort_unstable();
    for name in names {
        expected += &format!("source        my-{name}: http, {name}, /hooks/my-{name}\n");
    }
    expected += "source        queue: amqp, content-change, the queue events of amqp://me@broker.example:5672/v\n";
    expected += "subscription  index: amqp, atom, to amqp://me@broker.example:5672/v\n";
    assert_eq!(out, expected);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "check writes nothing");
}

#[test]
fn check_of_the_defaults_lists_four_hooks() {
    let expected = "\
listen        127.0.0.1:8395
public URL    http://127.0.0.1:8395
TLS           none, nothing is encrypted
data          FOLDER/data (a new journal)
access        open to anyone who can reach it
source        content-change: http, content-change, /hooks/content-change
source        fedora: http, fedora-events, /hooks/fedora
source        fedora3: http, fedora-apim, /hooks/fedora3
source        islandora: http, islandora, /hooks/islandora
";

    let folder = tempfile::tempdir().unwrap();
    let expected = expected.replace("FOLDER", folder.path().canonicalize().unwrap().to_str().unwrap());
    let check = command(&["check"]).current_dir(&folder).spawn().unwrap();
    assert_eq!(ended(check), (0, expected, String::new()));
}

#[test]
fn check_refuses_an_invalid_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidings.toml");
    fs::write(&path, "[journal]\nqeue = 1").unwrap();
    let (code, out, err) = run(&["check", "--config", path.to_str().unwrap()]);
    assert_eq!((code, out.as_str()), (2, ""));
    let expected = format!("line 2: unknown setting journal.qeue in {}; did you mean journal.queue?", path.display());
    assert_eq!(err, format!("tidings: {expected}\n"));
}

#[test]
fn convert_reports_errors_of_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("message");
    fs::write(&path, [0, 1, 2]).unwrap();
    let path = path.to_str().unwrap();
    for kind in DIALECTS {
        let convert = ["convert", "--settings", kind.sample_settings[0], "--dialect", kind.name];
        let (code, out, err) = run(&[&convert[..], &[path]].concat());
        assert_eq!((code, out.as_str()), (1, ""), "{}: {err}", kind.name);
        assert!(err.starts_with(&format!("tidings: {path}: ")), "{}: {err}", kind.name);

        let mut piped = command(&[&convert[..], &["-"]].concat()).stdin(Stdio::piped()).spawn().unwrap();
        piped.stdin.take().unwrap().write_all(&[0, 1, 2]).unwrap();
        assert_eq!(ended(piped), (code, out, err.replace(path, "-")));

        let (code, _, err) = run(&[&convert[..], &["none.xml"]].concat());
        assert_eq!(code, 1);
        assert!(err.starts_with("tidings: cannot read none.xml: "), "{err}");

        let (code, _, err) = run(&["convert", "--dialect", kind.name, "--format", "morse", path]);
        assert_eq!(code, 2);
        assert!(err.starts_with("tidings: --format: there is no format \"morse\"; there are "), "{err}");

        let (code, _, err) = run(&["convert", "--dialect", kind.name, "--settings", "{\"no such\": 1}", path]);
        assert_eq!(code, 2);
        assert!(err.starts_with("tidings: --settings: wrong for the dialect "), "{err}");
    }
}
