//! `tidings convert --explain`, with settings of the command line and of a configuration.

use std::fs;

use crate::support::{
    command_line::{CommandResult, command, ended},
    fixtures,
    journal_fixture::configuration,
};

fn run(arguments: &[&str]) -> CommandResult {
    ended(command(arguments).spawn().unwrap())
}

#[test]
fn explanation_is_a_table_for_each_element() {
    let folder = tempfile::tempdir().unwrap();
    let source = "[sources.uploads]\ntransport = \"http\"\ndialect = \"mapped\"\n\
                  settings = { preset = \"s3\", content = { digest = \"md5:{{ element.s3.object.eTag }}\" } }\n";
    let config = configuration(folder.path(), source);
    let message = fixtures::folder("mapped").join("s3-several-records-synthetic.json");
    let message = message.to_str().unwrap();
    let settings = r#"{"preset": "s3", "content": {"digest": "md5:{{ element.s3.object.eTag }}"}}"#;
    let by_settings = run(&["convert", "--dialect", "mapped", "--settings", settings, "--explain", message]);
    let by_source = run(&["convert", "--config", &config, "--source", "uploads", "--explain", message]);
    assert_eq!(by_settings, by_source);
    let (code, out, err) = by_source;
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with("/Records/0:\nMEMBER "), "{out}");
    for (member, value, from) in [
        ("kind", "ObjectCreated:Put", "preset s3, template {{ element.eventName|replace"),
        ("object", "s3://pictures/a.jpg", "preset s3, template s3://{{ element.s3.bucket.name }}"),
        ("content.media_type", "image/jpeg", "preset s3, pointer /s3/object/contentType"),
        ("content.digest", "md5:9b2cf535f27731c974343645a3985328", "template md5:{{ element.s3.object.eTag }}"),
    ] {
        let is_row = |line: &&str| line.starts_with(&format!("{member} ")) && line.contains(&format!(" {value} "));
        let row = out.lines().find(is_row).unwrap_or_else(|| panic!("{member}: {out}"));
        assert!(row.contains(&format!("  {from}")), "{row}");
    }
    assert!(out.contains("/Records/3:\n"));
}

/// A message that the source refuses is refused here, and one that changes only metadata is a change if it is one there.
#[test]
fn conversion_for_a_source_has_its_limits_and_settings() {
    let folder = tempfile::tempdir().unwrap();
    let source = "[limits]\nitems = 2\n[sources.uploads]\ntransport = \"http\"\ndialect = \"mapped\"\n\
                  metadata_changes = true\nsettings = { object = \"/object\", kind = \"metadata\", each = \"/all\" }\n";
    let config = configuration(folder.path(), source);
    let path = folder.path().join("message.json");
    let convert = |count: usize| {
        let elements = vec![serde_json::json!({ "object": "urn:x:1" }); count];
        fs::write(&path, serde_json::json!({ "all": elements }).to_string()).unwrap();
        let message = path.to_str().unwrap();
        run(&["convert", "--config", &config, "--source", "uploads", "--format", "json", message])
    };
    let (code, out, err) = convert(1);
    assert!(code == 0 && out.contains(r#""source":"uploads""#) && out.contains(r#""change":"UPDATE""#), "{out}{err}");
    let (code, out, err) = convert(3);
    assert!((code, out.as_str()) == (1, "") && err.contains("at most 2 are allowed"), "{err}");
}

#[test]
fn explanation_ends_where_the_message_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("message.json");
    fs::write(&path, r#"{"id": {}, "when": "today"}"#).unwrap();
    let path = path.to_str().unwrap();
    let settings = r#"{"object": "urn:x:{{ element.number }}", "time": "/when"}"#;
    let (code, out, err) = run(&["convert", "--dialect", "mapped", "--settings", settings, "--explain", path]);
    assert_eq!(code, 1);
    assert!(out.contains("object  (missing)  template urn:x:{{ element.number }}"), "{out}");
    assert!(
        !out.contains("time") && err.contains("object (template urn:x:{{ element.number }}): it is missing"),
        "{err}"
    );
}

#[test]
fn wrong_uses_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), "");
    for (arguments, expected) in [
        (&["--dialect", "islandora", "--explain"][..], "--explain: the dialect islandora has no map"),
        (
            &["--source", "nine", "--config", &config],
            "--source: there is no source \"nine\"; there are content-change,",
        ),
        (&["--source", "nine", "--dialect", "mapped"], "the argument '--source <NAME>' cannot be used with '--dialect"),
        (&[], "the following required arguments were not provided"),
    ] {
        let (code, _, err) = run(&[&["convert"], arguments, &["Cargo.toml"]].concat());
        assert!(code == 2 && err.contains(expected), "{arguments:?}: {err}");
    }
}
