//! xmllint validates all XML output and all fixtures against the schemas of `xsd/`.

use std::{fs, path::PathBuf};

use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};
use tempfile::TempDir;
use tidings::format::{self, DIALECTS};

use crate::support::{arbitrary, fixtures, unsettled, xmllint};

/// XML formats and their schemas.
const SCHEMAS: [(&str, &str); 2] =
    [("atom", "content-change-message-0.1.xsd"), ("xml", "content-object-modification.xsd")];

#[test]
fn xml_formats_all_have_a_schema() {
    let in_xml: Vec<_> =
        format::FORMATS.iter().filter(|kind| kind.media_type.contains("xml")).map(|kind| kind.name).collect();
    assert_eq!(in_xml, SCHEMAS.map(|(name, _)| name));
}

#[test]
fn schema_agrees_with_the_dialect_on_the_fixtures() {
    let (read, refused): (Vec<_>, Vec<_>) = fixtures::of("content-change")
        .into_iter()
        .filter(|fixture| fixture.extension().is_some_and(|extension| extension == "xml"))
        .partition(|fixture| fixtures::read("content-change", fixture).is_ok());
    let is_named_refused = |fixture: &PathBuf| fixture.file_stem().unwrap().to_str().unwrap().contains("refused");
    assert!(refused.iter().all(is_named_refused) && !read.iter().any(is_named_refused), "{read:?} {refused:?}");
    // A date that cannot be read costs the dialect only the date.
    let (odd, valid): (Vec<_>, Vec<_>) =
        read.into_iter().partition(|fixture| fixture.file_stem().unwrap() == "synthetic-bad-date");
    xmllint::assert_valid(SCHEMAS[0].1, &valid);
    // The schema detects local errors; it cannot detect contradictions between elements.
    for (case, wrong) in [
        ("synthetic-bad-date", "'06.05.2024 07:08'"),
        ("synthetic-refused-bad-state", "'inactive'"),
        ("synthetic-refused-relative-via", "'/fedora/objects/demo:1/datastreams/DC/content'"),
        ("synthetic-refused-bad-digest", "'abc'"),
    ] {
        let fixture = refused.iter().chain(&odd).find(|fixture| fixture.file_stem().unwrap() == case).unwrap();
        let refusal = xmllint::refusal(SCHEMAS[0].1, fixture);
        assert!(refusal.contains(wrong), "{case}: {refusal}");
    }
}

#[test]
fn schema_accepts_the_output_for_every_fixture() {
    let modifications: Vec<_> = DIALECTS
        .iter()
        .flat_map(|kind| fixtures::of(kind.name).into_iter().map(|fixture| fixtures::read(kind.name, &fixture)))
        .flatten()
        .flat_map(|reading| unsettled::modifications(&reading))
        .collect();
    for (name, schema) in SCHEMAS {
        let kind = format::format(name).unwrap();
        let (_folder, documents) = written(modifications.iter().map(kind.write_modification));
        xmllint::assert_valid(schema, &documents);
    }
}

#[test]
fn schema_accepts_the_output_for_any_change() {
    let mut runner = TestRunner::deterministic();
    let changes: Vec<_> = (0..128).map(|_| arbitrary::change().new_tree(&mut runner).unwrap().current()).collect();
    for (name, schema) in SCHEMAS {
        let kind = format::format(name).unwrap();
        let alone = changes.iter().map(|change| (kind.write_modification)(&change.modification));
        let (_folder, documents) = written(changes.iter().map(kind.write).chain(alone));
        xmllint::assert_valid(schema, &documents);
    }
}

/// A value that the model's types exclude is invalid in the schema.
#[test]
fn schema_enforces_the_rules_of_the_model() {
    let fixture = fixtures::folder("content-change").join("synthetic-additions.xml");
    let modifications = unsettled::modifications(&fixtures::read("content-change", &fixture).unwrap());
    let valid = String::from_utf8(unsettled::as_format("xml", &modifications[0])).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.xml");
    for (from, to, complaint) in [
        ("add>", "delete>", "content': This element is not expected"),
        ("add>", "state>", "content': This element is not expected"),
        ("stateAfter>", "stateBefore>", "stateBefore': This element is not expected"),
        ("<uri>http:", "<uri>", "not accepted by the pattern"),
        (">curator<", "><", "length"),
        ("<size>1234<", "<size>-1<", "not a valid value"),
        ("algorithm=\"sha-1\"", "algorithm=\"crc32\"", "not an element of the set"),
    ] {
        assert!(valid.contains(from), "{from}: {valid}");
        fs::write(&path, valid.replace(from, to)).unwrap();
        let refusal = xmllint::refusal(SCHEMAS[1].1, &path);
        assert!(refusal.contains(complaint), "{from} {to}: {refusal}");
    }
}

/// Writes the documents to files in a temporary folder, which is removed when the guard is dropped.
fn written(documents: impl Iterator<Item = Vec<u8>>) -> (TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let paths = documents.enumerate().map(|(index, document)| {
        let path = folder.path().join(format!("{index}.xml"));
        fs::write(&path, document).unwrap();
        path
    });
    let paths = paths.collect();
    (folder, paths)
}
