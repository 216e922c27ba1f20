//! All errors of a configuration are reported at once, in the order of their lines, each after its line.

use std::fs;

use tidings::{
    config::{Config, ConfigError, Flags},
    settings::Origin,
};

use crate::support::{
    command_line::{command, ended},
    config_loader::{DIALECTS, load},
};

/// A file with errors in a table, a source, a subscription and a token.
const FILE: &str = r#"[journal]
queue = 0
batch = "many"

[sources.fedora]
dialect = "fedora-evens"

[sources.oai]
transport = "oai-pmh"
dialect = "oai-pmh"
url = "https://me:hush-hush@h/oai"
evry = "1h"
full_every = "never"
sets = ["a b"]

[subscriptions.index]
delivery = "ampq"
"#;

#[test]
fn several_errors_are_in_the_order_of_their_lines() {
    let time = "give a time of 1s to 366d with its unit, such as \"90s\", \"15m\", \"1h\" or \"30d\"";
    // Names and types of sources are checked beside wrong tables; the rest needs correct tables.
    let expected = format!(
        "the configuration has 5 errors\n  \
         line 2: the setting journal.queue in my.toml is wrong: it is 0; give a whole number from 1 to 1000000\n  \
         line 3: the setting journal.batch in my.toml is wrong: it is \"many\"; give a whole number from 1 to 100000\n  \
         line 12: unknown setting sources.oai.evry in my.toml; did you mean sources.oai.every?\n  \
         line 13: the setting sources.oai.full_every in my.toml is wrong: it is \"never\"; {time}\n  \
         line 14: the setting sources.oai.sets in my.toml is wrong: \"a b\" is not a set; give the setSpec of ListSets, \
         such as \"math:algebra\""
    );
    assert_eq!(load(FILE, &[]).map(|_| ()), Err(expected));
    let (_, correct) = FILE.split_once("\n\n").unwrap();
    let error = load(correct, &[("TIDINGS_SOURCES__ISLANDORA__DIALECT", "x")]).unwrap_err();
    let lines: Vec<_> = error.lines().map(|line| line.split(" in my.toml").next().unwrap()).collect();
    let (environment, in_file) = lines.split_last().unwrap();
    let expected = [
        "the configuration has 6 errors",
        "  line 2: the setting sources.fedora.dialect",
        "  line 8: unknown setting sources.oai.evry",
        "  line 9: the setting sources.oai.full_every",
        "  line 10: the setting sources.oai.sets",
        "  line 13: the setting subscriptions.index.delivery",
    ];
    assert_eq!(in_file, expected);
    assert!(
        environment.starts_with("  the setting sources.islandora.dialect from the environment variable"),
        "{error}"
    );
    assert!(!error.contains("hush-hush"));
}

#[test]
fn check_reports_several_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidings.toml");
    fs::write(&path, FILE).unwrap();
    let (code, output, errors) = ended(command(&["check", "--config", path.to_str().unwrap()]).spawn().unwrap());
    assert_eq!((code, output.as_str()), (2, ""));
    assert!(
        errors.starts_with("tidings: the configuration has 5 errors\n  line 2: the setting journal.queue in "),
        "{errors}"
    );
    assert_eq!(errors.lines().count(), 6, "{errors}");
}

#[test]
fn a_single_error_has_its_line_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.toml");
    for (text, line) in [
        ("[server]\n\nlisten = 8080", Some(3)),
        ("[server]\nhosts = [\n  \"a\",\n  \"http://b\",\n]", Some(2)),
        ("[sources.fedora]\n[sources.fedora.settings]\ndeep = 1", Some(3)),
        ("[server.tls]\nkey = \"key.pem\"", None),
    ] {
        fs::write(&path, text).unwrap();
        let errors = Config::load_with(Some(&path), [], &Flags::default(), &DIALECTS).unwrap_err();
        assert_eq!(errors.all().iter().map(ConfigError::line).collect::<Vec<_>>(), [line], "{errors}");
    }
    let origin = Origin::File { path: "my.toml".to_owned(), line: 7 };
    assert_eq!(origin.to_string(), "in my.toml");
}

#[test]
fn one_error_begins_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.toml");
    fs::write(&path, "[server]\nlisten = 8395\n").unwrap();
    let errors = Config::load_with(Some(&path), [], &Flags::default(), &DIALECTS).unwrap_err();
    let expected = format!(
        "line 2: the setting server.listen in {} is wrong: it is 8395; give an IP address and a port, as in \"127.0.0.1:8395\"",
        path.display()
    );
    assert_eq!(errors.to_string(), expected);
}
