//! xmllint, the command-line tool of libxml2, as an independent validator and canonicalizer.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Validates the documents against a schema of `xsd/` in one run; panics with the messages of xmllint.
pub(crate) fn assert_valid(schema: &str, documents: &[PathBuf]) {
    assert!(!documents.is_empty(), "there is nothing to validate against {schema}");
    let output = validate(schema, documents);
    assert!(output.status.success(), "{}", complaints(&output));
}

/// Returns the messages of xmllint about an invalid document; panics if the document is valid.
pub(crate) fn refusal(schema: &str, document: &Path) -> String {
    let output = validate(schema, &[document.to_owned()]);
    assert!(!output.status.success(), "{} is valid", document.display());
    complaints(&output)
}

/// Returns the document in canonical XML.
pub(crate) fn canonical(document: &Path) -> String {
    let output = run(Command::new("xmllint").args(["--nonet", "--c14n"]).arg(document));
    assert!(output.status.success(), "{}", complaints(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn validate(schema: &str, documents: &[PathBuf]) -> Output {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("xsd").join(schema);
    run(Command::new("xmllint").args(["--nonet", "--noout", "--schema"]).arg(schema).args(documents))
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| {
        panic!("xmllint cannot be run ({error}); install it, on Debian with `apt-get install libxml2-utils`")
    })
}

fn complaints(output: &Output) -> String {
    let all = String::from_utf8_lossy(&output.stderr);
    all.lines().filter(|line| !line.ends_with(" validates")).collect::<Vec<_>>().join("\n")
}
